"""ResNet-18 as one graph: NHWC inside, torchvision's names, running statistics as explicit state.

Source: He et al. 2015, "Deep Residual Learning for Image Recognition"; names as in `torchvision.models.resnet18`.
"""

from __future__ import annotations

import jax
from flax import nnx

from graphmode import nn


class BasicBlock(nnx.Module):
    """Two 3x3 convolutions and a shortcut, projected where the shape changes."""

    def __init__(self, in_channels: int, channels: int, stride: int, *, rngs: nnx.Rngs):
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride=stride, padding=1, bias=False, rngs=rngs)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False, rngs=rngs)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = nnx.data(None)
        if stride != 1 or in_channels != channels:
            self.downsample = nnx.Sequential(
                nn.Conv2d(in_channels, channels, 1, stride=stride, bias=False, rngs=rngs), nn.BatchNorm2d(channels)
            )

    def __call__(self, x: jax.Array) -> jax.Array:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + identity)


class ResNet(nnx.Module):
    """`[B, H, W, 3]` -> logits `[B, num_classes]`."""

    def __init__(self, blocks: tuple[int, ...] = (2, 2, 2, 2), num_classes: int = 1000, *, rngs: nnx.Rngs):
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False, rngs=rngs)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = _stage(64, 64, blocks[0], stride=1, rngs=rngs)
        self.layer2 = _stage(64, 128, blocks[1], stride=2, rngs=rngs)
        self.layer3 = _stage(128, 256, blocks[2], stride=2, rngs=rngs)
        self.layer4 = _stage(256, 512, blocks[3], stride=2, rngs=rngs)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512, num_classes, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).reshape(x.shape[0], -1))


def _stage(in_channels: int, channels: int, count: int, *, stride: int, rngs: nnx.Rngs) -> nnx.Sequential:
    """`count` blocks, the first of which changes resolution and channels."""
    first = BasicBlock(in_channels, channels, stride, rngs=rngs)
    return nnx.Sequential(first, *(BasicBlock(channels, channels, 1, rngs=rngs) for _ in range(count - 1)))


def resnet18(num_classes: int = 1000, *, rngs: nnx.Rngs) -> ResNet:
    return ResNet((2, 2, 2, 2), num_classes, rngs=rngs)
