"""Eager code as older repositories have it, which `graphmode draft` reads."""

import math
from collections import namedtuple
from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import spectral_norm, weight_norm
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

State = namedtuple("State", ["h", "c"])


def linear_schedule(steps):
    return torch.linspace(0.1, 0.9, steps)


def constant_schedule(steps):
    return torch.full((steps,), 0.5)


class Memory(nn.Module):
    """Has a method that tensors have, too."""

    def __init__(self, places, width):
        super().__init__()
        self.places, self.width = places, width
        self.register_buffer("bias", torch.Tensor(places, width).fill_(0.5))

    def size(self):
        return self.places, self.width

    def forward(self, x):
        return x @ self.bias.t()


class Reader(nn.Module):
    def __init__(self, memory, activation="gelu", weights=[0.2, 0.8]):  # noqa: B006
        super().__init__()
        self.memory = memory
        places, width = memory.size()
        self.places, self.width = self.memory.size()
        self.mix = nn.Linear(places, width)
        self.activation = getattr(F, activation)
        if isinstance(weights, list):
            self.weights = torch.Tensor(weights)

    @staticmethod
    def first(batch, like):
        return State(like.new_zeros(batch, 3), torch.FloatTensor([1.0, 2.0, 3.0]).type(like.dtype).expand(batch, -1))

    def forward(self, x):
        return self.activation(self.mix(self.memory(x))) * self.weights[0].type_as(x)


class Masked(nn.Module):
    """A mask in some of its kind alone."""

    def __init__(self, shifted):
        super().__init__()
        mask = None
        if shifted:
            mask = torch.arange(4.0)
        self.register_buffer("mask", mask)

    def forward(self, x):
        return x if self.mask is None else x * self.mask


class OldHabits(nn.Module):
    """Scatters, chains that write in place, layers by name, constructors by type, and where it is to run."""

    def __init__(self, schedule="linear", device="cpu"):
        super().__init__()
        make = constant_schedule
        if schedule == "linear":
            make = linear_schedule
        register = lambda name, value: self.register_buffer(name, value.to(torch.float32))  # noqa: E731
        register("betas", make(4))
        self.register_buffer("seen", torch.zeros(4))
        self.order = torch.LongTensor([2, 0, 3, 1])
        for i in range(2):
            self.add_module("layer_%d" % i, nn.Linear(4, 4))  # noqa: UP031
        self.reader = Reader(Memory(5, 4))
        self.masks = nn.ModuleList([Masked(False), Masked(True)])
        self.to(device)

    def forward(self, x, index):
        for i in range(2):
            x = torch.relu(self._modules["layer_%d" % i](x))  # noqa: UP031
        for mask in self.masks:
            x = mask(x)
        x = self.reader(x) + self.betas
        state = Reader.first(len(x), x)
        x = x[:, self.order.long()] + state.c.sum() + state.h.sum()
        if self.training:
            self.seen.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        sums = x.new_zeros(3, 4)
        sums.scatter_add_(0, index.unsqueeze(1).expand(-1, 4), x)
        rows = torch.zeros(3, 4, dtype=x.dtype).index_add_(0, index, x)
        onehot = torch.zeros(len(x), 3, dtype=x.dtype).scatter(1, index.unsqueeze(1), 1.0)
        picked = x.scatter(1, index.unsqueeze(1), x[:, :1])
        return torch.add(sums, rows, alpha=2), onehot, picked, x.index_copy(1, torch.tensor([1]), x[:, 2:3])


class Smoothed(nn.Conv2d):
    """A layer's own weight, changed before it is used."""

    def __init__(self):
        super().__init__(3, 4, 3, padding=1)
        self.register_buffer("count", torch.tensor(0.0))
        self.register_buffer("mean", torch.zeros(4))
        self.halves = partial(F.avg_pool2d, kernel_size=2)

    @torch.no_grad()
    def scale(self, x):
        return x.abs().amax() + 1

    def forward(self, x):
        device = x.device
        weight = self.weight - self.weight.mean(dim=(1, 2, 3), keepdim=True)
        y = F.conv2d(x, weight, self.bias, self.stride, self.padding) / self.scale(x)
        if self.training:
            self.count += 1
            self.mean.data.mul_(0.9).add_(y.mean((0, 2, 3)), alpha=0.1)
        y = self.halves(y) / (y.data.std() + 1) + self.mean[:, None, None]
        return y.unfold(3, 2, 1).sum(-1).to(y), torch.ones(2, device=device).to(y)


