"""Where things are: points of a grid in another order, positions that are counted, and what stands on a diagonal."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from flax import nnx
from told_causes import causes

from graphmode import nn

HIGH, WIDE, TIME, PAD = 3, 4, 6, 1


class Grid(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 4)

    def forward(self, x):
        places = torch.meshgrid(*(torch.linspace(-1, 1, s, dtype=x.dtype) for s in (HIGH, WIDE)), indexing="ij")
        whole = torch.stack(places, -1).expand(len(x), -1, -1, -1)
        return torch.tanh(self.fc(torch.cat([x, whole], -1).reshape(len(x), HIGH * WIDE, -1)))


class PortOfGrid(nnx.Module):
    def __init__(self, rngs):
        self.fc = nn.Linear(3, 4, rngs=rngs)

    def __call__(self, x):
        places = np.meshgrid(np.linspace(-1, 1, HIGH), np.linspace(-1, 1, WIDE))  # NumPy's own order
        points = jnp.asarray(np.stack(places, -1).reshape(HIGH * WIDE, 2), x.dtype)
        rows = x.reshape(len(x), HIGH * WIDE, 1)
        return jnp.tanh(self.fc(jnp.concatenate([rows, jnp.broadcast_to(points, (len(x), *points.shape))], axis=-1)))


class Counted(torch.nn.Module):
    """Positions as RoBERTa has them."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(TIME + 2, 4, padding_idx=PAD)

    def forward(self, ids):
        mask = ids.ne(PAD).int()
        return self.table((torch.cumsum(mask, dim=1).type_as(mask) * mask).long() + PAD)


class PortOfCounted(nnx.Module):
    def __init__(self, rngs):
        self.table = nn.Embedding(TIME + 2, 4, padding_idx=PAD, rngs=rngs)

    def __call__(self, ids):
        mask = ids != PAD
        return self.table((jnp.cumsum(mask, axis=1) + PAD) * mask)


class Contrast(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)

    def forward(self, x):
        z = F.normalize(self.fc(x), dim=1)
        scores = z @ z.t() / 0.5
        scores.fill_diagonal_(float("-inf"))
        return F.cross_entropy(scores, torch.arange(len(x)).roll(1))


class PortOfContrast(nnx.Module):
    on_diagonal = 0.0

    def __init__(self, rngs):
        self.fc = nn.Linear(4, 4, rngs=rngs)

    def __call__(self, x):
        h, n = self.fc(x), len(x)
        z = h / jnp.linalg.norm(h, axis=1, keepdims=True)
        scores = z @ z.T / 0.5
        if self.on_diagonal is not None:
            scores = jnp.where(jnp.eye(n, dtype=bool), self.on_diagonal, scores)
        return -jax.nn.log_softmax(scores)[jnp.arange(n), jnp.roll(jnp.arange(n), 1)].mean()


class WithItself(PortOfContrast):
    on_diagonal = None


def pictures(rng):
    return (rng.standard_normal((2, HIGH, WIDE, 1)),)


def padded(rng):
    live = np.arange(TIME) < rng.integers(2, TIME + 1, (4, 1))
    return (np.where(live, rng.integers(2, 9, (4, TIME)), PAD),)


def rows(rng):
    return (rng.standard_normal((6, 4)),)


@pytest.mark.parametrize(
    ("reference", "port", "inputs", "cause"),
    [
        (
            Grid,
            PortOfGrid,
            pictures,
            ("grid-order", "has the grid's points in the order of indexing='xy', jnp.meshgrid's default"),
        ),
        (Counted, PortOfCounted, padded, ("calls-order", "calls add before mul, which the reference calls first")),
        (Contrast, PortOfContrast, rows, ("mask-value", "has 0 on the diagonal")),
        (Contrast, WithItself, rows, ("mask-missing", "leaves the diagonal as it is")),
    ],
)
def test_it_is_named(reference, port, inputs, cause):
    assert causes(reference, port, inputs)[0] == cause
