"""Checks of the arguments that spatial layers share: pairs, layouts and the rank of an input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import jax

DataFormat = Literal["NHWC", "NCHW"]
Pair = tuple[int, int]
Paddings = tuple[Pair, Pair]


def as_pair(name: str, value: int | Sequence[int], *, least: int) -> Pair:
    """One integer for both spatial axes, or one each."""
    items = (value, value) if isinstance(value, int) else tuple(value)
    if len(items) != 2 or not all(isinstance(item, int) and item >= least for item in items):
        raise ValueError(f"{name} is {value!r}; give an integer of at least {least}, or a pair of them (height, width)")
    return items[0], items[1]


def as_data_format(value: str) -> DataFormat:
    if value not in ("NHWC", "NCHW"):
        raise ValueError(f"data_format is {value!r}; choose 'NHWC' (channels last) or 'NCHW' (channels first)")
    return value  # type: ignore[return-value]


def check_image(x: jax.Array, data_format: DataFormat, *, channels: int | None = None, batched: bool = False) -> None:
    """Raises `ValueError` unless `x` is `[B, H, W, C]` (or as `data_format` says), the batch axis optional."""
    shape = tuple(x.shape)
    if len(shape) != 4 and (batched or len(shape) != 3):
        ranks = "4 axes were" if batched else "4 axes (or 3, without a batch) were"
        raise ValueError(f"x has shape {shape}, and {ranks} wanted: {', '.join(data_format)}")
    axis = -1 if data_format == "NHWC" else -3
    if channels is not None and shape[axis] != channels:
        raise ValueError(
            f"x has shape {shape}, so {shape[axis]} channels on axis {axis}, and {channels} were wanted; "
            f"this layer reads {data_format}: move the axis, or set data_format"
        )


def spatial(x: jax.Array, data_format: DataFormat) -> Pair:
    """Height and width."""
    height, width = x.shape[-3:-1] if data_format == "NHWC" else x.shape[-2:]
    return height, width
