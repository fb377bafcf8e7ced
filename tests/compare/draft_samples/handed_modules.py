"""Parameters and buffers that are read off modules, and written there, in other code than theirs."""

import torch
from torch import nn


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 4)
        self.c = nn.Conv1d(4, 4, 3, padding=1)
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x):
        return self.l(x)


class Read(nn.Module):
    """Weights read off modules that are handed on, looped over, or deep inside."""

    def __init__(self):
        super().__init__()
        self.h = Pair()
        self.k = nn.Linear(4, 4)
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.norm = nn.LayerNorm(4)

    def tie(self, other, x):
        other.count += 1
        other.count.mul_(2)
        other.count[0] = 5
        return x @ other.l.weight.t() + other.c.weight.sum((1, 2)) + other.count

    def forward(self, x):
        y = self.tie(self.h, x) + x @ self.k.weight + self.h.l.weight[0] + self.h.c.weight[1, :, 0]
        for layer in self.layers:
            y = y @ layer.weight.t() + layer.bias
        y = y @ self.layers[0].weight
        for i in range(2):
            y = y + self.layers[i].weight[:, 0]
        head = self.k
        return y + head.weight[0] + self.norm.weight
