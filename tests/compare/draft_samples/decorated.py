"""Functions under decorators, and methods that code calls without their names."""

from functools import cached_property, lru_cache

import torch
from torch import nn
from torch.nn import functional as F


@torch.jit.script
def gated(a, b, n: int):
    both = a + b
    return torch.tanh(both[:, :n]) * torch.sigmoid(both[:, n:])


@lru_cache(maxsize=8)
def places(height, width):
    return torch.stack(torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")).float()


class Stack(nn.Module):
    def __init__(self, count, width):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(count))

    def __len__(self):
        return len(self.layers)

    def __getitem__(self, i):
        return self.layers[i]

    def __iter__(self):
        return iter(self.layers)

    def forward(self, x):
        for i in range(len(self)):
            x = F.relu(self[i](x))
        return x


class Wrapped(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.module, name)

    def forward(self, x):
        return self.module(x)


class Decorated(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.width = width
        self.mix = nn.Linear(width, 2 * width)
        self.stack = Wrapped(Stack(2, width))

    @cached_property
    def scale(self):
        return self.width**-0.5

    def forward(self, x):
        h = self.mix(x)
        h = self.stack(gated(h, h * 0.5, self.width)) * self.scale
        for layer in self.stack.module:
            h = layer(h) + len(self.stack.layers)
        return h[:, None] * places(self.width, self.width).sum(0)
