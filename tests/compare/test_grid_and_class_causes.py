"""Grids, classes, repeats, and limits of two tensors, as a detector's head has them."""

import jax
import jax.numpy as jnp
import pytest
import torch
import torch.nn.functional as F
from flax import nnx
from told_causes import causes

CLASSES, SIZE, ALL = 5, 4, 24


class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(SIZE, SIZE)

    def forward(self, x, labels, target):
        h = self.fc(x)
        ys, xs = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
        places = torch.stack([xs.reshape(-1) + 0.5, ys.reshape(-1) + 0.25], -1).to(x.dtype)
        first = F.one_hot(labels[:, 0], CLASSES).to(x.dtype).mean(0)
        unit = F.normalize(0.01 * h, dim=-1)
        worse = torch.max((h - target) ** 2, (h + target).abs())
        groups = h[:2].repeat(3, 2)
        return places @ h[:2], first, unit, worse.mean(), torch.cat([target.repeat(1, 2), groups])


class HeadPort(nnx.Module):
    indexing, begin, eps, worse = "ij", 0, None, staticmethod(jnp.maximum)

    def __init__(self, rngs):
        self.fc = nnx.Linear(SIZE, SIZE, rngs=rngs)

    def classes(self, labels):
        return jax.nn.one_hot(labels[:, 0] + self.begin, CLASSES).mean(0)

    def unit(self, x):
        length = jnp.sqrt(jnp.sum(x * x, -1, keepdims=True))
        return x / (jnp.maximum(length, 1e-12) if self.eps is None else length + self.eps)

    def groups(self, x):
        return jnp.tile(x, (3, 2))

    def __call__(self, x, labels, target):
        h = self.fc(x)
        ys, xs = jnp.meshgrid(jnp.arange(SIZE), jnp.arange(SIZE), indexing=self.indexing)
        places = jnp.stack([xs.reshape(-1) + 0.5, ys.reshape(-1) + 0.25], -1)
        worse = self.worse((h - target) ** 2, jnp.abs(h + target)).mean()
        both = jnp.concatenate([jnp.tile(target, (1, 2)), self.groups(h[:2])])
        return places @ h[:2], self.classes(labels), self.unit(0.01 * h), worse, both


class Crossed(HeadPort):
    indexing = "xy"


class FromOne(HeadPort):
    begin = 1


class OfAll(HeadPort):
    def classes(self, labels):
        return jax.nn.one_hot(labels, CLASSES).mean((0, 1))


class Added(HeadPort):
    eps = 1e-5


class Smaller(HeadPort):
    worse = staticmethod(jnp.minimum)


class First(HeadPort):
    worse = staticmethod(lambda a, b: a)


class Repeated(HeadPort):
    def groups(self, x):
        return jnp.tile(jnp.repeat(x, 3, axis=0), (1, 2))


@pytest.mark.parametrize(
    ("port", "id", "says"),
    [
        (Crossed, "grid-order", "has the grid's axes as with indexing='xy', jnp.meshgrid's default"),
        (FromOne, "index-offset", "has the one of class i at +1"),
        (OfAll, "pooling", "has the mean over all of axis 1 for the one at 0, of which it makes classes"),
        (Added, "limits", "adds 1e-05 to the length, where the reference limits the length to 1e-12"),
        (Smaller, "limits", "takes the min of two tensors for the max"),
        (First, "limits", "takes the first of two tensors as it is, where the reference takes the max of both"),
        (Repeated, "repeat-order", "repeats each element along axis 0, not the whole"),
    ],
)
def test_it_is_named(port, id, says):
    def inputs(rng):
        rows, labels = rng.standard_normal((ALL, SIZE)), rng.integers(0, CLASSES - 1, (ALL, 2))
        return rows, labels, rng.standard_normal((ALL, SIZE))

    assert (id, says) in causes(Head, port, inputs)
