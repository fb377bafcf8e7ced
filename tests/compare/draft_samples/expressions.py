"""Expressions of eager code, each in a form that asks for more than a row of a table."""

import numpy as np
import torch
import torch.nn.functional as F
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


class PaddedConv(nn.Conv2d):
    """Pads by the sizes of its own weight, which it scales."""

    def __init__(self, inputs, outputs, kernel):
        super().__init__(inputs, outputs, kernel, stride=1)
        high, wide = self.weight.size()[-2:]
        self.register_buffer("mean", self.weight.data.mean((1, 2, 3)).fill_(0.5))
        self.area = high * wide
        self.gain = self.weight.shape[0] / self.weight.size(1)

    def forward(self, x):
        high, wide = self.weight.shape[2:]
        x = F.pad(x, (wide - 1, 0, high - 1, 0))
        y = F.conv2d(x, self.weight * self.gain, self.bias)
        return y + F.conv2d(x, weight=self.weight.tanh(), bias=self.mean * self.area)


class ScaledUp(nn.ConvTranspose2d):
    def forward(self, x):
        own = F.conv_transpose2d(x, self.weight, self.bias, stride=2)
        return own + F.conv_transpose2d(x, self.weight / self.weight.norm(), stride=2)


class Bounded(nn.Conv2d):
    """Writes into its weight, which lies otherwise in the port."""

    def __init__(self):
        super().__init__(5, 3, 2)

    def forward(self, x):
        self.weight.data = self.weight.data.clamp(-1, 1) / self.weight.size(0)
        return super().forward(x)


class Kernels(nn.Module):
    """Convolutions by weights of its own, of layers, and of what they are derived from."""

    def __init__(self):
        super().__init__()
        self.up = nn.Parameter(torch.randn(6, 2, 3, 3))
        self.along = nn.Parameter(torch.randn(4, 3, 2))
        self.scale = 6**-0.5
        self.padded = PaddedConv(6, 4, (3, 2))
        self.scaled = ScaledUp(4, 3, 2)
        self.conv = nn.Conv2d(6, 4, 3)

    def forward(self, x):
        y = F.conv_transpose2d(x, self.up * self.scale, stride=2, groups=2)
        z = F.conv_transpose1d(x[:, :4].flatten(2), weight=self.along, padding=1)
        return (
            y,
            z,
            self.scaled(self.padded(x)),
            F.conv2d(x, self.conv.weight.abs(), self.conv.bias),
        )


class Others(nn.Module):
    """Functions in place, of sparse tensors, of factors of a matrix, and those that are given names."""

    def __init__(self, sizes=4, ones=False, device=torch.device("cpu")):  # noqa: B008
        super().__init__()
        init_fn = torch.randn
        other_fn: object = torch.ones if ones else torch.zeros
        self.register_buffer("table", init_fn(sizes, sizes) + other_fn(sizes, sizes))
        self.activation = F.relu_
        self.device = device
        self.to(self.device)
        self.linear = nn.Linear(4, 4)
        self.fused = hasattr(F, "scaled_dot_product_attention") and sizes > 2
        self.newest = hasattr(torch, "what_no_version_has")

    def forward(self, x):
        assert (x is not None) == (self.linear is not None), "both or neither"
        adjacency = torch.softmax(x @ x.T, -1)
        y = torch.spmm(adjacency, x) if adjacency.is_sparse else torch.mm(adjacency, x)
        y = y + torch.sparse.mm(adjacency, self.linear(x)) + torch.spmm(adjacency, x.to(self.device))
        F.leaky_relu_(y, 0.2)
        y = F.elu_(y * 2, alpha=0.5) + self.activation(x - 1)
        permutation, lower, upper = torch.linalg.lu(self.table)
        if self.fused and not self.newest:
            adjacency = adjacency.detach().requires_grad_(x.is_floating_point())
            y = y + adjacency.t().clone().fill_diagonal_(-2.0)
        if y.is_cuda and x.is_sparse:
            y = y.to_dense()
        return y, permutation @ lower @ upper, torch.slogdet(self.table)[1], torch.linalg.slogdet(self.table).logabsdet


class Held(nn.Module):
    """Has an attribute that is None before it is a tensor, and lists of layers that have names besides."""

    def __init__(self, layers=2):
        super().__init__()
        self.table = None
        self.last = None
        self.extend(4)
        stages = []
        for i in range(layers):
            stage = nn.Linear(5, 5)
            self.add_module(f"stage{i}", stage)
            stages.append(stage)
        self.stages = stages[::-1]

    def extend(self, length):
        if self.table is None or self.table.size(0) < length:
            self.table = torch.arange(length)[:, None].to(torch.float32) / 7

    def forward(self, x):
        self.extend(x.shape[0])
        self.table = self.table.to(dtype=x.dtype, device=x.device)
        for stage in self.stages:
            x = torch.relu(stage(x))
        return x + self.table[: x.shape[0]]

    def remember(self, x):
        self.last = x.detach()


