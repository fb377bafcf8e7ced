"""What is written in place through a second name: an alias, a view, an element, a loop's variable."""

import torch
from torch import nn


class Views(nn.Module):
    """Of local tensors, and what is written back to them."""

    def forward(self, x):
        y = x * 2
        first = y[:, :2]
        first *= 2.0
        for i in range(y.shape[0]):
            row = y[i]
            row -= row.mean()
        z = y
        z += 1
        last = z[:, -1]
        last.mul_(0.5)
        state = {"h": x * 2, "c": x + 1}
        h = state["h"]
        h.add_(1.0)
        rows = [x[i] * 1.0 for i in range(x.shape[0])]
        for r in rows:
            r.clamp_(min=0)
        for i, r in enumerate(rows):
            r += i
        kept = torch.stack(rows)
        y[:, 1:][y[:, 1:] > 2] = 0.0
        y[1:][0, 2] = 3.0
        y[:, 2:] += 1
        return y, state["h"] + state["c"], kept


class Parts(nn.Module):
    """Of tensors that no gradient is asked of, as PyTorch has it."""

    def forward(self, x):
        with torch.no_grad():
            y = x * 2
            a, b = y.chunk(2, dim=1)
            a.mul_(3.0).add_(b)
            top, rest = y[:1], y[1:]
            rest.sub_(top)
            for row in y:
                row.mul_(0.5)
            c, _, d = y.split(2, 1)
            d.add_(c)
        return x * y


class Averages(nn.Module):
    """Buffers through the variable of a loop, an alias, and a view."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.register_buffer("weight", torch.zeros(4, 4))
        self.register_buffer("bias", torch.zeros(4))
        self.register_buffer("means", torch.zeros(2, 4))
        self.register_buffer("count", torch.zeros(4))

    @torch.no_grad()
    def count_of(self, x):
        count = self.count
        count.add_(x.sum(0))
        count[0] = 1.0

    def forward(self, x):
        y = self.a(x)
        if self.training:
            with torch.no_grad():
                for buf, p in ((self.weight, self.a.weight), (self.bias, self.a.bias)):
                    buf.mul_(0.9).add_(p, alpha=0.1)
                for buf, value in zip((self.bias, self.count), (y.mean(0), y.sum(0)), strict=True):
                    buf += value
                    buf[0] = 0.5
                row = self.means[1]
                row.copy_(y.mean(0))
            self.count_of(y)
        return y + x @ self.weight.t() + self.bias + self.means.sum(0) + self.count


class Inner(nn.Module):
    """Writes into what it is given."""

    def forward(self, x):
        x.add_(1)
        return x * 2


class Unnamed(nn.Module):
    """Writes into views of what nothing else has a name for."""

    def __init__(self):
        super().__init__()
        self.score = nn.Linear(6, 1)
        self.mix = nn.Linear(6, 6)

    def forward(self, x):
        scores = self.score(x)
        scores = scores.squeeze(1).unsqueeze(0)
        scores.masked_fill_(scores > 0.5, -1.0)
        h = self.mix(x).t()
        h *= scores
        h.mul_(2)
        kept = self.mix(x)
        turned = kept.t()
        turned += 1
        return scores, h, kept


class Lost(nn.Module):
    """What has to be written back by hand."""

    def __init__(self):
        super().__init__()
        self.online = nn.Linear(6, 6)
        self.target = nn.Linear(6, 6)
        self.register_buffer("seen", torch.tensor(False))
        self.inner = Inner()

    def scaled(self, x):
        return x[:, :3]

    def forward(self, x):
        if not self.seen:
            self.seen.fill_(True)
        with torch.no_grad():
            for p, t in zip(self.online.parameters(), self.target.parameters(), strict=True):
                t.data.mul_(0.9).add_(p.data, alpha=0.1)
        y = self.inner(x)
        y = self.online(x) * y
        for part in (y[:, :1], y[:, 3:]):
            part.fill_(1.0)
        parts = list(y.chunk(3, dim=1))
        torch.sin(parts[1], out=parts[1])
        y.T[0].neg_()
        half = self.scaled(y)
        half.mul_(2)
        z = y.add_(1)
        flag = x.sum() > 0
        w = z if flag else -z
        return y, z, w


class Endless(nn.Module):
    def forward(self, x):
        while x.abs().max() >= 0:
            x = x * 0.5
        return x
