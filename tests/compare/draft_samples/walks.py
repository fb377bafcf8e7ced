"""Loops over modules: some set initial values, others how the modules compute."""

import math

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.conv = nn.Conv2d(3, outputs, 3)
        self.norm = nn.BatchNorm2d(outputs)
        self.act = nn.LeakyReLU(0.1)
        self.outputs = outputs
        for m in self.modules():
            if isinstance(m, nn.LeakyReLU):
                m.negative_slope = 0.3
        self._init_weight()

    def forward(self, x):
        return self.act(self.norm(self.conv(x)))

    def _init_weight(self):
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                n = m.kernel_size[0] * m.kernel_size[1] * m.out_channels
                m.weight.data.normal_(0, math.sqrt(2.0 / n))
            elif isinstance(m, nn.BatchNorm2d):
                m.weight.data.fill_(1)


class Walked(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.last = nn.ModuleList([Block(4), Block(6)]), nn.Tanh()
        self._initialize_biases()
        self.init_weights()
        for m in self.modules():
            t = type(m)
            if t is nn.BatchNorm2d:
                m.eps = 1e-1
                m.momentum = 0.03
            elif t in [nn.Hardswish, nn.LeakyReLU]:
                m.inplace = True

    def init_weights(self):
        for name, m in self.named_modules():
            if isinstance(m, nn.Conv2d):
                nn.init.zeros_(m.bias)
            if name.endswith("1.norm"):
                m.eps = 2.0
        for m in self.modules():
            for p in m.parameters():
                p.is_slow = True
        for m in self.blocks:
            m.act.inplace = True

    def _initialize_biases(self, cf=None):
        """Sets what is loaded anyhow."""
        for block, s in zip(self.blocks, (1, 2)):  # noqa: B905
            b = block.conv.bias.view(block.outputs, -1)
            b.data[:, 0] += math.log(8 / (640 / s) ** 2)
            block.conv.bias = torch.nn.Parameter(b.view(-1), requires_grad=True)

    def forward(self, x):
        return [self.last(block(x)) for block in self.blocks]


class Paired(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Walked(), nn.Tanh()

    def forward(self, x):
        return [self.second(y) for y in self.first(x)]


class SynchronizedNorm(nn.BatchNorm2d):
    pass


class OwnNorm(nn.BatchNorm2d):
    def __init__(self, width):
        super().__init__(width, eps=0.1)


class Given(nn.Module):
    """Builds what it is given as classes."""

    def __init__(self, norms=(nn.BatchNorm2d, OwnNorm), synchronized=True):
        super().__init__()
        norm = SynchronizedNorm if synchronized else nn.BatchNorm2d
        self.norms = nn.Sequential(norm(3), *(each(3) for each in norms), self.made(SynchronizedNorm))

    def made(self, norm):
        return norm(3)

    def forward(self, x):
        return self.norms(x)


def thresholds(module):
    if isinstance(module, nn.BatchNorm1d):
        module.eps = 1e-1


class Applied(nn.Module):
    """Of what is applied to all modules one part sets values alone."""

    def __init__(self):
        super().__init__()
        self.fc, self.norm = nn.Linear(3, 4), nn.BatchNorm1d(4)
        self.apply(self._init)
        self.apply(thresholds)

    def forward(self, x):
        return self.norm(self.fc(x))

    def _init(self, module):
        if isinstance(module, nn.Linear):
            module.weight.data.normal_(0, 0.02)