class Odd(nn.Module):
    """What JAX says in fewer words, and searches in rows."""

    def __init__(self):
        super().__init__()
        self.register_buffer("average", torch.ones(6))
        self.register_buffer("bounds", torch.tensor([[0.1, 0.5], [0.2, 0.3], [-1.0, 1.0]]))

    def forward(self, x, y):
        joined = y.flatten(0, 1).flatten(0, -2)
        rows, columns = torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij")
        values, _ = torch.sort(x, -1)
        _, places = x.max(dim=1)
        first, where = x.min(1)
        if x.device != y.device or x.device.type == "mps" or places.device != where.device:
            values = values * 2
        deep = x.unsqueeze(1).unsqueeze(2).unsqueeze(-1).unsqueeze(-1)
        deep = deep + torch.unsqueeze(x[:, 0], 0).unsqueeze(0)[..., None]
        average = self.average.mul(0.5).add(x.mean(0), alpha=0.5)
        found = torch.searchsorted(self.bounds, x.detach().contiguous(), right=True)
        if not self.training:
            average = average * 1.0
        if self.training:
            average = average / 1.0
        return joined, rows * columns, values, first + x[0, 0] * found[0, 0] + where + places, deep, average, found


class Merged(nn.Module):
    """Takes tensors by name."""

    def forward(self, features):
        other = features.get("other")
        return sum(features.values()) if other is None else other


class Plain(nn.Module):
    """Python's own values beside tensors."""

    def __init__(self):
        super().__init__()
        start = np.random.RandomState(0).randn(4, 4)
        generator = np.random.default_rng(0)
        self.register_buffer("table", torch.from_numpy(start + generator.normal(size=(4, 4))).float())
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.merge = Merged()

    def forward(self, x, stop=None):
        features = {"x": x}
        for i, layer in enumerate(self.layers):
            x = torch.tanh(layer(x)) @ self.table
            if i == stop:
                break
            features[f"layer{i}"] = x
        return self.merge(features)


class Levels(nn.Module):
    """Writes into the list that it is given."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, levels):
        for i in range(2):
            levels[i] = self.layers[i](levels[i])
            levels[i][:, 0] = 1.0
        levels[1] += levels[0]
        levels = torch.cat(levels, 1)
        levels[:, 1] = 2.0
        return levels


class Handing(nn.Module):
    def __init__(self):
        super().__init__()
        self.levels = Levels()

    def forward(self, levels):
        return self.levels(levels)


class Listed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Handing(), Levels()

    def forward(self, x):
        pair = [x * 2, x]
        return self.first([x, x * 3]) + self.second(levels=pair)


class Pretrained(nn.Module):
    """Tables that are there already."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        table = torch.rand(7, 4)
        self.trained = nn.Embedding.from_pretrained(table, False, padding_idx=2)
        self.frozen = nn.Embedding.from_pretrained(table * 2)

    def forward(self, x):
        return self.trained(x) + self.frozen(x)


def edges_of(count):
    rows, columns = [], []
    for i in range(count):
        rows.append(i)
        columns.append(count - 1 - i)
    return [rows, columns]


class Edges(nn.Module):
    """Tensors of lists that Python makes."""

    def forward(self, x):
        edges = edges_of(len(x))
        weights = [0.5]
        for _ in range(3):
            weights.append(2.0)
        values = torch.ones(len(edges[0]), 1) * torch.FloatTensor(weights)[1]
        edges = [torch.LongTensor(edges[0]), torch.LongTensor(edges[1])]
        return x[edges[0]] * values + x[edges[1]]


class Worded(nn.Module):
    """Values within texts."""

    def forward(self, x):
        return {
            f"{x.dim()} axes of {x.size(1)}, {str(tuple(x.shape)) + '!'} {x.size(0):>4}": x * 2,
            f"{x.shape[0]}": x,
        }


class Cached(nn.Module):
    """Keeps tensors that are no buffers."""

    def __init__(self):
        super().__init__()
        self.cache = torch.zeros(5, 4)
        self.sums = torch.zeros(4)
        self.steps = []
        self.shifts = [0.5 * each for each in (torch.ones(4), torch.zeros(4))]
        rows = []
        for i in range(2):
            self.steps += [torch.full((4,), float(i))]
            rows.append(torch.ones(4))
        self.rows = rows
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x):
        rows = len(x)
        self.cache = self.cache.to(x)
        self.cache[:rows, 1:] = x[:, 1:]
        self.sums[0] *= 0.0
        self.seen[1:] = 2.0
        return self.cache[:rows] + self.sums + self.seen + sum(self.steps) + self.shifts[0] + self.rows[1]


class Mixed(nn.Module):
    """In a low precision but for what has to be exact."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.out = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x, mask):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            q, k = self.q(x), self.k(x)
            with torch.autocast("cpu", enabled=False):
                scores = q.float() @ k.float().T
            weights = scores.masked_fill(~mask, -1e9).softmax(-1)
            y = self.out(weights * x)
        return y.float()


class Ordered(nn.Module):
    """What is in the middle, and how often something goes into it."""

    def forward(self, x, n):
        low, high = x[:2], x[2:]
        middle = low.abs().median(1)[0] + high.kthvalue(2, dim=1, keepdim=True).values.squeeze(1)
        value, _ = torch.median(x, dim=0)
        groups = torch.div(n - 5, 3, rounding_mode="trunc")
        first, where = x.topk(2, dim=0)
        least = torch.topk(x, 2, largest=False)[0] + torch.diff(x, prepend=x[:, :1]).round(decimals=1)[:, :2]
        return middle, value, groups, torch.div(x, 0.3, rounding_mode="trunc"), x.median(), first, where, least
