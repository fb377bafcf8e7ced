"""The functional forms of this room."""

from .pairs import cdist, pairwise_distance, pdist
from .similarity import cosine_similarity, normalize

__all__: list[str] = ["cdist", "cosine_similarity", "normalize", "pairwise_distance", "pdist"]
