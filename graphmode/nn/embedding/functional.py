"""The functional forms of this room."""

from .bag import embedding_bag
from .embedding import embedding
from .one_hot import one_hot

__all__: list[str] = ["embedding", "embedding_bag", "one_hot"]
