"""Few lengths for sequences of many: each bucket is one more graph to compile, and each saves padding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from ..arguments import as_capacity
from .padding import PaddedBatch, Side, pad_sequences


class BucketBatch(NamedTuple):
    """A batch of one bucket, from `batches_by_bucket`.

    Attributes:
      indices: `[B]` int32, which sequence each row holds; in rows that only fill the batch the number of sequences, an
        index out of range.
      batch: `PaddedBatch` of `[B, T, ...]`; rows that only fill the batch have length 0 and no true mark.
    """

    indices: np.ndarray
    batch: PaddedBatch


def bucket_lengths(lengths: Sequence[int] | np.ndarray, *, buckets: int, multiple_of: int = 1) -> tuple[int, ...]:
    """At most `buckets` lengths to pad to, chosen so that the padding of these sequences is the least possible.

    Exact, by dynamic programming over the distinct lengths: give a sample where there are many thousands of those, or
    a larger `multiple_of`.

    Args:
      lengths: of the sequences, at least one.
      buckets: the most lengths, hence graphs, that there may be.
      multiple_of: what each must be a multiple of.

    Returns:
      In growing order; the last one holds the longest sequence.

    Raises:
      ValueError: where there are no lengths, or negative ones.

    Example:
      >>> bucket_lengths([3, 4, 5, 30, 31, 100], buckets=3)
      (5, 31, 100)
    """
    known = np.asarray(lengths)
    if known.ndim != 1 or not known.size or not np.issubdtype(known.dtype, np.integer) or known.min() < 0:
        raise ValueError(
            f"lengths is {known.dtype}{list(known.shape)}, and at least one integer, none of them negative, was wanted"
        )
    buckets = as_capacity(buckets, name="buckets")
    multiple_of = as_capacity(multiple_of, name="multiple_of")
    rounded = np.maximum(-(-known.astype(np.int64) // multiple_of), 1) * multiple_of
    distinct, times = np.unique(rounded, return_counts=True)
    before = np.concatenate([[0], np.cumsum(times)])
    # padded[j]: entries, padding included, of the j shortest distinct lengths in the buckets so far
    padded = np.full(len(distinct) + 1, np.inf)
    padded[0] = 0
    choices = []
    for _ in range(min(buckets, len(distinct))):
        extended, choice = padded.copy(), np.full(len(distinct) + 1, -1)
        for j in range(1, len(distinct) + 1):
            totals = padded[:j] + distinct[j - 1] * (before[j] - before[:j])
            best = int(np.argmin(totals))
            if totals[best] < extended[j]:
                extended[j], choice[j] = totals[best], best
        padded = extended
        choices.append(choice)
    chosen, j = [], len(distinct)
    for choice in reversed(choices):
        if choice[j] >= 0:
            chosen.append(int(distinct[j - 1]))
            j = int(choice[j])
    return tuple(reversed(chosen))


def geometric_lengths(shortest: int, longest: int, *, ratio: float = 2.0, multiple_of: int = 1) -> tuple[int, ...]:
    """Lengths that grow by a ratio: no sequence is padded to much more than `ratio` times itself, whatever comes.

    Args:
      shortest: the first bucket holds it.
      longest: the last bucket holds it.
      ratio: of a length to the one before, above 1.
      multiple_of: what each must be a multiple of.

    Returns:
      In growing order.

    Raises:
      ValueError: where `longest` is below `shortest`, or the ratio no more than 1.

    Example:
      >>> geometric_lengths(16, 100, multiple_of=8)
      (16, 32, 64, 104)
    """
    shortest, longest = as_capacity(shortest, name="shortest"), as_capacity(longest, name="longest")
    multiple_of = as_capacity(multiple_of, name="multiple_of")
    if longest < shortest:
        raise ValueError(f"longest is {longest}, and shortest is {shortest}; give it at least that")
    if not 1 < ratio < np.inf:
        raise ValueError(f"ratio is {ratio}; give more than 1, as 2 for lengths that double")

    def rounded(length: float) -> int:
        return -(-int(np.ceil(length)) // multiple_of) * multiple_of

    lengths, exact = [], float(shortest)
    while exact < longest:
        lengths.append(rounded(exact))
        exact *= ratio
    return tuple(sorted({*(length for length in lengths if length < longest), rounded(longest)}))


def bucket_for(length: int, lengths: Sequence[int]) -> int:
    """The smallest of `lengths` that holds a sequence of this length.

    Raises:
      ValueError: where none does; nothing is cut.

    Example:
      >>> bucket_for(17, (16, 32, 64))
      32
    """
    fitting = [int(bucket) for bucket in lengths if bucket >= length]
    if not fitting:
        raise ValueError(
            f"a sequence has {length} entries, and the longest of lengths is {max(lengths, default=None)}; add a "
            f"longer bucket, or cut the sequence yourself: nothing is cut here"
        )
    return min(fitting)


def batches_by_bucket(
    sequences: Iterable[ArrayLike],
    *,
    lengths: Sequence[int],
    batch_size: int | Callable[[int], int],
    side: Side = "right",
    fill_value: float = 0,
) -> Iterator[BucketBatch]:
    """Batches of sequences that share a bucket, each of a fixed size: as many compiled graphs as there are buckets.

    A bucket is given out once it is full, the others at the end, shortest first, filled with empty rows: every sequence
    comes exactly once.

    Args:
      sequences: arrays `[T_i, ...]`, also from a generator.
      lengths: of the buckets, as from `bucket_lengths` or `geometric_lengths`.
      batch_size: B; or B for a bucket's length, as `lambda length: 8192 // length` for about as many entries in each.
      side: where the padding goes.
      fill_value: stands in the padding.

    Yields:
      `BucketBatch`; `batch.mask.any(1)` marks the rows that hold a sequence of at least one entry.

    Raises:
      ValueError: where a sequence fits in no bucket.

    Example:
      >>> for indices, batch in batches_by_bucket([[1], [2, 3, 4], [5, 6]], lengths=(2, 4), batch_size=2):
      ...     print(indices.tolist(), batch.values.tolist())
      [0, 2] [[1, 0], [5, 6]]
      [1, 3] [[2, 3, 4, 0], [0, 0, 0, 0]]
    """
    sizes = {
        as_capacity(length, name="lengths"): as_capacity(
            batch_size(length) if callable(batch_size) else batch_size, name="batch_size"
        )
        for length in lengths
    }
    waiting: dict[int, list[tuple[int, np.ndarray]]] = {length: [] for length in sorted(sizes)}
    seen = 0

    def given_out(length: int) -> BucketBatch:
        indices, arrays = zip(*waiting[length], strict=True)
        filling = sizes[length] - len(arrays)
        empty = [arrays[0][:0]] * filling
        batch = pad_sequences([*arrays, *empty], length=length, side=side, fill_value=fill_value)
        waiting[length] = []
        return BucketBatch(np.array([*indices, *[seen] * filling], np.int32), batch)

    for seen, sequence in enumerate(sequences, 1):
        array = np.asarray(sequence)
        if array.ndim == 0:
            raise ValueError(f"sequences[{seen - 1}] is a scalar, and an array [T, ...] was wanted")
        length = bucket_for(len(array), list(sizes))
        waiting[length].append((seen - 1, array))
        if len(waiting[length]) == sizes[length]:
            yield given_out(length)
    for length in waiting:
        if waiting[length]:
            yield given_out(length)