class Written(nn.Module):
    """Writes that a port has otherwise, or cannot see."""

    def forward(self, x):
        column = x[:, 0]
        column += 1
        rows = torch.zeros_like(x)
        rows[0], last = x[0], x[1]
        x.t()[0].fill_(3.0)
        x.t()[1] += 1
        y = last if x.mean() > 0 else -last
        return y * 2, rows, column


class Shortened(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.count = count

    def forward(self, x):
        return x[:, :, : -self.count].contiguous()


class Causal(nn.Module):
    def __init__(self, inputs, outputs, dilation):
        super().__init__()
        padding = 2 * dilation
        self.conv = weight_norm(nn.Conv1d(inputs, outputs, 3, padding=padding, dilation=dilation))
        self.net = nn.Sequential(self.conv, Shortened(padding), nn.ReLU())
        self.again = nn.utils.parametrizations.weight_norm(nn.Conv1d(outputs, outputs, 1), dim=1)
        self.side = spectral_norm(nn.Conv1d(inputs, outputs, 1)) if inputs != outputs else None
        self.init_weights()

    def init_weights(self):
        self.conv.weight.data.normal_(0, 0.01)

    def forward(self, x):
        return torch.relu(self.again(self.net(x)) + (x if self.side is None else self.side(x)))


class Normed(nn.Module):
    """Weights that are computed from others."""

    def __init__(self, named=weight_norm, spectral=True):
        super().__init__()
        self.net = nn.Sequential(Causal(3, 8, 1), Causal(8, 8, 2))
        self.head = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 2), n_power_iterations=2)
        norm = spectral_norm if spectral else weight_norm
        self.last = nn.ModuleList([norm(nn.Linear(2, 2)), named(nn.Linear(2, 2))])

    def forward(self, x):
        first, second = self.last
        return second(first(self.head(self.net(x)[:, :, -1])))


class Lengths(nn.Module):
    """Sequences of several lengths."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 8, padding_idx=0)
        self.lstm = nn.LSTM(8, 6, num_layers=2, batch_first=True, bidirectional=True)

    def forward(self, x):
        lengths = (x > 24).long().sum(1).clamp(min=1)
        packed = pack_padded_sequence(self.embedding(x), lengths.cpu(), batch_first=True, enforce_sorted=False)
        output, (h, _) = self.lstm(packed)
        output, _ = pad_packed_sequence(output, batch_first=True, total_length=x.size(1))
        return torch.tanh(output), torch.cat([h[-2], h[-1]], dim=-1)


class Decaying(nn.Module):
    def __init__(self, dim=4, layer=1, layers=3):
        super().__init__()
        with torch.no_grad():
            ratio = layer / (layers - 1)
            decay = torch.ones(dim)
            for h in range(dim):
                decay[h] = -5 + 8 * (h / (dim - 1)) ** (0.7 + 1.3 * ratio)
            self.time_decay = nn.Parameter(decay)
            zigzag = torch.tensor([(i + 1) % 3 - 1 for i in range(dim)]) * 0.5
            self.time_first = nn.Parameter(torch.ones(dim) * math.log(0.3) + zigzag)
        self.key = nn.Linear(dim, dim, bias=False)
        with torch.no_grad():
            self.key.weight.mul_(0.5)
            scale = 2.0
            self.key.weight.copy_(self.key.weight * scale)

    def forward(self, x):
        k = torch.exp(self.key(x))
        both = torch.stack([k, k * self.time_first], axis=-1)
        return both.sum(axis=-1, keepdims=True).squeeze(axis=-1) * torch.exp(self.time_decay)
