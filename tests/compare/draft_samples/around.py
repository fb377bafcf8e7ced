"""What stands around the modules of a file: helper classes, containers of modules, builders, lambdas."""

import copy
from collections import namedtuple
from functools import partial, wraps
from math import pi
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional as F

Settings = namedtuple("Settings", ["width", "act"])
logabs = lambda x: torch.log(torch.abs(x) + 1)  # noqa: E731
halved = lambda x: (  # noqa: E731
    x.mul(0.5)
)
FREQUENCIES = torch.linspace(0.0, 2.0, steps=3)
SCALES = torch.ones(4)
SCALES[1:] = 2


def told_once(function):
    told = False

    @wraps(function)
    def inner(x):
        nonlocal told
        told = told or function(x) is None
        return told

    return inner


tell = told_once(print)


class Encoding:
    """Sines and cosines, of no module."""

    def __init__(self, **settings):
        self.settings = settings
        self.functions = [lambda x: x]
        for frequency in (1.0, 2.0):
            for each in self.settings["functions"]:
                self.functions.append(lambda x, each=each, frequency=frequency: each(x * frequency))

    def __call__(self, x):
        return torch.cat([each(x) * FREQUENCIES.sum() for each in self.functions], -1)


class Sizes:
    """Of which nothing is PyTorch's."""

    def __init__(self, width):
        self.width = width


class Shifted(nn.Module):
    def forward(self, x):
        return logabs(x) * 2 + halved(x)


ACTIVATIONS = {"relu": nn.ReLU(), "shifted": Shifted(), "gated": [nn.GELU(), Shifted()]}
NORM = partial(nn.LayerNorm, eps=1e-3)


def get_encoding():
    encoding = Encoding(functions=[torch.sin, torch.cos])
    return lambda x, encoding=encoding: encoding(x)


class Encoded(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = get_encoding()
        self.layer = nn.Linear(20, Sizes(6).width)
        self.norm = NORM(6)
        self.act = ACTIVATIONS["shifted"]

    def forward(self, x):
        return ACTIVATIONS["gated"][0](self.act(self.norm(self.layer(self.encode(x)))))


class Kept(nn.Module):
    """What a file keeps and changes, and code that cannot be read."""

    def forward(self, x):
        if tell("kept"):
            return x
        return x * SCALES


class Same(nn.Conv2d):
    """Never made where a size is given."""

    def forward(self, x):
        pad = self.weight.shape[-1] // 2
        return F.conv2d(F.pad(x, [pad] * 4), self.weight, self.bias)


class Fixed(nn.Conv2d):
    def __init__(self, before, after, kernel_size, size, **settings):
        super().__init__(before, after, kernel_size, **settings)
        height, width = self.weight.size()[-2:]
        self.pad = nn.ZeroPad2d((width // 2, width // 2, height // 2, height // 2)) if size else nn.Identity()

    def forward(self, x):
        return super().forward(self.pad(x))


def conv_of(size):
    return Same if size is None else partial(Fixed, size=size)


class Named(nn.Module):
    def __init__(self, settings, classes):
        super().__init__()
        self.conv = conv_of(8)(3, settings.width, (3, 5))
        self.tail = self.tail_of(settings.width, classes)
        self.act = ACTIVATIONS[settings.act]

    def forward(self, x):
        return self.act(self.tail(self.conv(x).mean((2, 3))))

    @staticmethod
    def tail_of(width, classes):
        return nn.Linear(width, classes)

    @classmethod
    def unused(cls):
        return cls(None, None)

    @classmethod
    def from_name(cls, name, **changes):
        settings = Settings(width={"small": 4}[name], act="relu")
        return cls.from_settings(settings, **changes)

    @classmethod
    def from_settings(cls, settings, classes=2):
        return cls(settings, classes)


def small():
    return Named.from_name("small", classes=5)


class Noises(nn.Module):
    """Buffers in a container, and by names that are put together."""

    def __init__(self):
        super().__init__()
        self.noises = nn.Module()
        self.noises.register_buffer("first", torch.ones(4), persistent=False)
        for i in range(2):
            self.noises.register_buffer(f"noise_{i}", torch.randn(4))
            self.register_buffer(f"own_{i}", torch.randn(4))
            self.add_module(f"layer_{i}", nn.Linear(4, 4))
        self.noises.scale = nn.Parameter(torch.ones(4))

    def forward(self, x):
        for i in range(2):
            x = getattr(self, f"layer_{i}")(x) + getattr(self.noises, f"noise_{i}").view(1, 4)
            x = x * getattr(self, f"own_{i}").view(1, 4)
        return x * self.noises.first.view(1, 4) + self.noises.scale.view(1, 4)


class Outlay(nn.Module):
    def forward(self, x: torch.Tensor, names: Any = None, kind: Literal[1, 2] = 1) -> torch.Tensor:
        # a comment that stays
        y = F.softplus(x * pi) + F.softplus(x * 2) + torch.sigmoid(torch.tanh(x * 3)) + torch.sigmoid(x * kind)
        return y * y.sum().item() if names is not None else y


class Registry:
    def __init__(self, name):
        self.name = name
        self.known = {}

    def register(self, name=None):
        def keep(kind):
            if kind.__name__ in self.known:
                raise KeyError(f"{kind.__name__} is registered already")
            self.known[name or kind.__name__] = kind
            return kind

        return keep

    def build(self, settings):
        settings = dict(settings)
        return self.known[settings.pop("type")](**settings)


LAYERS = Registry("layers")


@LAYERS.register()
class Widened(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(4, width)

    def forward(self, x):
        return self.layer(x)


@LAYERS.register("unused")
class NeverMade(nn.Module):
    pass


class Registered(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = LAYERS.build({"type": "Widened", "width": 5})

    def forward(self, x):
        return self.first(x)


def fill(layer):
    """Sets what is loaded anyhow."""
    nn.init.kaiming_uniform_(layer.weight, a=1)
    if layer.bias is not None:
        nn.init.constant_(layer.bias, 0)


def clones(layer, count):
    return nn.ModuleList([copy.deepcopy(layer) for _ in range(count)])


class Filled(nn.Module):
    def __init__(self):
        super(Filled, self).__init__()  # noqa: UP008
        self.layers = clones(nn.Linear(4, 4), 2)
        for layer in self.layers:
            fill(layer)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
