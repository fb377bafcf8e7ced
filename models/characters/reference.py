"""A character model in PyTorch: what comes next."""

from torch import Tensor, nn

from .text import SYMBOLS


class CharacterModel(nn.Module):
    """Symbols `[B, T]` -> logits of the next ones `[B, T, 128]`."""

    def __init__(self, features: int = 32, hidden: int = 128):
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, features)
        self.lstm = nn.LSTM(features, hidden, batch_first=True)
        self.head = nn.Linear(hidden, SYMBOLS)

    def forward(self, symbols: Tensor) -> Tensor:
        hidden, _ = self.lstm(self.embedding(symbols))
        return self.head(hidden)
