"""Networks as a package of models has them: builders, classes of settings, and parts that are handed in."""

from dataclasses import dataclass, field
from functools import partial, wraps

import torch
import torch.utils.checkpoint as memory
from torch import nn
from torch.nn import functional as F


def _report(thing):
    torch._C._log_api_usage_once(type(thing).__name__)


def with_defaults(build):
    @wraps(build)
    def inner(*args, **kwargs):
        return build(*args, **kwargs)

    return inner


def _bounded(x, limit):
    return torch.clamp(x, -limit, limit)


def squashed(x, limit: float = 1.0):
    return _bounded(F.softsign(x), limit)


def drop_path(x, p: float, training: bool):
    if not torch.jit.is_scripting() and not torch.jit.is_tracing():
        _report(drop_path)
    if not training or p == 0.0:
        return x
    noise = x.new_ones((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(1 - p)
    return x * noise.div_(1 - p)


class Block(nn.Module):
    """Refers to `Gate`, which comes after it in the file of another name."""

    def __init__(self, channels, norm, activation, gate=None, p=0.0):
        super().__init__()
        _report(self)
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = norm(channels)
        self.activation = activation(**{"inplace": True} if activation is nn.ReLU else {"slope": 0.1})
        self.gate: nn.Module | None = None
        self.shift: nn.Parameter | None = None
        if gate is not None:
            self.gate = gate(channels)
            self.shift = nn.Parameter(torch.zeros(1))
        self.p = p

    def forward(self, x):
        if torch.jit.is_scripting():
            raise RuntimeError("never")
        if torch.compiler.is_compiling() or x.ndim != 4:
            raise ValueError(x.shape)
        torch._assert(x.shape[1] == self.conv.in_channels, "channels")
        y = memory.checkpoint(self.conv, x, use_reentrant=False)
        y = self.activation(self.norm(y))
        if self.gate is not None:
            y = self.gate(y)
        if self.shift is not None:
            y = y + self.shift
        y = F.dropout(y, self.p, self.training)
        return x + drop_path(y, self.p, self.training)


class Leaky(nn.Module):
    def __init__(self, slope):
        super().__init__()
        self.slope = slope

    def forward(self, x):
        return F.leaky_relu(x, self.slope)


class Scale(nn.Module):
    def __init__(self, channels, start=1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.full((channels, 1, 1), start))

    def forward(self, x):
        return x * self.weight


class Gated(nn.Module):
    def __init__(self, channels, scale=partial(Scale, start=0.5)):  # noqa: B008
        super().__init__()
        self.make_table()
        self.scale = scale(channels)
        self.tail = self.make_tail(channels)

    def make_table(self):
        self.table = nn.Parameter(torch.zeros(3))
        nn.init.normal_(self.table)

    def make_tail(self, channels):
        return nn.Sequential(nn.Conv2d(channels, channels, 1), nn.Sigmoid())

    def forward(self, x):
        return self.scale(x) * self.tail(x) + self.table.sum()


class Mended(Gated):
    """What an `__init__` of another class calls is another method here."""

    def make_table(self):
        table = torch.arange(4.0) + 1
        table[1:3] /= 2
        table[2:].zero_()
        self.register_buffer("table", table)


class Stem(nn.Sequential):
    @staticmethod
    def stride_of(size):
        return 2 if size > 1 else 1

    def __init__(self, channels, stride):
        super().__init__()
        self.conv = nn.Conv2d(3, channels, 3, stride=stride)
        self.relu = nn.ReLU()


@dataclass
class Stage:
    channels: int
    kinds: list = field(default_factory=list)

    def make(self, **settings):
        gates = {nn.ReLU: Mended}
        return [Block(self.channels, nn.BatchNorm2d, kind, gates.get(kind), **settings) for kind in self.kinds]


class Parts(nn.ModuleDict):
    """The first children of a network, by name."""

    def __init__(self, network, last):
        found = {}
        for name, child in network.named_children():
            found[name] = child
            if name == last:
                break
        super().__init__(found)

    def forward(self, x):
        for child in self.values():
            x = child(x)
        return x


class Network(nn.Module):
    def __init__(self, stages, classes=4, stem=Stem):
        super().__init__()
        self.stem = stem(stages[0].channels, stem.stride_of(2))
        rates = [rate.item() for rate in torch.linspace(0, 0.1, len(stages))]
        self.blocks = nn.Sequential(*[b for stage, p in zip(stages, rates) for b in stage.make(p=0 * p)])  # noqa: B905
        self.head = nn.Linear(stages[-1].channels, classes)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class Dense(nn.Module):
    def __init__(self, backbone, width, act=nn.SiLU):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Sequential()
        self.head.add_module("conv", nn.Conv2d(width, 2, 1))
        self.act = act()

    def forward(self, x):
        return self.act(self.head(self.backbone(x)))


@with_defaults
def network(pretrained=None, **settings):
    made = Network([Stage(6, [nn.ReLU]), Stage(6, [Leaky])], **settings)
    if pretrained is not None:
        made.load_state_dict(torch.load(pretrained))
    return made


def dense(width=6):
    return Dense(Parts(network(), "blocks"), width)


def opaque():
    return Dense(network(), 6, act=lambda: nn.SiLU())
