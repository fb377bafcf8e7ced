"""Recurrent layers and cells."""

from .cells import GRUCell, LSTMCell, RNNCell
from .layers import GRU, LSTM, RNN

__all__: list[str] = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"]
