"""A convolutional classifier: windows, strides, groups, dilation, pooling, norms, and a flatten before a layer."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as TF
from flax import nnx

import graphmode as gm
import graphmode.nn.functional as F

from ....case import Case, channels_last


class Reference(torch.nn.Module):
    """`[B, 4, 8, 12]` -> logits `[B, 10]`."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(4, 8, (3, 5), stride=2, padding=(1, 2))
        self.norm1 = torch.nn.BatchNorm2d(8)
        self.mix = torch.nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.norm2 = torch.nn.GroupNorm(4, 8)
        self.act = torch.nn.SiLU()
        self.pool = torch.nn.MaxPool2d(3, 2, 1)
        self.smooth = torch.nn.AvgPool2d(3, 1, 1, count_include_pad=False)
        self.wide = torch.nn.Conv2d(8, 6, 3, padding=2, dilation=2)
        self.norm3 = torch.nn.BatchNorm2d(6)
        self.shrink = torch.nn.AvgPool2d(2, 2, ceil_mode=True)
        self.fc = torch.nn.Linear(6 * 2 * 3, 10)
        self.head = torch.nn.Linear(6, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = TF.relu(self.norm1(self.stem(x)))
        x = x + self.act(self.norm2(self.mix(x)))
        x = self.smooth(self.pool(x))
        x = TF.leaky_relu(self.norm3(self.wide(x)), 0.2)
        return self.fc(x.flatten(1)) + self.head(self.shrink(x).mean((2, 3)))


class Port(nnx.Module):
    """`[B, 8, 12, 4]` -> logits `[B, 10]`."""

    def __init__(self, rngs: nnx.Rngs):
        self.stem = gm.nn.Conv2d(4, 8, (3, 5), stride=2, padding=(1, 2), rngs=rngs)
        self.norm1 = gm.nn.BatchNorm2d(8)
        self.mix = gm.nn.Conv2d(8, 8, 3, padding=1, groups=2, rngs=rngs)
        self.norm2 = gm.nn.GroupNorm(4, 8)
        self.act = gm.nn.SiLU()
        self.pool = gm.nn.MaxPool2d(3, 2, 1)
        self.smooth = gm.nn.AvgPool2d(3, 1, 1, count_include_pad=False)
        self.wide = gm.nn.Conv2d(8, 6, 3, padding=2, dilation=2, rngs=rngs)
        self.norm3 = gm.nn.BatchNorm2d(6)
        self.shrink = gm.nn.AvgPool2d(2, 2, ceil_mode=True)
        self.fc = gm.nn.Linear(6 * 2 * 3, 10, rngs=rngs)
        self.head = gm.nn.Linear(6, 10, rngs=rngs)

    def first_activation(self, x: jax.Array) -> jax.Array:
        return F.relu(x)

    def last_activation(self, x: jax.Array) -> jax.Array:
        return F.leaky_relu(x, 0.2)

    def join(self, x: jax.Array, update: jax.Array) -> jax.Array:
        return x + update

    def flatten(self, x: jax.Array) -> jax.Array:
        return jnp.moveaxis(x, -1, 1).reshape(x.shape[0], -1)

    def average(self, x: jax.Array) -> jax.Array:
        return x.mean((1, 2))

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.first_activation(self.norm1(self.stem(x)))
        x = self.join(x, self.act(self.norm2(self.mix(x))))
        x = self.smooth(self.pool(x))
        x = self.last_activation(self.norm3(self.wide(x)))
        return self.fc(self.flatten(x)) + self.head(self.average(self.shrink(x)))


CASE = Case(
    name="conv_net",
    summary=__doc__.splitlines()[0],
    reference=Reference,
    model=Port,
    inputs=lambda rng: (rng.standard_normal((5, 4, 8, 12)) + np.linspace(-1, 1, 4)[:, None, None],),
    to_model=channels_last,
)
