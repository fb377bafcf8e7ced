"""Adaptive computation time in eager PyTorch: each example by itself, in a loop that it ends itself.

Source: Graves 2016, "Adaptive Computation Time for Recurrent Neural Networks", https://arxiv.org/abs/1603.08983.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn


class Pondered(NamedTuple):
    """Outputs, the last state, and how long each step of each example took; shapes as in the port."""

    outputs: Tensor
    state: Tensor
    steps: Tensor
    ponder: Tensor
    cut_short: Tensor


class AdaptiveComputation(nn.Module):
    """`x [T, B, I]` and `urgency [T, B]` -> `Pondered`; see the port."""

    def __init__(
        self,
        in_features: int = 7,
        hidden: int = 12,
        out_features: int = 5,
        max_steps: int = 6,
        epsilon: float = 0.01,
    ):
        super().__init__()
        self.max_steps, self.epsilon = max_steps, epsilon
        self.cell = nn.GRUCell(in_features + 1, hidden)
        self.halting = nn.Linear(hidden, 1)
        self.output = nn.Linear(hidden, out_features)

    def forward(self, x: Tensor, urgency: Tensor) -> Pondered:
        time, batch = x.shape[:2]
        states = [x.new_zeros(self.cell.hidden_size) for _ in range(batch)]
        rows = []
        for t in range(time):
            found = [self.ponder(x[t, b], urgency[t, b], states[b]) for b in range(batch)]
            states = [state for _, state, *_ in found]
            rows.append(found)
        return Pondered(
            outputs=torch.stack([torch.stack([one[0] for one in row]) for row in rows]),
            state=torch.stack(states),
            steps=torch.tensor([[one[2] for one in row] for row in rows], device=x.device),
            ponder=torch.stack([torch.stack([one[3] for one in row]) for row in rows]),
            cut_short=torch.tensor([[one[4] for one in row] for row in rows], device=x.device),
        )

    def ponder(self, x: Tensor, urgency: Tensor, state: Tensor) -> tuple[Tensor, Tensor, int, Tensor, bool]:
        """One step of time of one example."""
        total = torch.zeros_like(urgency)
        output, mean, steps = x.new_zeros(()), x.new_zeros(()), 0
        while True:
            state = self.cell(torch.cat([x, x.new_full((1,), float(steps == 0))]), state)
            score = torch.sigmoid(self.halting(state)[0] + urgency)
            steps += 1
            halts = bool(total + score >= 1 - self.epsilon)
            if halts or steps == self.max_steps:
                break
            total = total + score
            output, mean = output + score * self.output(state), mean + score * state
        remainder = 1 - total
        output, mean = output + remainder * self.output(state), mean + remainder * state
        return output, mean, steps, steps + remainder, not halts
