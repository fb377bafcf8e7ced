"""The three networks of MTCNN in NHWC, with the names of the published files: ordinary layers, nothing dynamic.

Source: Zhang et al. 2016, "Joint Face Detection and Alignment using Multi-task Cascaded Convolutional Networks".
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import jax
from flax import nnx

from graphmode import nn

# of each layer between the input and the heads
WIDTHS = MappingProxyType({"pnet": (10, 16, 32), "rnet": (28, 48, 64, 128), "onet": (32, 64, 64, 128, 256)})


class PNet(nnx.Module):
    """`[B, H, W, 3]` -> of each cell of 12 x 12 pixels, two apart, corrections `[B, h, w, 4]`, class `[B, h, w, 2]`."""

    def __init__(self, widths: tuple[int, ...] = WIDTHS["pnet"], *, rngs: nnx.Rngs):
        first, second, third = widths
        self.conv1 = nn.Conv2d(3, first, 3, rngs=rngs)
        self.prelu1 = nn.PReLU(first)
        self.pool1 = nn.MaxPool2d(2, 2, ceil_mode=True)
        self.conv2 = nn.Conv2d(first, second, 3, rngs=rngs)
        self.prelu2 = nn.PReLU(second)
        self.conv3 = nn.Conv2d(second, third, 3, rngs=rngs)
        self.prelu3 = nn.PReLU(third)
        self.conv4_1 = nn.Conv2d(third, 2, 1, rngs=rngs)
        self.softmax4_1 = nn.Softmax(-1)
        self.conv4_2 = nn.Conv2d(third, 4, 1, rngs=rngs)

    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        x = self.pool1(self.prelu1(self.conv1(x)))
        x = self.prelu2(self.conv2(x))
        x = self.prelu3(self.conv3(x))
        return self.conv4_2(x), self.softmax4_1(self.conv4_1(x))


class RNet(nnx.Module):
    """Crops `[N, 24, 24, 3]` -> corrections `[N, 4]`, class `[N, 2]`."""

    def __init__(self, widths: tuple[int, ...] = WIDTHS["rnet"], *, rngs: nnx.Rngs):
        first, second, third, features = widths
        self.conv1 = nn.Conv2d(3, first, 3, rngs=rngs)
        self.prelu1 = nn.PReLU(first)
        self.pool1 = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.conv2 = nn.Conv2d(first, second, 3, rngs=rngs)
        self.prelu2 = nn.PReLU(second)
        self.pool2 = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.conv3 = nn.Conv2d(second, third, 2, rngs=rngs)
        self.prelu3 = nn.PReLU(third)
        self.dense4 = nn.Linear(3 * 3 * third, features, rngs=rngs)
        self.prelu4 = nn.PReLU(features)
        self.dense5_1 = nn.Linear(features, 2, rngs=rngs)
        self.softmax5_1 = nn.Softmax(-1)
        self.dense5_2 = nn.Linear(features, 4, rngs=rngs)

    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        x = self.pool1(self.prelu1(self.conv1(x)))
        x = self.pool2(self.prelu2(self.conv2(x)))
        x = self.prelu3(self.conv3(x))
        x = self.prelu4(self.dense4(_columns_first(x)))
        return self.dense5_2(x), self.softmax5_1(self.dense5_1(x))


class ONet(nnx.Module):
    """Crops `[N, 48, 48, 3]` -> corrections `[N, 4]`, five landmarks `[N, 10]` (all x, then all y), class `[N, 2]`."""

    def __init__(self, widths: tuple[int, ...] = WIDTHS["onet"], *, rngs: nnx.Rngs):
        first, second, third, fourth, features = widths
        self.conv1 = nn.Conv2d(3, first, 3, rngs=rngs)
        self.prelu1 = nn.PReLU(first)
        self.pool1 = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.conv2 = nn.Conv2d(first, second, 3, rngs=rngs)
        self.prelu2 = nn.PReLU(second)
        self.pool2 = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.conv3 = nn.Conv2d(second, third, 3, rngs=rngs)
        self.prelu3 = nn.PReLU(third)
        self.pool3 = nn.MaxPool2d(2, 2, ceil_mode=True)
        self.conv4 = nn.Conv2d(third, fourth, 2, rngs=rngs)
        self.prelu4 = nn.PReLU(fourth)
        self.dense5 = nn.Linear(3 * 3 * fourth, features, rngs=rngs)
        self.prelu5 = nn.PReLU(features)
        self.dense6_1 = nn.Linear(features, 2, rngs=rngs)
        self.softmax6_1 = nn.Softmax(-1)
        self.dense6_2 = nn.Linear(features, 4, rngs=rngs)
        self.dense6_3 = nn.Linear(features, 10, rngs=rngs)

    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        x = self.pool1(self.prelu1(self.conv1(x)))
        x = self.pool2(self.prelu2(self.conv2(x)))
        x = self.pool3(self.prelu3(self.conv3(x)))
        x = self.prelu4(self.conv4(x))
        x = self.prelu5(self.dense5(_columns_first(x)))
        return self.dense6_2(x), self.dense6_3(x), self.softmax6_1(self.dense6_1(x))


class Networks(nnx.Module):
    """The three networks on scaled pictures and crops of fixed sizes: what is trained, without the steps between."""

    def __init__(self, widths: Mapping[str, tuple[int, ...]] = WIDTHS, *, rngs: nnx.Rngs):
        self.pnet = PNet(widths["pnet"], rngs=rngs)
        self.rnet = RNet(widths["rnet"], rngs=rngs)
        self.onet = ONet(widths["onet"], rngs=rngs)

    def __call__(self, pictures: jax.Array, crops24: jax.Array, crops48: jax.Array) -> tuple[jax.Array, ...]:
        return *self.pnet(pictures), *self.rnet(crops24), *self.onet(crops48)


def _columns_first(x: jax.Array) -> jax.Array:
    """`[N, H, W, C]` -> `[N, W * H * C]`: the checkpoint comes from a framework that counts along columns."""
    return x.transpose(0, 2, 1, 3).reshape(len(x), -1)
