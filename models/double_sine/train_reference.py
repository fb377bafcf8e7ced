"""Moves a point until its double sine is one everywhere, in PyTorch. The twin in graph mode is `train.py`.

python -m graphmode.models.double_sine.train_reference [eager|compile|cudagraph]
"""

import sys

import torch
from graphmode.compare.training.torch_steps import Kind, TorchStep, as_kind, as_kind_name
from torch import Tensor, nn

from .reference import DoubleSine

LENGTH, STEPS = 4096, 200


class Point(nn.Module):
    """A point that is learned: `() -> [N]`, its double sine."""

    def __init__(self, start: Tensor):
        super().__init__()
        self.x = nn.Parameter(start)
        self.double_sine = DoubleSine()

    def forward(self) -> Tensor:
        return self.double_sine(self.x)


def make_step(model: nn.Module, kind: Kind = "eager") -> TorchStep:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    def step(ones: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = ((model() - ones) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return as_kind(step, kind, model, optimizer)


def main(kind: Kind = "eager") -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    start = torch.empty(LENGTH).uniform_(-0.7, 0.7, generator=torch.Generator().manual_seed(0))
    step = make_step(Point(start).to(device), kind)
    ones = torch.ones(LENGTH, device=device)
    for number in range(STEPS):
        loss = step(ones)
        if (number + 1) % 50 == 0:
            print(f"step {number + 1}: loss {loss:.3g}")


if __name__ == "__main__":
    main(as_kind_name(*sys.argv[1:]))
