"""The functional forms of this room."""

from .bilinear import bilinear
from .linear import linear
from .products import baddbmm, bmm, einsum, matmul

__all__: list[str] = ["baddbmm", "bilinear", "bmm", "einsum", "linear", "matmul"]
