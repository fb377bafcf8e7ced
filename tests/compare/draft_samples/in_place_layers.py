"""Layers that write into what they are given, which is read again: heads of residual blocks and of skips."""

import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self, c, hidden):
        super().__init__()
        self._block = nn.Sequential(
            nn.ReLU(True),
            nn.Conv2d(c, hidden, 3, 1, 1, bias=False),
            nn.ReLU(True),
            nn.Conv2d(hidden, c, 1, 1, bias=False),
        )

    def forward(self, x):
        return x + self._block(x)


class Down(nn.Module):
    def __init__(self, c, inner=None, outermost=False):
        super().__init__()
        self.outermost = outermost
        mid = [inner] if inner is not None else []
        if outermost:
            m = [nn.Conv2d(c, c, 3, padding=1), *mid, nn.ReLU(True), nn.Conv2d(2 * c, c, 3, padding=1)]
        else:
            m = [
                nn.LeakyReLU(0.2, True),
                nn.Conv2d(c, c, 3, padding=1),
                *mid,
                nn.ReLU(True),
                nn.Conv2d(c * (2 if mid else 1), c, 3, padding=1),
            ]
        self.model = nn.Sequential(*m)

    def forward(self, x):
        if self.outermost:
            return self.model(x)
        return torch.cat([x, self.model(x)], 1)


class Pre(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.act = nn.LeakyReLU(0.1, inplace=True)
        self.conv = nn.Conv2d(c, c, 3, padding=1)
        self.conv2 = nn.Conv2d(c, c, 3, padding=1)
        self.skip = None

    def forward(self, x):
        residual = x
        out = self.act(x)
        out = self.conv(out)
        out = self.act(out)
        out = self.conv2(out)
        out += residual
        return out


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(3, 4, 3, padding=1)
        self.res = Residual(4, 5)
        self.down = Down(4, Down(4, Down(4)), outermost=True)
        self.pre = Pre(4)

    def forward(self, x):
        h = self.res(self.c1(x))
        h = self.down(h * 1.0)
        return self.pre(h * 1.0)
