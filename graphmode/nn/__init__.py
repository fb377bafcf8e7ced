"""Layers that mean exactly what `torch.nn`'s of the same name mean, as NNX modules."""

from .activation import ReLU, ReLU6, relu, relu6
from .conv import Conv2d
from .linear import Linear
from .norm import BatchNorm2d
from .pooling import AdaptiveAvgPool2d, MaxPool2d

__all__ = ["AdaptiveAvgPool2d", "BatchNorm2d", "Conv2d", "Linear", "MaxPool2d", "ReLU", "ReLU6", "relu", "relu6"]
