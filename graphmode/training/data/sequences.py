"""Batches of sequences of many lengths, in few shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike

from ...ops.ragged.buckets import batches_by_bucket, bucket_for, bucket_lengths
from ...ops.ragged.padding import Side
from .host import as_rows
from .source import EpochSource, as_epochs, as_number, epoch_seeds, skipped


def from_sequences(
    sequences: Sequence[ArrayLike],
    *,
    batch_size: int | Callable[[int], int],
    buckets: int | Sequence[int],
    arrays: Any = None,
    multiple_of: int = 1,
    seed: int = 0,
    shuffle: bool = True,
    side: Side = "right",
    fill_value: float = 0,
    epochs: int | None = None,
) -> SequenceSource:
    """Batches of sequences that share a length to pad to: as many compilations as there are buckets.

    `gm.ops.ragged.batches_by_bucket` in an order of its own for each epoch. Every sequence comes exactly once an epoch;
    buckets that are not full at its end are filled with empty rows.

    Args:
      sequences: N arrays `[T_i, ...]`.
      batch_size: B, or B for a bucket's length, as `lambda length: 8192 // length`.
      buckets: the lengths to pad to, or how many there may be, chosen then by `bucket_lengths` for the least padding.
      arrays: pytree of arrays `[N, ...]` whose rows go with the sequences, as labels; zeros in empty rows.
      multiple_of: what lengths that are chosen here must be multiples of.
      seed: of the order.
      shuffle: whether each epoch has an order of its own.
      side: where the padding goes.
      fill_value: stands in the padding.
      epochs: how many; None for no end.

    Returns:
      A source of `BucketBatch`, whose `indices` are those of `sequences`; with `arrays`, of pairs of it and the rows.

    Raises:
      ValueError: where a sequence fits in no bucket, or there are none.

    Example:
      >>> source = from_sequences([[1], [2, 3, 4], [5, 6]], batch_size=2, buckets=(2, 4), shuffle=False, epochs=1)
      >>> [batch.values.tolist() for _, batch in source]
      [[[1, 0], [5, 6]], [[2, 3, 4, 0], [0, 0, 0, 0]]]
    """
    return SequenceSource(
        sequences, batch_size, buckets, arrays, multiple_of, seed, shuffle, side, fill_value, as_epochs(epochs)
    )


class SequenceSource(EpochSource):
    """From `from_sequences`.

    Attributes:
      lengths: of the buckets.
    """

    kind = "sequences"

    def __init__(
        self,
        sequences: Sequence[ArrayLike],
        batch_size: int | Callable[[int], int],
        buckets: int | Sequence[int],
        arrays: Any,
        multiple_of: int,
        seed: int,
        shuffle: bool,
        side: Side,
        fill_value: float,
        epochs: int | None,
    ):
        self._sequences = sequences
        known = np.array([len(np.asarray(sequence)) for sequence in sequences], np.int64)
        if not known.size:
            raise ValueError("sequences is empty, and at least one array [T, ...] was wanted")
        if isinstance(buckets, int | np.integer):
            self.lengths = bucket_lengths(known, buckets=buckets, multiple_of=multiple_of)
        else:
            self.lengths = tuple(sorted({as_number(length, name="buckets", least=1) for length in buckets}))
        bucket_for(int(known.max()), self.lengths)
        sizes = [batch_size(length) if callable(batch_size) else batch_size for length in self.lengths]
        self._sizes = [as_number(size, name="batch_size", least=1) for size in sizes]
        held = np.bincount(np.searchsorted(self.lengths, known), minlength=len(self.lengths))
        self._batches = int(sum(-(-held // np.array(self._sizes))))
        self._arrays = None
        if arrays is not None:
            self._arrays, rows = as_rows(arrays, name="arrays")
            if rows != len(known):
                raise ValueError(f"arrays have {rows} rows, and there are {len(known)} sequences; give one row each")
        self._seed, self._shuffle = as_number(seed, name="seed", least=0), shuffle
        self._side, self._fill_value = side, fill_value
        self.epochs = epochs

    def identity(self) -> dict[str, Any]:
        return {
            "sequences": len(self._sequences),
            "buckets": list(self.lengths),
            "batch_sizes": self._sizes,
            "shuffle": self._shuffle,
            "seed": self._seed if self._shuffle else None,
        }

    @property
    def batches_per_epoch(self) -> int:
        return self._batches

    def batches(self, epoch: int, start: int) -> Iterator[Any]:
        order = np.arange(len(self._sequences), dtype=np.int32)
        if self._shuffle:
            np.random.default_rng(epoch_seeds(self._seed, epoch)).shuffle(order)
        named = np.append(order, np.int32(len(order)))  # a row that only fills a batch keeps its index out of range
        sizes = dict(zip(self.lengths, self._sizes, strict=True))
        padded = batches_by_bucket(
            (self._sequences[int(i)] for i in order),
            lengths=self.lengths,
            batch_size=sizes.__getitem__,
            side=self._side,
            fill_value=self._fill_value,
        )
        for batch in skipped(padded, start):
            # at the end `batches_by_bucket` numbers empty rows by how many sequences it has seen, all of them
            batch = batch._replace(indices=named[batch.indices])
            yield batch if self._arrays is None else (batch, self._rows_of(batch.indices))

    def _rows_of(self, indices: np.ndarray) -> Any:
        there = indices < len(self._sequences)

        def picked(array: np.ndarray) -> np.ndarray:
            rows = np.zeros((len(indices), *array.shape[1:]), array.dtype)
            rows[there] = array[indices[there]]
            return rows

        return jax.tree.map(picked, self._arrays)
