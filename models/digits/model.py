"""The same network in Flax, channels last; flattened in PyTorch's order, so that its weights fit."""

import jax
import jax.numpy as jnp
from flax import nnx

import graphmode as gm
import graphmode.nn.functional as F


class DigitNet(nnx.Module):
    """`[B, 8, 8, 1]` -> logits `[B, 10]`."""

    def __init__(self, rngs: nnx.Rngs):
        self.conv1 = gm.nn.Conv2d(1, 32, 3, padding=1, rngs=rngs)
        self.norm1 = gm.nn.BatchNorm2d(32)
        self.conv2 = gm.nn.Conv2d(32, 64, 3, padding=1, rngs=rngs)
        self.norm2 = gm.nn.BatchNorm2d(64)
        self.fc = gm.nn.Linear(64 * 2 * 2, 10, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.norm2(self.conv2(x))), 2)
        return self.fc(jnp.moveaxis(x, -1, 1).reshape(x.shape[0], -1))
