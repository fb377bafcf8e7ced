"""EfficientNet-lite0: `load()` gives it with its ImageNet weights."""

from .model import EfficientNetLite0, load

__all__ = ["EfficientNetLite0", "load"]
