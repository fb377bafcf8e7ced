"""EfficientNet-lite0 as one graph: NHWC inside, the published checkpoint's names, padding known from the shape.

Source: Tan and Le 2019, "EfficientNet", and the "lite" variants of 2020: no squeeze-and-excitation, ReLU6 for swish.
Dropout and stochastic depth are left out, as in the reference.
"""

from __future__ import annotations

from os import PathLike

import jax
from flax import nnx

from graphmode import nn, weights

from ..installed import installed_weights

# (kernel, stride, expansion, out channels, repeats)
STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)


class SameConv2d(nn.Conv2d):
    """A convolution with TensorFlow's "SAME" padding: the output has ceil(size / stride), the odd zero at the end."""

    def paddings(self, size: tuple[int, ...]) -> tuple[tuple[int, int], tuple[int, int]]:
        height, width = (
            max((-(-n // stride) - 1) * stride + kernel - n, 0)
            for n, kernel, stride in zip(size, self.kernel_size, self.stride, strict=True)
        )
        return (height // 2, height - height // 2), (width // 2, width - width // 2)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


class MBConvBlock(nnx.Module):
    """Expand by a 1x1 convolution, filter each channel, project; a shortcut where the shape stays."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel: int, stride: int, expansion: int, *, rngs: nnx.Rngs
    ):
        channels = in_channels * expansion
        self.expands = expansion != 1
        self.shortcut = stride == 1 and in_channels == out_channels
        if self.expands:
            self._expand_conv = SameConv2d(in_channels, channels, 1, bias=False, rngs=rngs)
            self._bn0 = _norm(channels)
        self._depthwise_conv = SameConv2d(
            channels, channels, kernel, stride=stride, groups=channels, bias=False, rngs=rngs
        )
        self._bn1 = _norm(channels)
        self._project_conv = SameConv2d(channels, out_channels, 1, bias=False, rngs=rngs)
        self._bn2 = _norm(out_channels)
        self._relu6 = nn.ReLU6()

    def __call__(self, inputs: jax.Array) -> jax.Array:
        x = inputs
        if self.expands:
            x = self._relu6(self._bn0(self._expand_conv(x)))
        x = self._relu6(self._bn1(self._depthwise_conv(x)))
        x = self._bn2(self._project_conv(x))
        return x + inputs if self.shortcut else x


class EfficientNetLite0(nnx.Module):
    """`[B, H, W, 3]`, scaled to about -1 .. 1 -> logits `[B, num_classes]`."""

    def __init__(self, num_classes: int = 1000, stages: tuple[tuple[int, ...], ...] = STAGES, *, rngs: nnx.Rngs):
        self._conv_stem = SameConv2d(3, 32, 3, stride=2, bias=False, rngs=rngs)
        self._bn0 = _norm(32)
        blocks = []
        in_channels = 32
        for kernel, stride, expansion, out_channels, repeats in stages:
            for repeat in range(repeats):
                step = 1 if repeat else stride
                blocks.append(MBConvBlock(in_channels, out_channels, kernel, step, expansion, rngs=rngs))
                in_channels = out_channels
        self._blocks = nnx.List(blocks)
        self._conv_head = SameConv2d(in_channels, 1280, 1, bias=False, rngs=rngs)
        self._bn1 = _norm(1280)
        self._avg_pooling = nn.AdaptiveAvgPool2d(1)
        self._fc = nn.Linear(1280, num_classes, rngs=rngs)
        self._relu6 = nn.ReLU6()

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self._relu6(self._bn0(self._conv_stem(x)))
        for block in self._blocks:
            x = block(x)
        x = self._relu6(self._bn1(self._conv_head(x)))
        return self._fc(self._avg_pooling(x).reshape(x.shape[0], -1))


def load(path: str | PathLike[str] | None = None) -> EfficientNetLite0:
    """The classifier with weights, ready for inference.

    Args:
      path: of a `state_dict` of this architecture, `.pth` or `.safetensors`, with any number of classes; None for the
        ImageNet weights that are installed.

    Raises:
      ImportError: where no path is given and the weights are not installed, or a `.pth` is to be read without PyTorch.
      WeightsError: where the file's tensors are not the model's.
    """
    state = weights.read(installed_weights("efficientnet_lite0") if path is None else path)
    head = state.get("_fc.weight")
    model = EfficientNetLite0(1000 if head is None else head.shape[0], rngs=nnx.Rngs(0))
    weights.load(model, state)
    model.eval()
    return model
