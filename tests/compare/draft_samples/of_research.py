"""Lines that code of research has: counts of parameters, layers that are frozen or moved, settings, caches by name."""

from typing import NamedTuple

import numpy as np
import torch
from torch import nn


class Spec(NamedTuple):
    width: int
    norm: type = nn.BatchNorm2d


def count(model):
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


class Counted(nn.Module):
    def __init__(self, spec=None, device=None):
        super().__init__()
        spec = spec or Spec(width=4)
        self.conv = nn.Conv2d(3, spec.width, 1).to(device or "cpu").eval()
        self.norm = spec.norm(spec.width)
        self.head = nn.Linear(spec.width, 2)
        self.conv.to("cpu")
        self.conv.requires_grad_(False)
        for layer in (self.conv, self.norm):
            for p in layer.parameters():
                p.requires_grad_(True)
        self.head.float()
        self.total = sum(p.numel() for p in self.parameters())
        print(f"{count(self)} of {self.total}, {sum([np.prod(p.size()) for p in self.head.parameters()])} in the head")

    @property
    def penalty(self):
        return 0.1 * sum(2 * p.pow(2).sum() for p in self.head.parameters())

    def forward(self, x):
        h = self.head(self.norm(self.conv(x)).mean((2, 3)))
        return h / self.total, self.penalty


class Cached(nn.Module):
    """Keeps what it computed under names, in a dictionary that it is handed."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(4, 4)

    def step(self, x, cache, layer: int):
        k, v = self.mix(x).chunk(2, dim=-1)
        if f"k{layer}" in cache:
            k = torch.cat([cache[f"k{layer}"], k], dim=1)
            v = torch.cat([cache[f"v{layer}"], v], dim=1)
        cache[f"k{layer}"], cache[f"v{layer}"] = k, v
        if layer not in cache:
            cache[layer] = v.sum()
        return x + k.mean() * v.mean()

    def forward(self, x):
        cache = {}
        for part in x.split(2, dim=1):
            for layer in range(2):
                part = self.step(part, cache, layer)
        return part, cache["k1"], cache[0]


class Head(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.m = nn.ModuleList([nn.Conv2d(width, 2, 1) for _ in range(2)])

    def forward(self, x):
        for i in range(len(self.m)):
            x[i] = self.m[i](x[i])
            x[i] = x[i].flatten(2)
        return torch.cat(x, 1)


class Parsed(nn.Module):
    """Its layers by their names in a list of settings, and one that takes a list of what others gave."""

    def __init__(self, settings=(("nn.Conv2d", 3, 4, 1), ("nn.BatchNorm2d", 4), ("nn.ReLU",), ("Head", 4))):
        super().__init__()
        layers = []
        for name, *args in settings:
            kind = getattr(torch.nn, name[3:]) if "nn." in name else globals()[name]
            made = kind(*args)
            made.joins = name == "Head"
            layers.append(made)
        self.model = nn.Sequential(*layers)

    def forward(self, x):
        for m in self.model:
            if m.joins:
                x = [x, x.flip(-1)]
            x = m(x)
        return x


class Padded(nn.Module):
    """Branches on numbers that a method gives beside a tensor, and an object that is no tensor."""

    def pad(self, x, width):
        values = (0, width - x.shape[-1], 0, 0)
        return nn.functional.pad(x, values), values

    def shifted(self, x, past):
        begin = past.get_seq_length() if past is not None else 1
        return x + begin

    def mask(self, size: torch.Size, dtype: torch.dtype, device: torch.device):
        return torch.ones(size, dtype=dtype, device=device)

    def forward(self, x, past=None):
        h, values = self.pad(self.shifted(x, past), 6)
        if values[1] > 0 or values[3] > 0:
            h = h[:, :5] * self.mask(h[:, :5].shape, h.dtype, h.device)
        return h


class Keeping(nn.Module):
    """Holds a norm in evaluation, and keeps what it computed."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.maps, self.seen = {}, []

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x):
        maps = {}
        maps["x"] = x = self.norm(x)
        self.maps["x"] = x
        self.seen.append(x.mean())
        return maps["x"]
