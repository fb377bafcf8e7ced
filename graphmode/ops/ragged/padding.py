"""Ragged batches: sequences of different lengths in one array, padded on the host, with the mask that tells.

A static graph is compiled once for each length, so pad to few lengths: `buckets.py` chooses them, and `packing.py` lays
several sequences in one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ..arguments import as_capacity
from ..host.checks import check

Side = Literal["right", "left"]


class PaddedBatch(NamedTuple):
    """Sequences side by side, from `pad_sequences`; a pytree of numpy arrays, ready for a compiled function.

    Attributes:
      values: `[B, T, ...]`; what stands where `mask` is false means nothing.
      lengths: `[B]` int32.
      mask: `[B, T]` bool, true where an entry is.
    """

    values: np.ndarray
    lengths: np.ndarray
    mask: np.ndarray


def pad_sequences(
    sequences: Sequence[ArrayLike],
    *,
    length: int | None = None,
    multiple_of: int = 1,
    side: Side = "right",
    fill_value: float = 0,
) -> PaddedBatch:
    """Sequences padded to one length: `torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True)`, with their mask.

    Runs on the host, before the graph. The length decides which graph is compiled: give one of few lengths, as
    `bucket_for` does.

    Args:
      sequences: arrays `[T_i, ...]` of one trailing shape; dtypes are promoted.
      length: T; without it, the longest, rounded up to a multiple.
      multiple_of: what T must be a multiple of.
      side: where the padding goes, `"right"` or `"left"`, as `padding_side` in PyTorch.
      fill_value: stands in the padding.

    Returns:
      `PaddedBatch` of numpy arrays.

    Raises:
      ValueError: where there is no sequence, one is longer than `length`, or shapes do not fit. Nothing is cut.

    Example:
      >>> batch = pad_sequences([[1, 2, 3], [4]], multiple_of=4)
      >>> batch.values.tolist(), batch.lengths.tolist()
      ([[1, 2, 3, 0], [4, 0, 0, 0]], [3, 1])
    """
    arrays = as_sequences(sequences)
    multiple_of = as_capacity(multiple_of, name="multiple_of")
    longest = max(map(len, arrays))
    if length is None:
        length = -(-longest // multiple_of) * multiple_of
    else:
        length = as_capacity(length, name="length")
        if length % multiple_of:
            raise ValueError(f"length is {length}, no multiple of multiple_of, {multiple_of}; round one of them")
        if longest > length:
            where = next(i for i, array in enumerate(arrays) if len(array) > length)
            raise ValueError(
                f"sequences[{where}] has {len(arrays[where])} entries, and length is {length}; give at least "
                f"{longest}, the longest, or cut it yourself: nothing is cut here"
            )
    dtype = arrays[0].dtype
    values = np.full((len(arrays), length, *arrays[0].shape[1:]), as_filling(fill_value, dtype), dtype)
    lengths = np.array([len(array) for array in arrays], np.int32)
    mask = _mask(np, lengths, length, side)
    values[mask] = np.concatenate(arrays)
    return PaddedBatch(values, lengths, mask)


def unpad_sequences(values: ArrayLike, mask: ArrayLike) -> list[np.ndarray]:
    """The sequences of a padded batch, on the host: `torch.nn.utils.rnn.unpad_sequence` with `batch_first=True`.

    Args:
      values: `[B, T, ...]`, of `pad_sequences` or what a model made of it.
      mask: `[B, T]` bool.

    Returns:
      B numpy arrays `[T_i, ...]`.

    Example:
      >>> batch = pad_sequences([[1, 2, 3], [4]])
      >>> [sequence.tolist() for sequence in unpad_sequences(batch.values * 2, batch.mask)]
      [[2, 4, 6], [8]]
    """
    values, mask = np.asarray(values), np.asarray(mask)
    if mask.dtype != np.bool_ or mask.ndim != 2 or values.shape[:2] != mask.shape:
        raise ValueError(
            f"values has shape {values.shape} and mask is {mask.dtype}{list(mask.shape)}; "
            f"give [B, T, ...] and bool [B, T]"
        )
    return [row[there] for row, there in zip(values, mask, strict=True)]


def lengths_to_mask(lengths: ArrayLike, length: int, *, side: Side = "right", strict: bool = False) -> jax.Array:
    """Where entries are, of sequences of these lengths: `torch.arange(length) < lengths[:, None]`.

    Args:
      lengths: `[...]` integer.
      length: of the axis that is added, T.
      side: where the padding is.
      strict: whether lengths that are traced are checked too: `ValueError` once the graph has run.

    Returns:
      `[..., T]` bool.

    Raises:
      ValueError: where a length is known and does not fit in T, or is negative; where lengths are no integers.

    Example:
      >>> lengths_to_mask([1, 3], 3).tolist()
      [[True, False, False], [True, True, True]]
    """
    lengths = as_lengths(lengths)
    length = as_capacity(length, name="length")
    problem = "lengths_to_mask: lengths are from {least} to {most}, and length is {length}; pad to at least {most}"
    if not isinstance(lengths, jax.core.Tracer):
        known = np.asarray(lengths)
        if known.size and (known.min() < 0 or known.max() > length):
            raise ValueError(problem.format(least=known.min(), most=known.max(), length=length))
    elif strict and lengths.size:
        least, most = jnp.min(lengths), jnp.max(lengths)
        check((least >= 0) & (most <= length), problem, least=least, most=most, length=length)
    return _mask(jnp, lengths, length, side)


def as_sequences(sequences: Sequence[ArrayLike]) -> list[np.ndarray]:
    """Numpy arrays `[T_i, ...]` of one dtype and trailing shape, at least one."""
    arrays = [np.asarray(sequence) for sequence in sequences]
    if not arrays:
        raise ValueError("sequences is empty, and at least one array [T, ...] was wanted")
    # An empty list says nothing of its dtype.
    telling = [array.dtype for array, given in zip(arrays, sequences, strict=True) if array.size or not _is_list(given)]
    dtype = telling[0] if telling else arrays[0].dtype
    for other in telling[1:]:
        dtype = dtype if dtype == other else np.promote_types(dtype, other)
    shapes = {array.shape[1:] for array in arrays}
    for i, array in enumerate(arrays):
        if array.ndim == 0 or not (jnp.issubdtype(array.dtype, jnp.number) or array.dtype == np.bool_):
            raise ValueError(f"sequences[{i}] is {array.dtype}{list(array.shape)}, and numbers [T, ...] were wanted")
        if len(shapes) > 1 and array.shape[1:] != arrays[0].shape[1:]:
            raise ValueError(
                f"sequences[{i}] has entries of shape {array.shape[1:]}, and sequences[0] of {arrays[0].shape[1:]}; "
                f"only the first axis may differ"
            )
    return [array.astype(dtype, copy=False) for array in arrays]


def as_filling(fill_value: Any, dtype: np.dtype) -> np.ndarray:
    """`fill_value` in `dtype`, which must be able to hold it."""
    given = np.asarray(fill_value)
    with np.errstate(over="ignore", invalid="ignore"):
        cast = given.astype(dtype)
    if given.ndim or (not jnp.issubdtype(dtype, jnp.inexact) and not np.array_equal(cast, given)):
        raise ValueError(f"fill_value is {fill_value!r}, and one number that {dtype} can hold was wanted")
    return cast


def as_lengths(lengths: ArrayLike, *, name: str = "lengths") -> jax.Array:
    """Integers."""
    array = jnp.asarray(lengths)
    if not jnp.issubdtype(array.dtype, jnp.integer):
        raise ValueError(f"{name} has dtype {array.dtype}, and integers were wanted")
    return array.astype(jnp.promote_types(array.dtype, jnp.int32))


def _is_list(given: Any) -> bool:
    return isinstance(given, list | tuple)


def _mask(numpy: Any, lengths: Any, length: int, side: str) -> Any:
    if side not in get_args(Side):
        raise ValueError(f"side is {side!r}; choose 'right' or 'left', where the padding goes")
    steps = numpy.arange(length, dtype=np.int32)
    steps = steps if side == "right" else length - 1 - steps
    return steps < lengths[..., None]


jax.export.register_namedtuple_serialization(PaddedBatch, serialized_name="graphmode.PaddedBatch")
