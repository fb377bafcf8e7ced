"""ResNets with torchvision's names: `load(path)` gives one with the weights of a file."""

from .config import ResNetConfig
from .model import ResNet, load

__all__ = ["ResNet", "ResNetConfig", "load"]
