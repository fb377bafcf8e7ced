"""`pad`: an array made longer or shorter at the ends of its axes."""

from __future__ import annotations

import functools
import numbers
import operator
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..arguments import as_word
from ..autocast import autocasts
from ..compiled_once import compiled_once
from ..layout import DataFormat, as_layout, spatial_axes

Mode = Literal["constant", "reflect", "replicate", "circular"]
MODES: tuple[Mode, ...] = ("constant", "reflect", "replicate", "circular")
Pair = tuple[int, int]
LANES = 16  # channels of a row; XLA's CPU backend copies images by their innermost axis, and short rows the fastest
MOST_ENTRIES = 8  # added to an axis, where each is a piece by itself


def pad(
    input: jax.Array,
    pad: Sequence[int],
    mode: Mode = "constant",
    value: float | None = None,
    *,
    data_format: DataFormat | None = None,
) -> jax.Array:
    """`input` with entries added before and after, or, where a number is negative, taken away.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.pad.html

    Args:
      input: of any dtype.
      pad: pairs (before, after), the last axis first.
      mode: what is added: `"constant"` for `value`; `"reflect"` for the mirror image, the end itself left out;
        `"replicate"` for the end; `"circular"` for the other end. A negative number crops what reflect and replicate
        have made, and comes before constant and circular.
      value: for `"constant"`, in the dtype of `input`; None for 0.
      data_format: None for the axes of the array as given, as in PyTorch; `"channels_last"`, `"NHWC"` and so on for
        the spatial axes, of which the last comes first.

    Raises:
      ValueError: where `pad` does not fit `input`: too many pairs, a reflection as long as the axis, a circle that goes
        around more than once, more taken away than there is.
      TypeError: where `pad` has other than integers, or `value` is no number.
    """
    mode = as_word("mode", mode, MODES)
    pairs = _as_pairs(pad)
    axes = _axes_of(input, len(pairs), data_format)
    if mode == "constant":
        return _constant(input, dict(zip(axes, pairs, strict=True)), value)
    if value is not None and value != 0:
        raise ValueError(f"value is {value!r} and mode {mode!r}, which takes none; leave it out, or choose 'constant'")
    if not pairs or len(pairs) > 3 or input.ndim not in (len(pairs) + 1, len(pairs) + 2):
        raise ValueError(
            f"pad has {len(pairs)} pairs, input has shape {tuple(input.shape)}, and mode is {mode!r}; it pads 1 to 3 "
            "axes of an array that has one or two more"
        )
    lengths = [input.shape[axis] + sum(pair) for axis, pair in zip(axes, pairs, strict=True)]
    if mode != "circular" and (min(lengths) < 0 or max(lengths) < 1):
        raise ValueError(f"pad {tuple(pad)} leaves nothing of input, of shape {tuple(input.shape)}; take away less")
    input = autocasts(lambda input: input, name=f"pad {mode} {len(pairs)}d")(input)
    return _lengthened(input, axes, tuple(pairs), mode)


def _as_pairs(pad: Any) -> list[Pair]:
    """The pairs, that of the last axis first."""
    if not isinstance(pad, Sequence) or isinstance(pad, str):
        raise TypeError(f"pad is {pad!r}; give a tuple of pairs of integers, (before, after), the last axis first")
    try:
        items = [operator.index(item) for item in pad]
    except TypeError:
        raise TypeError(f"pad is {pad!r}; give integers") from None
    if len(items) % 2:
        raise ValueError(f"pad is {pad!r}; give pairs, (before, after), the last axis first")
    return list(zip(items[::2], items[1::2], strict=True))


def _axes_of(input: jax.Array, count: int, data_format: DataFormat | None) -> tuple[int, ...]:
    """The axes that so many pairs speak of, in their order."""
    if data_format is None:
        if count > input.ndim:
            raise ValueError(
                f"pad has {count} pairs, and input has shape {tuple(input.shape)}; give one an axis at most"
            )
        return tuple(range(input.ndim - 1, input.ndim - 1 - count, -1))
    layout = as_layout(data_format)
    spatial = input.ndim - 1 if data_format == layout else len(data_format) - 2  # NHWC has two
    if count > min(spatial, input.ndim - 1):
        raise ValueError(
            f"pad has {count} pairs, input has shape {tuple(input.shape)}, data_format is {data_format!r}; give one a "
            "spatial axis at most, or leave data_format out to speak of the axes as they are"
        )
    return spatial_axes(layout, input.ndim, count)[::-1]


