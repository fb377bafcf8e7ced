"""Dropout in all its variants, whose masks can be given."""

from .layers import AlphaDropout, Dropout, Dropout1d, Dropout2d, Dropout3d, FeatureAlphaDropout
from .masks import dropout_masks

__all__: list[str] = [
    "AlphaDropout",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "FeatureAlphaDropout",
    "dropout_masks",
]
