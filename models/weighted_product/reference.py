"""A matrix times a vector: the smallest module with a parameter."""

import torch
from torch import Tensor, nn


class WeightedProduct(nn.Module):
    """`[I]` -> `[O]`: `w @ x`."""

    def __init__(self, in_features: int = 512, out_features: int = 384):
        super().__init__()
        self.w = nn.Parameter(torch.randn(out_features, in_features) / in_features**0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.w @ x
