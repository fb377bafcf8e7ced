"""What is computed or written where no gradient is recorded."""

import torch
from torch import nn


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 4)
        self.register_buffer("lo", torch.zeros(()))
        self.register_buffer("hi", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("bank", torch.zeros(4, 4))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.register_buffer("table", torch.zeros(4, 4))
        self.extra = torch.zeros(4)

    @torch.no_grad()
    def store(self, keys):
        self.bank[0] = keys.mean(0)
        self.bank[1:3] += keys.sum()
        self.steps += 1

    def keep(self, x):
        self.table.copy_(x.t() @ x)
        self.mean[0] = 3.0

    def forward(self, x):
        h = self.l(x)
        with torch.no_grad():
            lo, hi = h.min(), h.max()
            self.lo.copy_(lo)
            self.hi += 0.1 * (h.max() - self.hi)
            self.mean.mul_(0.9).add_(h.mean(0), alpha=0.1)
            self.extra = h.sum(0)
            self.steps += 1
            seen = []
            seen.append(h.abs().mean())
            both = [h * 2, h + 1]
            self.keep(h)
        self.store(h)
        g = h * 1.0
        with torch.no_grad():
            g.clamp_(-0.5, 0.5)
            g[:, 0] = 2 * h[:, 1]
        g.data[1] = h[0]
        g.data[:, 1] *= 2.0
        self.bank.data[3] = h.sum(0)
        y = (h - lo) / (hi - lo) + self.lo + self.hi + self.mean + self.extra + seen[0] + both[0] + both[1]
        return y @ self.bank + g @ self.table
