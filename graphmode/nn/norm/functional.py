"""The functional forms of this room."""

from .channels import batch_norm, batch_norm_with_running_stats, instance_norm, instance_norm_with_running_stats
from .features import group_norm, layer_norm, rms_norm
from .response import local_response_norm

__all__: list[str] = [
    "batch_norm",
    "batch_norm_with_running_stats",
    "group_norm",
    "instance_norm",
    "instance_norm_with_running_stats",
    "layer_norm",
    "local_response_norm",
    "rms_norm",
]
