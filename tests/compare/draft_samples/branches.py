"""Models that branch on values, and compute with what a mask selects."""
# ruff: noqa: F841, PT018, RET504, RET505, SIM108 -- written as people write it

import torch
import torch.nn as nn
import torch.nn.functional as F


class Branching(nn.Module):
    """Each kind of branch that one function for each way can have."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("largest", torch.zeros(1))

    def forward(self, x, limit: float = 2.0):
        # a name that both ways bind
        if x.sum() > 0:
            y = self.linear(x)
        else:
            y = -x
        # one that is there before
        if y.norm() > limit:
            y = y * (limit / y.norm())
        # several statements, names for one way alone, and a buffer
        if (y > 0).any() and x.mean().item() < 5:
            # the larger half
            half = y.abs().mean()
            y = torch.where(y.abs() > half, y, half)
            self.count += 1
            z = y.sum(-1)
        elif x.max() < 0.5:
            z, y = x.sum(-1), self.norm(y)
        else:
            if 0 < x.std() < 1:
                y += 1
            z = y[:, 0]
        with torch.no_grad():
            if y.sum() > 0:
                self.count.add_(1)
            elif y.sum() < -5:
                self.count.mul_(0.5)
            else:
                self.count.sub_(0.25)
        mask_indices = x[:, 0].topk(2)[1]
        z = z + x[mask_indices].mean()
        if self.largest < y.max():
            self.largest.copy_(y.max().detach())
        scale = 2.0 if z.sum() > 0 else 0.5
        y = y * scale + (self.linear(y) if z.max() > 0.3 else y)
        for _ in range(3):
            if y.abs().max() < 4:
                y = y * 1.5
                y[:, 0] = 1.0
        return self.bounded(y) + z[:, None] + early(x)

    def bounded(self, y):
        total = y.sum()
        if total > 100:
            return y / total
        y = y + 1

        if total < -100:
            # far below
            return y * 0
        y = self.linear(y) * self.count
        return y


def early(x):
    if not torch.isfinite(x).all():
        return torch.zeros_like(x)
    elif x.abs().sum() > 50:
        return x / 50
    return x.tanh()


class Asserting(nn.Module):
    """What is raised for, of values."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.limit = 5.0

    def forward(self, x):
        torch._assert(not torch.isnan(x).any(), "not {a number}")
        assert x.abs().max() < 1e9 and -1e9 < x.min() < 1e9
        assert x.mean().item() <= self.limit, f"{x.mean().item():.2f} is above {self.limit}"
        if (x.abs() > 1e9).any() or x.sum() == 1234.5:
            raise ValueError("too large")
        return self.linear(x)


class Looping(nn.Module):
    """Loops that values end."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("turns", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        steps = 0
        # until it is small
        while x.abs().max() > 1e-2:
            x = x * 0.5  # by halves
            steps += 1
        total = torch.zeros_like(x)
        while True:
            x = torch.tanh(self.linear(x)) + 0.1
            self.turns += 1
            if total.sum() > 5:
                break
            total = total + x.abs()
            if x.mean() > 0:
                total = total + 0.1
        y = total
        for i in range(10):
            y = y / 1.5
            change = (y - x).abs().max()
            if change < 0.3 or i > 7:
                break
        for _ in range(4):
            if y.sum() < 1:
                break
            y = y - 0.2 * y
        return y + steps


class Placing(nn.Module):
    """Places where a mask holds, what it parts, conditions with names, and prints."""

    def __init__(self):
        super().__init__()
        self.fill = nn.Parameter(torch.tensor(0.5))
        self.order = nn.Linear(12, 3)

    def forward(self, x):
        rows, columns = (x > 1).nonzero().unbind(1)
        y = x.clone()
        y[rows, columns] = self.fill
        y[rows, columns] += x[rows, columns] * 2
        low = torch.where(x < -0.5)
        y[low] = 0.25
        first = x[:, 0]
        at = (first > 0).nonzero().squeeze(1)
        y[at] *= 3
        flat = y.flatten()
        ordered = torch.cat([flat[flat > 0.1], flat[flat <= 0.1]])
        is_even = not (y > 2).any() and y.sum() > 0
        if is_even:
            print("sum", float(y.sum()), f"of {y.mean():.2f}, {x.shape}")
            y = y + 1
        steps, total = 0, torch.zeros(())
        while True:
            steps += 1
            score = torch.sigmoid(total + y.mean() + float(steps == 2))
            halts = bool(total + score >= 2)
            if halts or steps == 6:
                break
            total = total + score
        return self.order(ordered), y, steps + total, not halts


class Left(nn.Module):
    """Branches that are left to do: what is changed is no array, or only one way gives it."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.seen = {}

    def forward(self, x):
        kept = []
        if x.sum() > 0:
            kept.append(x)
        if x.sum() > 1:
            self.seen["x"] = x
        for i in range(3):
            if x.sum() > i:
                break
            kept.append(self.linear(x))
        first = None
        if x.min() > 0:
            first = x
        return x


class Masked(nn.Module):
    """Reductions and losses of what a mask selects."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 6)

    def forward(self, x, target, labels):
        y = self.linear(x)
        mask = target[..., 0] > 0
        values = y[..., :4]
        loss = F.mse_loss(values[mask], target[mask]) + F.smooth_l1_loss(values[mask], target[mask], beta=0.5)
        loss = loss + F.cross_entropy(y[mask], labels[mask], label_smoothing=0.1, ignore_index=2)
        loss = loss + (values[mask] - target[mask]).abs().mean() + y[y > 0].sum() / y[y > 0].numel()
        loss = loss + torch.log(values[mask].abs() + 0.1).mean() + (1 / values[values.abs() > 0.1]).std()
        loss = loss + y[mask].max() - torch.sum(y[mask] ** 2) / max(1, 1) + y[mask].numel() + len(y[mask])
        predicted = values - 0.1
        predicted = predicted[mask]
        truth = target[mask]
        if predicted.numel() > 0:
            loss = loss + F.l1_loss(predicted, truth) + torch.sqrt((predicted - truth).abs() + 1e-3).sum() * 0.1
        scores = y[labels >= 3]
        loss = loss + F.cross_entropy(scores, labels[labels >= 3]) / len(scores)
        centre = (values[mask] - 1).mean(0) + torch.sum(target[mask], dim=0) * 0.1
        loss = loss + centre.square().sum()
        if y[mask].shape[0] > 3:
            loss = loss * 2
        if target[mask].size(0) == 0:
            return y.sum()
        return loss
