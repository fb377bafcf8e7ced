"""A convolution by XLA's own operation."""

from __future__ import annotations

import jax
from jax import lax

from ..layout import Layout, along_channels, spelled
from .geometry import Geometry


def native(
    input: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None,
    geometry: Geometry,
    layout: Layout = "channels_last",
    precision: lax.PrecisionLike = None,
) -> jax.Array:
    """Cross-correlation of `input`, `[B, *spatial, C]` or as `layout` says, with `[*kernel, C / groups, out]`."""
    spatial = weight.ndim - 2
    product = lax.conv_general_dilated(
        input,
        weight,
        window_strides=geometry.stride,
        padding=geometry.paddings,
        rhs_dilation=geometry.dilation,
        feature_group_count=geometry.groups,
        dimension_numbers=dimension_numbers(layout, spatial),
        precision=precision,
    )
    return with_bias(product, bias, layout, spatial)


def with_bias(output: jax.Array, bias: jax.Array | None, layout: Layout, spatial: int) -> jax.Array:
    """`output + bias`, which is one number for each channel."""
    return output if bias is None else output + along_channels(bias, layout, output.ndim, spatial)


def dimension_numbers(layout: Layout, spatial: int) -> tuple[str, str, str]:
    """Those of input, kernel and output for `lax.conv_general_dilated`."""
    spec = spelled(layout, spatial)
    return spec, "".join(axis for axis in spec if axis not in "NC") + "IO", spec
