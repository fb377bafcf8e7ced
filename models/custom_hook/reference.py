"""A function with a backward of its own, which no derivative rule could guess."""

import torch
from torch import Tensor, nn


class Hook(torch.autograd.Function):
    """Forward `2 x + 10`; backward `gradient * (1 + x)`, which is not the derivative on purpose (that is `2`).

    A backward that is not the derivative tells whether the function was kept whole or looked into.
    """

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return 2 * x + 10

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradient * (1 + x)


class CustomHook(nn.Module):
    """`[N]` -> `[N]`: relu, then `Hook`."""

    def forward(self, x: Tensor) -> Tensor:
        return Hook.apply(x.relu())
