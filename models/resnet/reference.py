"""ResNets in eager PyTorch, with torchvision's `state_dict` names.

Source: He et al. 2015, "Deep Residual Learning for Image Recognition"; names as in `torchvision.models.resnet`, whose
bottleneck has its stride in the 3x3 convolution, not in the first.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .config import ResNetConfig


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, projected where the shape changes."""

    expansion = 1

    def __init__(self, in_channels: int, channels: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = _projection(in_channels, channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + identity)


class Bottleneck(nn.Module):
    """A 3x3 convolution between two of 1x1, which narrow and widen four times, and the shortcut."""

    expansion = 4

    def __init__(self, in_channels: int, channels: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, channels * self.expansion, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _projection(in_channels, channels * self.expansion, stride)

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return self.relu(out + identity)


class ResNet(nn.Module):
    """`[B, 3, H, W]` -> logits `[B, num_classes]`."""

    def __init__(self, config: ResNetConfig = ResNetConfig()):  # noqa: B008  frozen
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        block, wide = (Bottleneck if config.bottleneck else BasicBlock), config.expansion
        self.layer1 = _stage(block, 64, 64, config.blocks[0], stride=1)
        self.layer2 = _stage(block, 64 * wide, 128, config.blocks[1], stride=2)
        self.layer3 = _stage(block, 128 * wide, 256, config.blocks[2], stride=2)
        self.layer4 = _stage(block, 256 * wide, 512, config.blocks[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512 * wide, config.num_classes)

        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def _projection(in_channels: int, channels: int, stride: int) -> nn.Sequential | None:
    """Of the shortcut, where the shape changes."""
    if stride == 1 and in_channels == channels:
        return None
    return nn.Sequential(nn.Conv2d(in_channels, channels, 1, stride=stride, bias=False), nn.BatchNorm2d(channels))


def _stage(
    block: type[BasicBlock | Bottleneck], in_channels: int, channels: int, count: int, *, stride: int
) -> nn.Sequential:
    """`count` blocks, the first of which changes resolution and channels."""
    wide = channels * block.expansion
    return nn.Sequential(block(in_channels, channels, stride), *(block(wide, channels, 1) for _ in range(count - 1)))
