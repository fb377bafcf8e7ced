"""The functional forms of this room."""

from .grid import affine_grid, grid_sample
from .interpolation import interpolate, upsample, upsample_bilinear, upsample_nearest

__all__ = ["affine_grid", "grid_sample", "interpolate", "upsample", "upsample_bilinear", "upsample_nearest"]
