"""Convolutions and transposed convolutions, and the patches they are made of."""

from .conv import Conv1d, Conv2d, Conv3d
from .fold import Fold, Unfold
from .lazy import LazyConv1d, LazyConv2d, LazyConv3d, LazyConvTranspose1d, LazyConvTranspose2d, LazyConvTranspose3d
from .transposed import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d

__all__: list[str] = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Fold",
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
    "Unfold",
]
