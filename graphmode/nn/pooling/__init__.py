"""Poolings: largest, average, adaptive, fractional, by a power; and the way back."""

from .adaptive_avg_pool import AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d
from .adaptive_max_pool import AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d
from .avg_pool import AvgPool1d, AvgPool2d, AvgPool3d
from .fractional_max_pool import FractionalMaxPool2d, FractionalMaxPool3d
from .lp_pool import LPPool1d, LPPool2d, LPPool3d
from .max_pool import MaxPool1d, MaxPool2d, MaxPool3d
from .max_unpool import MaxUnpool1d, MaxUnpool2d, MaxUnpool3d

__all__: list[str] = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
]
