"""`sin(2 x)`, and the training loop around it: Adam moves the input until the output is one everywhere."""

import torch
from torch import Tensor, nn


class DoubleSine(nn.Module):
    """`[N]` -> `[N]`: `sin(2 x)`."""

    def forward(self, x: Tensor) -> Tensor:
        return (x * 2).sin()


class DoubleSineTraining(nn.Module):
    """`x0 [N]` -> `(x [N], losses [steps])`: Adam on the squared distance of `sin(2 x)` to ones.

    `losses[i]` is the loss before step `i`.
    """

    def __init__(self, steps: int = 20, learning_rate: float = 0.1):
        super().__init__()
        self.model = DoubleSine()
        self.steps = steps
        self.learning_rate = learning_rate

    def forward(self, x0: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            x = x0.detach().clone().requires_grad_()
            optimizer = torch.optim.Adam([x], lr=self.learning_rate)
            losses = []
            for _ in range(self.steps):
                optimizer.zero_grad()
                loss = ((self.model(x) - 1) ** 2).sum()
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
        return x.detach(), torch.stack(losses)
