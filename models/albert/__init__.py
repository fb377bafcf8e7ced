"""ALBERT, a masked language model of chemical reactions: `load()` gives it with rxnmapper's weights."""

from .config import AlbertConfig
from .model import Albert, load
from .reactions import ReactionTokenizer

__all__ = ["Albert", "AlbertConfig", "ReactionTokenizer", "load"]
