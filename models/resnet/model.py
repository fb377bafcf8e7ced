"""ResNet-18, 34, 50 and 101 as one graph: NHWC inside, torchvision's names, running statistics as explicit state.

Equal blocks follow each other, and are not scanned. On two CPU cores, at 224 pixels and a batch of one, a scan over the
22 equal blocks of ResNet-101 is traced and compiled in 0.6 s for 3.1 s (with the gradient 3.1 s for 9.5 s), and each
run is slower: 257 ms for 222 ms, and 1204 ms for 748 ms. Over the 5 of ResNet-50 it gains nothing: 0.7 s for 0.9 s and
69 ms for 74 ms, with the gradient 2.8 s for 2.1 s and 196 ms for 200 ms.

Source: He et al. 2015, "Deep Residual Learning for Image Recognition"; names as in `torchvision.models.resnet`, whose
bottleneck has its stride in the 3x3 convolution, not in the first.
"""

from __future__ import annotations

from os import PathLike

import jax
from flax import nnx

from graphmode import nn, weights

from .config import ResNetConfig


class BasicBlock(nnx.Module):
    """Two 3x3 convolutions and a shortcut, projected where the shape changes."""

    expansion = 1

    def __init__(self, in_channels: int, channels: int, stride: int, *, rngs: nnx.Rngs):
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride=stride, padding=1, bias=False, rngs=rngs)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False, rngs=rngs)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = nnx.data(_projection(in_channels, channels, stride, rngs))

    def __call__(self, x: jax.Array) -> jax.Array:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + identity)


class Bottleneck(nnx.Module):
    """A 3x3 convolution between two of 1x1, which narrow and widen four times, and the shortcut."""

    expansion = 4

    def __init__(self, in_channels: int, channels: int, stride: int, *, rngs: nnx.Rngs):
        self.conv1 = nn.Conv2d(in_channels, channels, 1, bias=False, rngs=rngs)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride=stride, padding=1, bias=False, rngs=rngs)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, channels * self.expansion, 1, bias=False, rngs=rngs)
        self.bn3 = nn.BatchNorm2d(channels * self.expansion)
        self.relu = nn.ReLU()
        self.downsample = nnx.data(_projection(in_channels, channels * self.expansion, stride, rngs))

    def __call__(self, x: jax.Array) -> jax.Array:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return self.relu(out + identity)


class ResNet(nnx.Module):
    """`[B, H, W, 3]` -> logits `[B, num_classes]`.

    Args:
      config: sizes.
      rngs: `params` is drawn from.

    Example:
      >>> import jax.numpy as jnp
      >>> network = ResNet(ResNetConfig((1, 1, 1, 1), num_classes=7), rngs=nnx.Rngs(0))
      >>> network(jnp.ones((2, 32, 32, 3))).shape
      (2, 7)
    """

    def __init__(self, config: ResNetConfig = ResNetConfig(), *, rngs: nnx.Rngs):  # noqa: B008  frozen
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False, rngs=rngs)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        block, wide = (Bottleneck if config.bottleneck else BasicBlock), config.expansion
        self.layer1 = _stage(block, 64, 64, config.blocks[0], stride=1, rngs=rngs)
        self.layer2 = _stage(block, 64 * wide, 128, config.blocks[1], stride=2, rngs=rngs)
        self.layer3 = _stage(block, 128 * wide, 256, config.blocks[2], stride=2, rngs=rngs)
        self.layer4 = _stage(block, 256 * wide, 512, config.blocks[3], stride=2, rngs=rngs)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512 * wide, config.num_classes, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).reshape(x.shape[0], -1))


def _projection(in_channels: int, channels: int, stride: int, rngs: nnx.Rngs) -> nnx.Sequential | None:
    """Of the shortcut, where the shape changes."""
    if stride == 1 and in_channels == channels:
        return None
    return nnx.Sequential(
        nn.Conv2d(in_channels, channels, 1, stride=stride, bias=False, rngs=rngs), nn.BatchNorm2d(channels)
    )


def _stage(
    block: type[BasicBlock | Bottleneck], in_channels: int, channels: int, count: int, *, stride: int, rngs: nnx.Rngs
) -> nnx.Sequential:
    """`count` blocks, the first of which changes resolution and channels."""
    wide = channels * block.expansion
    rest = (block(wide, channels, 1, rngs=rngs) for _ in range(count - 1))
    return nnx.Sequential(block(in_channels, channels, stride, rngs=rngs), *rest)


def load(path: str | PathLike[str], depth: int | None = None) -> ResNet:
    """A ResNet with weights, ready for inference.

    Args:
      path: of a `state_dict` with torchvision's names, `.pth` or `.safetensors`, of any depth and number of classes.
      depth: 18, 34, 50 or 101, where the file has to be of that; None for what the file holds.

    Raises:
      ImportError: where a `.pth` is to be read without PyTorch.
      ValueError: where the file is of another architecture, or another depth.
      WeightsError: where the file's tensors are not the model's.
    """
    state = weights.read(path)
    config = ResNetConfig.of(state)
    if depth is not None and ResNetConfig.of_depth(depth, config.num_classes) != config:
        kind = "bottlenecks" if config.bottleneck else "plain blocks"
        raise ValueError(f"depth is {depth}, and {path} holds {config.blocks} {kind}; leave depth out, or give its own")
    network = ResNet(config, rngs=nnx.Rngs(0))
    weights.load(network, state)
    network.eval()
    return network
