"""Bugs in convolutions, pooling, flattening and resizing."""

from __future__ import annotations

from typing import Any

import jax

import graphmode.nn.functional as F

from ..edits import attributes, methods, output, planted, received, variable
from ..plant import Plant


def same(conv: Any, size: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """XLA's SAME, whose odd element goes after."""
    totals = [
        max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
        for n, k, s, d in zip(size, conv.kernel_size, conv.stride, conv.dilation, strict=True)
    ]
    return tuple((total // 2, total - total // 2) for total in totals)


def before(conv: Any, size: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """All padding of an axis on one side, as causal convolutions have it."""
    usual = super(type(conv), conv).paddings(size)
    return tuple((low + high, 0) for low, high in usual)


def strided_from_one(conv: Any, x: jax.Array) -> jax.Array:
    """Every second place, from the second on."""
    whole = F.conv2d(x, conv.weight[...], conv.bias[...], 1, conv.padding, conv.dilation, conv.groups)
    return whole[:, 1::2, 1::2]


def padded_before(conv: Any, x: jax.Array) -> jax.Array:
    """A transposed convolution whose output padding goes before the image."""
    whole = F.conv_transpose2d(x, conv.weight[...], conv.bias[...], conv.stride, 0)
    return whole[:, 0:8, 1:-1]


def depth_to_space(layer: Any, x: jax.Array) -> jax.Array:
    """The order of TensorFlow: the place is the slow part of the channel."""
    batch, height, width, channels = x.shape
    parts = x.reshape(batch, height, width, 2, 2, channels // 4)
    return parts.transpose(0, 1, 3, 2, 4, 5).reshape(batch, 2 * height, 2 * width, channels // 4)


def resized(method: str) -> Any:
    def call(layer: Any, x: jax.Array) -> jax.Array:
        return jax.image.resize(x, (x.shape[0], *layer.size, x.shape[-1]), method, antialias=False)

    return methods(call=call)


def interleaved(x: jax.Array) -> jax.Array:
    """Channels in the order of another way to group them: of `abcdefgh`, `aebfcgdh`."""
    return x.reshape(*x.shape[:-1], 2, -1).swapaxes(-1, -2).reshape(x.shape)


FLIPPED = variable("weight", lambda w: w[::-1, ::-1])
TURNED = variable("weight", lambda w: w.swapaxes(0, 1))

PLANTS: list[Plant] = [
    *planted("padding-same", "conv_net", "stem", edit=methods(paddings=same)),
    *planted("padding-asymmetric", "conv_net", "mix", "stem", "wide", edit=methods(paddings=before)),
    *planted("padding-mode", "upsampler", "mix", edit=attributes(padding_mode="zeros")),
    *planted("padding-mode", "conv_net", "mix", edit=attributes(padding_mode="replicate")),
    *planted("stride-offset", "conv_net", "stem", edit=methods(call=strided_from_one)),
    *planted("dilation", "conv_net", "wide", edit=attributes(dilation=(1, 1), padding=(1, 1))),
    *planted("groups-shuffled", "conv_net", "mix", edit=received(interleaved)),
    *planted("channels-shuffled", "conv_net", "mix", "stem", edit=output(interleaved)),
    *planted("kernel-flipped", "upsampler", "grow", "mix", edit=FLIPPED),
    *planted("kernel-flipped", "conv_net", "wide", "stem", edit=FLIPPED),
    *planted("kernel-turned", "upsampler", "mix", edit=TURNED),
    *planted("kernel-turned", "conv_net", "mix", "wide", edit=TURNED),
    *planted("output-padding-side", "upsampler", "grow", edit=methods(call=padded_before)),
    *planted("pixel-shuffle-order", "upsampler", "shuffle", edit=methods(call=depth_to_space)),
    *planted("resize-nearest-exact", "upsampler", "near", edit=attributes(mode="nearest-exact")),
    *planted("resize-mode", "upsampler", "near", edit=attributes(mode="bilinear")),
    *planted("resize-mode", "upsampler", "linear", edit=attributes(mode="nearest")),
    *planted("resize-cubic-coefficient", "upsampler", "cubic", edit=resized("cubic")),
    *planted("align-corners", "upsampler", "linear", "cubic", edit=attributes(align_corners=True)),
    *planted("ceil-mode", "conv_net", "shrink", edit=attributes(ceil_mode=False)),
    *planted("count-include-pad", "conv_net", "smooth", edit=attributes(count_include_pad=True)),
    *planted(
        "pool-average-for-max",
        "conv_net",
        "pool",
        edit=methods(call=lambda self, x: F.avg_pool2d(x, 3, 2, 1)),
    ),
    *planted(
        "pool-max-for-average",
        "conv_net",
        "smooth",
        edit=methods(call=lambda self, x: F.max_pool2d(x, 3, 1, 1)),
    ),
    *planted("flatten-order", "conv_net", "", edit=methods(flatten=lambda self, x: x.reshape(x.shape[0], -1))),
    *planted("mean-for-maximum", "conv_net", "", edit=methods(average=lambda self, x: x.max((1, 2)))),
]
