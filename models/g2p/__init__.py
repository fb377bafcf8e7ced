"""g2p: how English words are pronounced. `load()` gives the model, `spelling` the tables of letters and phonemes."""

from .model import G2p, G2pConfig, load

__all__ = ["G2p", "G2pConfig", "load"]
