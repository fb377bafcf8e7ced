"""A branch on a value: eager code asks the tensor which way to go."""

from torch import Tensor, nn


class ConditionalScale(nn.Module):
    """`[N]` -> `[N]`: twice the input where its sum is positive, the input plus two otherwise."""

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x * 2
        return x + 2
