"""A hand-written LSTM over time, and PyTorch's fused one under the same names.

Source: Hochreiter and Schmidhuber 1997, "Long Short-Term Memory"; gate order and names as in `torch.nn.LSTM`.
"""

import torch
from torch import Tensor, nn


class HandwrittenLSTM(nn.Module):
    """`x [T, B, I]` -> `(y [T, B, H], h [B, H], c [B, H])`: one layer, from a zero state, a Python loop over time."""

    def __init__(self, in_features: int = 512, hidden: int = 512):
        super().__init__()
        self.hidden = hidden
        bound = hidden**-0.5
        self.weight_ih_l0 = nn.Parameter(torch.empty(4 * hidden, in_features).uniform_(-bound, bound))
        self.weight_hh_l0 = nn.Parameter(torch.empty(4 * hidden, hidden).uniform_(-bound, bound))
        self.bias_ih_l0 = nn.Parameter(torch.empty(4 * hidden).uniform_(-bound, bound))
        self.bias_hh_l0 = nn.Parameter(torch.empty(4 * hidden).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = torch.zeros(x.size(1), self.hidden, dtype=x.dtype, device=x.device)
        c = torch.zeros_like(h)
        outputs = []
        for t in range(x.size(0)):
            gates = x[t] @ self.weight_ih_l0.t() + self.bias_ih_l0 + h @ self.weight_hh_l0.t() + self.bias_hh_l0
            i, f, g, o = gates.chunk(4, dim=1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        return torch.stack(outputs), h, c


class FusedLSTM(nn.LSTM):
    """The same by `torch.nn.LSTM`: oneDNN's or cuDNN's kernel for all of time."""

    def __init__(self, in_features: int = 512, hidden: int = 512):
        super().__init__(in_features, hidden)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[override]
        y, (h, c) = super().forward(x)
        return y, h[0], c[0]
