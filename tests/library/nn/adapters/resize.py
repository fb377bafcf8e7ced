"""Adapters of this room: images move, whatever number of spatial axes they have; a grid's coordinates stay last."""

from .base import FIRST, LAST, Adapter, to_first, to_last


def image_first(args, kwargs, layout):
    return ((to_last(args[0], None), *args[1:]) if layout == LAST else args), kwargs


def image_back(out, args, kwargs, layout):
    return to_first(out, None) if layout == LAST else out


def size_first(args, kwargs, layout):
    theta, (batch, channels, *lengths) = args
    return (theta, (batch, *lengths, channels) if layout == LAST else (batch, channels, *lengths)), kwargs


IMAGES = Adapter(layouts=(LAST, FIRST), inputs=image_first, outputs=image_back)

ADAPTERS: dict[str, Adapter] = {}
FUNCTION_ADAPTERS: dict[str, Adapter] = dict.fromkeys(
    ["interpolate", "upsample_bilinear", "upsample_nearest", "grid_sample"], IMAGES
) | {"affine_grid": Adapter(layouts=(LAST, FIRST), inputs=size_first)}
