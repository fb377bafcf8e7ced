"""A recurrent network that prints statistics of its state as it runs."""

import torch
from torch import Tensor, nn


class StatsRNN(nn.Module):
    """`x [T, B, I]` -> `(y [T, B, O], h [B, H])`, printing mean and variance of `h` every tenth step.

    h = tanh(x[t] @ w_h + h @ u_h + b_h)
    y[t] = tanh(h @ w_y + b_y)
    """

    def __init__(self, in_features: int = 12, hidden: int = 24, out_features: int = 10):
        super().__init__()
        self.w_h = nn.Parameter(torch.randn(in_features, hidden) / in_features**0.5)
        self.u_h = nn.Parameter(torch.randn(hidden, hidden) / hidden**0.5)
        self.b_h = nn.Parameter(torch.randn(hidden) * 0.1)
        self.w_y = nn.Parameter(torch.randn(hidden, out_features) / hidden**0.5)
        self.b_y = nn.Parameter(torch.randn(out_features) * 0.1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.zeros(x.size(1), self.u_h.size(0), dtype=x.dtype, device=x.device)
        outputs = []
        for t in range(x.size(0)):
            h = torch.tanh(x[t] @ self.w_h + h @ self.u_h + self.b_h)
            if (t + 1) % 10 == 0:
                print("step", t + 1, "mean", float(h.mean()), "variance", float(h.var()))
            outputs.append(torch.tanh(h @ self.w_y + self.b_y))
        return torch.stack(outputs), h
