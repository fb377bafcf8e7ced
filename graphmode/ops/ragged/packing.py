"""Several sequences in one row: packed on the host, told apart by segment ids, kept apart in attention by a mask.

Segment ids are 0 in the padding and count from 1 in each row, the convention of T5X and MaxText.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ..arguments import OnOverflow, as_capacity, as_on_overflow
from ..bisection import bisected
from ..masking.padded import Padded, settled
from .padding import as_filling, as_lengths, as_sequences


class PackedSequences(NamedTuple):
    """Sequences laid end to end in rows, from `pack_sequences`; a pytree of numpy arrays.

    Attributes:
      values: `[R, L, ...]`.
      segment_ids: `[R, L]` int32: 1 for the first sequence of a row, 2 for the next; 0 in the padding.
      positions: `[R, L]` int32, counted from each sequence's start; 0 in the padding.
      rows: `[N]` int32, the row that holds each sequence.
      starts: `[N]` int32, where in that row it starts.
      lengths: `[N]` int32.
    """

    values: np.ndarray
    segment_ids: np.ndarray
    positions: np.ndarray
    rows: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray


def pack_sequences(
    sequences: Sequence[ArrayLike], *, length: int, rows: int | None = None, fill_value: float = 0
) -> PackedSequences:
    """Sequences packed into rows of one length, each whole and in one row: first fit, longest first.

    Runs on the host. First-fit decreasing needs at most 11/9 of the rows of the best packing, and one
    (Dósa, 2007). Feed `segment_ids` to `segment_mask`, and `positions` to the positional encoding.

    Args:
      sequences: arrays `[T_i, ...]` of one trailing shape; dtypes are promoted.
      length: of a row, L.
      rows: R, so that one graph serves all batches; without it, as many as are needed.
      fill_value: stands in the padding.

    Returns:
      `PackedSequences` of numpy arrays.

    Raises:
      ValueError: where a sequence is longer than a row, or more than `rows` are needed. Nothing is cut.

    Example:
      >>> packed = pack_sequences([[1, 1], [2, 2, 2], [3]], length=4)
      >>> packed.values.tolist(), packed.segment_ids.tolist()
      ([[2, 2, 2, 3], [1, 1, 0, 0]], [[1, 1, 1, 2], [1, 1, 0, 0]])
    """
    arrays = as_sequences(sequences)
    length = as_capacity(length, name="length")
    lengths = np.array([len(array) for array in arrays], np.int32)
    if lengths.max() > length:
        where = int(np.argmax(lengths > length))
        raise ValueError(
            f"sequences[{where}] has {lengths[where]} entries, and length is {length}; give at least {lengths.max()}, "
            f"the longest, or split it yourself: nothing is cut here"
        )
    row_of, starts, needed = _first_fit(lengths, length)
    if rows is None:
        rows = needed
    elif as_capacity(rows, name="rows") < needed:
        raise ValueError(f"rows is {rows}, and these sequences need {needed} of length {length}; give that many")
    dtype = arrays[0].dtype
    values = np.full((rows, length, *arrays[0].shape[1:]), as_filling(fill_value, dtype), dtype)
    segment_ids, positions = np.zeros((rows, length), np.int32), np.zeros((rows, length), np.int32)
    in_row = np.zeros(rows, np.int32)
    for i in np.lexsort((starts, row_of)):
        if not lengths[i]:
            continue
        row, place = row_of[i], slice(starts[i], starts[i] + lengths[i])
        in_row[row] += 1
        values[row, place] = arrays[i]
        segment_ids[row, place] = in_row[row]
        positions[row, place] = np.arange(lengths[i])
    return PackedSequences(values, segment_ids, positions, row_of, starts, lengths)


def unpack_sequences(values: ArrayLike, packed: PackedSequences) -> list[np.ndarray]:
    """The sequences out of their rows, on the host, in the order in which they were packed.

    Args:
      values: `[R, L, ...]`: `packed.values`, or what a model made of it.
      packed: where each sequence lies.

    Returns:
      N numpy arrays `[T_i, ...]`.

    Raises:
      ValueError: where values are not of `packed`'s rows and length.

    Example:
      >>> packed = pack_sequences([[1, 1], [2, 2, 2], [3]], length=4)
      >>> [sequence.tolist() for sequence in unpack_sequences(packed.values * 10, packed)]
      [[10, 10], [20, 20, 20], [30]]
    """
    values = np.asarray(values)
    shape = np.shape(packed.segment_ids)
    if values.shape[:2] != shape:
        raise ValueError(f"values has shape {values.shape}, and {(*shape, '...')} was wanted, as it was packed")
    places = zip(*(np.asarray(field) for field in (packed.rows, packed.starts, packed.lengths)), strict=True)
    return [values[row, start : start + size] for row, start, size in places]


def segment_ids(lengths: ArrayLike, *, capacity: int, on_overflow: OnOverflow = "flag") -> Padded[jax.Array]:
    """Which segment each entry is of, for segments laid end to end: `torch.repeat_interleave(arange(S) + 1, lengths)`.

    In the graph, unlike `pack_sequences`: the lengths may be traced. Subtract 1 for an index into the segments.

    Args:
      lengths: `[S]` integer; a negative one, an error in PyTorch, is one here where it is known, and else counts as 0.
      capacity: the most entries that there is room for.
      on_overflow: where the lengths sum to more, `"flag"` sets the count alone, `"raise"` raises `ValueError` once the
        graph has run.

    Returns:
      `Padded` of `[capacity]` int32: ids from 1, and 0 in the padding. The count is the sum of the lengths; at 2^31 - 1
      it stays.

    Raises:
      ValueError: where lengths are no integers `[S]`, or capacity or on_overflow do not fit.

    Example:
      >>> segment_ids([2, 0, 3], capacity=6).values.tolist()
      [1, 1, 3, 3, 3, 0]
    """
    lengths = as_lengths(lengths)
    capacity = as_capacity(capacity)
    as_on_overflow(on_overflow, jnp.dtype(jnp.int32))
    if lengths.ndim != 1:
        raise ValueError(f"lengths has shape {lengths.shape}, and [S] was wanted, one for each segment")
    if not isinstance(lengths, jax.core.Tracer) and np.any(np.asarray(lengths) < 0):
        raise ValueError(f"lengths holds {np.asarray(lengths).min()}; give none below 0")
    most = np.iinfo(np.int32).max

    def saturating_sum(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.where(a > most - b, most, a + b)

    ends = jax.lax.associative_scan(saturating_sum, jnp.clip(lengths, 0, most).astype(jnp.int32))
    count = ends[-1] if len(ends) else jnp.zeros((), jnp.int32)
    places = jnp.arange(capacity, dtype=jnp.int32)
    valid = places < count
    ids = bisected(ends, places, side="right") + 1
    return settled(Padded(jnp.where(valid, ids, 0), valid, count), on_overflow, "segment_ids")


def segment_mask(
    query_segment_ids: ArrayLike, key_segment_ids: ArrayLike | None = None, *, causal: bool = False
) -> jax.Array:
    """Which entries may attend to which in packed rows: those of the same segment, a mask of blocks on the diagonal.

    For `jax.nn.dot_product_attention(mask=segment_mask(ids)[:, None])`. An entry of the padding attends to nothing.

    Args:
      query_segment_ids: `[..., T]` integer, 0 in the padding.
      key_segment_ids: `[..., S]` integer; without it, those of the queries.
      causal: whether an entry attends to none behind it in the row; only without keys of their own.

    Returns:
      `[..., T, S]` bool.

    Raises:
      ValueError: where ids are no integers, or `causal` is given with `key_segment_ids`.

    Example:
      >>> segment_mask([1, 1, 2, 0], causal=True).astype(int).tolist()
      [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    """
    queries = as_lengths(query_segment_ids, name="query_segment_ids")
    if causal and key_segment_ids is not None:
        raise ValueError(
            "causal is True with key_segment_ids, whose order is unknown; combine the masks yourself with &"
        )
    keys = queries if key_segment_ids is None else as_lengths(key_segment_ids, name="key_segment_ids")
    for name, ids in (("query_segment_ids", queries), ("key_segment_ids", keys)):
        if not ids.ndim:
            raise ValueError(f"{name} is a scalar, and [..., T] was wanted")
    if queries.shape[:-1] != keys.shape[:-1]:
        raise ValueError(
            f"query_segment_ids has shape {queries.shape} and key_segment_ids {keys.shape}; make batches agree"
        )
    mask = (queries[..., :, None] == keys[..., None, :]) & (queries[..., :, None] > 0)
    if causal:
        steps = jnp.arange(queries.shape[-1])
        mask &= steps[:, None] >= steps
    return mask


def _first_fit(lengths: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Row and start of each sequence, longest first, and the number of rows, at least one."""
    room = np.full(len(lengths), length, np.int64)
    rows, starts = np.zeros(len(lengths), np.int32), np.zeros(len(lengths), np.int32)
    used = 1
    for i in np.argsort(-lengths, kind="stable"):
        row = int(np.argmax(room[: used + 1] >= lengths[i]))
        rows[i], starts[i] = row, length - room[row]
        room[row] -= lengths[i]
        used = max(used, row + 1)
    return rows, starts, used


jax.export.register_namedtuple_serialization(PackedSequences, serialized_name="graphmode.PackedSequences")
