"""Expressions of eager code, each in a form that asks for more than a row of a table."""

import torch
from torch import nn


def pieces_of(x, sizes):
    return x.split(sizes, dim=1)


def sampled(x, count):
    u = torch.linspace(0.1, 0.9, steps=count)
    return x.sum(-1, keepdim=True) * u.expand(list(x.shape[:-1]) + [count])  # noqa: RUF005


class Sizes(nn.Module):
    """Splits and expands by what is no literal."""

    def __init__(self, width=3):
        super().__init__()
        self.width = width
        self.parts = [1, 3, 2]
        self.scale = nn.Parameter(torch.randn(1, 6))
        self.gates = nn.Linear(6, 4 * width)

    def forward(self, x):
        batch, width = x.shape
        first, second = x.split([2 * n for n in (1, 2)], dim=1)
        third = sum(piece.sum() for piece in torch.split(x, self.parts, dim=1))
        sizes = []
        for n in range(1, 4):
            sizes.append(n)
        fourth = sum(piece.mean() for piece in x.split(sizes, 1))
        i, f, g, o = torch.split(self.gates(x), self.width, dim=1)
        fifth = sum(piece.sum() for piece in pieces_of(x, 4)) + sum(piece.prod() for piece in pieces_of(x, (1, 5)))
        sixth = sum(piece.prod() for piece in x.split(4, dim=1))
        shape = [batch, x.shape[1]]
        wide = self.scale.expand(shape) + self.scale.expand(x.shape) + self.scale.expand(batch, -1)
        like = (x + 1)[:, None].expand(-1, 2, -1).sum(1) + x[:1].expand(size=x.size())
        rows = x[0].expand(*x.shape[:1], width) + x[0].expand(*[-1, 6][1:])
        return sampled(x, 6) + wide + like + rows + third + fourth + fifth + sixth + (
            i + f * g - o
        ).sum(), first @ second.T[:2]


class Masks(nn.Module):
    """Writes under a mask, which is named or written where it is."""

    def forward(self, x, y):
        batch, width = x.shape
        nearest = torch.full_like(x, 1e10)
        mask = y < nearest
        nearest[mask] = (y[mask].double() * 2 + 1).to(x.dtype)
        order = torch.arange(width).view(1, width).repeat([batch, 1])
        order[y > 0.5] = width
        order = order.sort(dim=-1)[0][:, :4]
        first = order[:, 0].view(batch, 1).repeat([1, 4])
        far = order == width
        order[far] = first[far]
        nearest[x > 1] += y[x > 1] * x[x > 1]
        nearest[x.abs() < 0.1] = torch.clamp(x[x.abs() < 0.1], min=0.05)
        return nearest, order
