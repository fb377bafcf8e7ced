"""Distances and similarities of vectors."""

from .pairs import PairwiseDistance
from .similarity import CosineSimilarity

__all__: list[str] = ["CosineSimilarity", "PairwiseDistance"]
