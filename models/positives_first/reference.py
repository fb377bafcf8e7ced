"""Reordering by value: the positive entries first, then the others, times a matrix.

Source: the boolean form is what people write; the sorted one is how eager code avoids a shape that depends on values.
"""

import torch
from torch import Tensor, nn


class PositivesFirst(nn.Module):
    """`[N]` -> `[M]`: the positive entries of `x` first, both parts in their order, times `w` `[N, M]`."""

    def __init__(self, length: int = 4096, out_features: int = 96):
        super().__init__()
        self.w = nn.Parameter(torch.randn(length, out_features) / length**0.5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x[x > 0], x[x <= 0]]) @ self.w


class PositivesFirstBySort(PositivesFirst):
    """The same by a stable sort of the mask, every shape known beforehand."""

    def forward(self, x: Tensor) -> Tensor:
        return x[torch.argsort(x <= 0, stable=True)] @ self.w