def _constant(input: jax.Array, pairs: dict[int, Pair], value: float | None) -> jax.Array:
    for axis, (before, after) in pairs.items():
        length = input.shape[axis]
        if length + min(before, 0) + min(after, 0) < 0:
            raise ValueError(
                f"pad takes away {-min(before, 0)} and {-min(after, 0)} entries of axis {axis}, and input has shape "
                f"{tuple(input.shape)}; take away less"
            )
    fill = _as_fill(0 if value is None else value, input.dtype)

    def padded(x: jax.Array, rows: int) -> jax.Array:
        """Of what has so many rows to an entry of the axis before the last."""
        config = [(*pairs.get(axis, (0, 0)), 0) for axis in range(x.ndim)]
        if rows > 1:
            config[-2] = (rows * config[-2][0], rows * config[-2][1], 0)
        return lax.pad(x, fill, config)

    return _in_rows(padded, input, tuple(pairs))


def _in_rows(function: Callable[[jax.Array, int], jax.Array], x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    """`function(x, 1)`; on a CPU of `x` with channels cut into short rows, several to a position, if any.

    8x56x56x64 padded by zeros takes 190 us, as long as a copy, where it takes 280 as it is.
    """
    last = x.ndim - 1
    if last not in axes and last - 1 in axes and x.size and x.shape[-1] > LANES and x.shape[-1] % LANES == 0:
        channels = x.shape[-1]

        def in_rows(x: jax.Array) -> jax.Array:
            longer = function(x.reshape(*x.shape[:-2], -1, LANES), channels // LANES)
            return longer.reshape(*longer.shape[:-2], -1, channels)

        return lax.platform_dependent(x, cpu=in_rows, default=lambda x: function(x, 1))
    return function(x, 1)


def _as_fill(value: Any, dtype: jnp.dtype) -> np.ndarray:
    if not isinstance(value, numbers.Real | np.bool_):
        raise TypeError(f"value is {value!r}; give a number")
    if jnp.issubdtype(dtype, jnp.integer) and not np.isfinite(np.asarray(value)):
        raise ValueError(f"value is {value!r} and input is {dtype}, which has no such number")
    return np.asarray(value).astype(dtype)


# XLA's CPU backend pads 8x56x56x64 in 0.2 ms by pieces of short rows, in 0.3 by gathers and in 0.6 axis by axis, of
# which the transpose is the fastest.
@functools.partial(jax.custom_jvp, nondiff_argnums=(1, 2, 3))
def _lengthened(x: jax.Array, axes: tuple[int, ...], pairs: tuple[Pair, ...], mode: Mode) -> jax.Array:
    shape = jax.eval_shape(lambda x: _axis_by_axis(x, axes, pairs, mode), x).shape  # raises where numbers do not fit
    if not x.size or not all(shape):
        return _axis_by_axis(x, axes, pairs, mode)
    if any(max(before, 0) + max(after, 0) > MOST_ENTRIES for before, after in pairs):
        return _by_pieces(x, axes, pairs, mode)
    return _in_rows(lambda x, rows: _by_pieces(x, axes, pairs, mode, rows), x, axes)


@_lengthened.defjvp
def _lengthened_jvp(axes: tuple[int, ...], pairs: tuple[Pair, ...], mode: Mode, primals: Any, tangents: Any) -> Any:
    (x,), (change,) = primals, tangents
    return _lengthened(x, axes, pairs, mode), _axis_by_axis(change, axes, pairs, mode)


def _axis_by_axis(x: jax.Array, axes: tuple[int, ...], pairs: tuple[Pair, ...], mode: Mode) -> jax.Array:
    for axis, pair in zip(axes, pairs, strict=True):
        x = _LENGTHEN[mode](x, axis, *pair)
    return x


@compiled_once("axes", "pairs", "mode", "rows")
def _by_pieces(x: jax.Array, axes: tuple[int, ...], pairs: tuple[Pair, ...], mode: Mode, rows: int = 1) -> jax.Array:
    """Each edge and corner straight from `x`, which is one loop for all axes; an entry of the last is so many rows."""
    if not axes:
        return x
    axis, pair = min(zip(axes, pairs, strict=True))
    others = [one for one in zip(axes, pairs, strict=True) if one[0] != axis]
    parts, entry = [], rows if axis == x.ndim - 2 else 1
    entries = _positions(x.shape[axis] // entry, *pair, mode)
    for run in _runs((entries[:, None] * entry + np.arange(entry)).ravel()):
        part = lax.slice_in_dim(x, int(run.min()), int(run.max()) + 1, axis=axis)
        part = _by_pieces(part, tuple(a for a, _ in others), tuple(p for _, p in others), mode, rows)
        shape = (*part.shape[:axis], len(run), *part.shape[axis + 1 :])
        parts.append(lax.rev(part, (axis,)) if run[0] > run[-1] else jnp.broadcast_to(part, shape))
    return _joined(parts, axis)


def _runs(positions: np.ndarray) -> list[np.ndarray]:
    """Where neighbours differ by the same number: what is sliced, reversed or repeated."""
    steps = np.diff(positions)
    runs, start = [], 0
    while start < len(positions):
        end = start + 1
        while end < len(positions) and steps[end - 1] == steps[start] and abs(steps[start]) <= 1:
            end += 1
        runs.append(positions[start:end])
        start = end
    return runs


def _positions(length: int, before: int, after: int, mode: Mode) -> np.ndarray:
    """Where on an axis each entry of the longer one comes from."""
    cropped = slice(max(-before, 0), length - max(-after, 0))
    longer = (max(before, 0), max(after, 0))
    if mode == "circular":
        return np.pad(np.arange(length)[cropped], longer, "wrap")
    positions = np.pad(np.arange(length), longer, "reflect" if mode == "reflect" else "edge")
    return positions[cropped.start : len(positions) - max(-after, 0)]


def _reflected(x: jax.Array, axis: int, before: int, after: int) -> jax.Array:
    length = x.shape[axis]
    if max(before, after) >= length:
        raise ValueError(
            f"pad has ({before}, {after}) for axis {axis} of input, of length {length}; a reflection adds less"
        )
    parts = []
    if before > 0:
        parts.append(lax.rev(lax.slice_in_dim(x, 1, before + 1, axis=axis), (axis,)))
    parts.append(x)
    if after > 0:
        parts.append(lax.rev(lax.slice_in_dim(x, length - 1 - after, length - 1, axis=axis), (axis,)))
    return _cropped(_joined(parts, axis), axis, before, after)


def _replicated(x: jax.Array, axis: int, before: int, after: int) -> jax.Array:
    length = x.shape[axis]
    if not length:
        raise ValueError(f"input has shape {tuple(x.shape)}; an empty axis has no end to replicate")

    def repeated(index: int, count: int) -> jax.Array:
        end = lax.slice_in_dim(x, index, index + 1, axis=axis)
        return jnp.broadcast_to(end, (*x.shape[:axis], count, *x.shape[axis + 1 :]))

    parts = [repeated(0, before)] if before > 0 else []
    parts.append(x)
    if after > 0:
        parts.append(repeated(length - 1, after))
    return _cropped(_joined(parts, axis), axis, before, after)


def _circular(x: jax.Array, axis: int, before: int, after: int) -> jax.Array:
    length = x.shape[axis] + min(before, 0) + min(after, 0)
    if length < 0 or max(before, after) > length:
        raise ValueError(
            f"pad has ({before}, {after}) for axis {axis} of input, of length {x.shape[axis]}; a circle goes once "
            "around at most, so it adds no more than the axis has (once it is cropped)"
        )
    x = _cropped(x, axis, before, after)
    parts = [lax.slice_in_dim(x, length - before, length, axis=axis)] if before > 0 else []
    parts.append(x)
    if after > 0:
        parts.append(lax.slice_in_dim(x, 0, after, axis=axis))
    return _joined(parts, axis)


def _joined(parts: list[jax.Array], axis: int) -> jax.Array:
    return parts[0] if len(parts) == 1 else lax.concatenate(parts, axis)


def _cropped(x: jax.Array, axis: int, before: int, after: int) -> jax.Array:
    if before >= 0 and after >= 0:
        return x
    return lax.slice_in_dim(x, max(-before, 0), x.shape[axis] - max(-after, 0), axis=axis)


_LENGTHEN = {"reflect": _reflected, "replicate": _replicated, "circular": _circular}
