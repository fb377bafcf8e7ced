"""Tables of rows to look up, one by one or in bags."""

from .bag import EmbeddingBag
from .embedding import Embedding

__all__: list[str] = ["Embedding", "EmbeddingBag"]
