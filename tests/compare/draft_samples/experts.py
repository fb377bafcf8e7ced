"""Loops over experts, each of which takes the rows that chose it."""

import torch
from torch import nn


class Experts(nn.Module):
    """The experts that were hit, by one weight of all; then those in a list, one after another."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(6, 4)
        self.up = nn.Parameter(torch.randn(4, 6, 6))
        self.listed = nn.ModuleList([nn.Linear(6, 6) for _ in range(4)])

    def forward(self, x):
        odds, chosen = self.gate(x).softmax(-1).topk(2)
        total = torch.zeros_like(x)
        with torch.no_grad():
            mask = nn.functional.one_hot(chosen, 4).permute(2, 1, 0)
            hit = torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero()
        for index in hit:
            index = index[0]
            if index == 4:
                continue
            rank, rows = torch.where(mask[index])
            made = torch.relu(x[rows] @ self.up[index])
            total.index_add_(0, rows, made * odds[rows, rank, None])
        for i, expert in enumerate(self.listed):
            rows, rank = (chosen == i).nonzero(as_tuple=True)
            if rows.numel() == 0:
                continue
            total[rows] += expert(x[rows]) * odds[rows, rank].unsqueeze(-1)
        return total


class Counted(nn.Module):
    """What is made of rows goes elsewhere, too, or asks how many there are."""

    def forward(self, x, chosen):
        means, last = [], x
        for i in range(3):
            rows, _ = torch.where(chosen == i)
            means.append(x[rows].sum())
            last = last.index_add(0, rows, x[rows] * rows.float()[:, None])
        for i in range(3):
            (rows,) = torch.where(chosen[:, 0] == i)
            last[rows] += 1
            taken = x[rows]
        return last, taken, means
