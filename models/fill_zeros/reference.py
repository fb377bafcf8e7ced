"""A write to the places that a condition picks."""

import torch
from torch import Tensor, nn


class FillZeros(nn.Module):
    """`[B, F]` -> `[B, F]`: the input with each zero replaced by a learned value."""

    def __init__(self, initial: float = 0.5):
        super().__init__()
        self.fill = nn.Parameter(torch.tensor(initial))

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = (x == 0).nonzero().unbind(1)
        y = x.clone()
        y[rows, columns] = self.fill
        return y
