"""Functions that write into what they are given."""

import torch
from torch import nn


def averaged_(average, new, decay):
    average.data.mul_(decay).add_(new, alpha=1 - decay)


def counted_(counts, ids):
    if counts is None:
        return
    averaged_(counts, ids.float().sum(0), decay=0.5)


@torch.no_grad()
def both_(first, second, x):
    first.add_(x.sum(0))
    second[:] = x.mean()


class Store(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.zeros(4))

    def put(self, target, x) -> None:
        target.copy_(x)

    @staticmethod
    def halve(target):
        target *= 0.5

    def forward(self, x):
        self.put(self.kept, x.detach().sum(0))
        return x + self.kept


class Averages(nn.Module):
    """Buffers that helpers write into, and a local that is passed on."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.store = Store()
        self.register_buffer("size", torch.ones(4))
        self.register_buffer("first", torch.zeros(4))
        self.register_buffer("second", torch.zeros(1))

    def scale(self, target, by: float) -> None:
        target.mul_(by)

    def forward(self, x):
        def shift(target):
            target.add_(1)

        y = self.layer(x)
        averaged_(self.size, x.sum(0), 0.9)
        counted_(self.size, x > 0)
        both_(self.first, self.second, y)
        self.scale(y, 2.0)
        self.store.put(y, x * 3)
        shift(y)
        Store.halve(y)
        return self.store(y) + self.size + self.first + self.second


def popped_(rows):
    rows.mul_(2)
    return rows.sum()


def flat_(rows):
    rows.view(-1).fill_(1)


class Marked(nn.Module):
    """Functions that give something else than what they write into."""

    def __init__(self):
        super().__init__()
        self.register_buffer("size", torch.ones(4))

    def forward(self, x):
        y = x * 2
        total = popped_(self.size)
        total = total + popped_(y)
        last = popped_(x)
        flat_(y)
        return y + total + last
