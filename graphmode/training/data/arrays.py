"""Batches of arrays in memory, or mapped from a file: each epoch in an order of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from .host import as_rows
from .source import EpochSource, as_epochs, as_number, epoch_seeds


class MaskedBatch(NamedTuple):
    """A batch of fixed size whose last rows may stand for nothing; a pytree.

    Attributes:
      batch: what a batch is without `pad_last`, `[B, ...]` each; where `valid` is false, copies of the last true row.
      valid: `[B]` bool, true where a row is one of the data.
    """

    batch: Any
    valid: np.ndarray


def from_arrays(
    arrays: Any,
    *,
    batch_size: int,
    seed: int = 0,
    shuffle: bool = True,
    drop_last: bool = True,
    pad_last: bool = False,
    epochs: int | None = None,
) -> ArraySource:
    """Batches of rows of numpy arrays.

    The order of an epoch depends on `seed` and the epoch's number alone (and on NumPy's generator, whose stream may
    change with NumPy's version), so a position is two numbers.

    Args:
      arrays: pytree of arrays `[N, ...]`, `np.memmap` too; tensors of PyTorch share their memory.
      batch_size: B, of all processes together where `shard` is used.
      seed: of the order, at least 0.
      shuffle: whether each epoch has an order of its own; without, batches are views of the arrays.
      drop_last: whether rows that fill no batch are left out of an epoch (others in each, when shuffled). If not, the
        last batch is smaller, which is one more compilation.
      pad_last: fills the last batch instead, whatever `drop_last` says: each batch is a `MaskedBatch`, and one shape
        serves for all. For evaluation, where each row must count once.
      epochs: how many; None for no end.

    Raises:
      ValueError: where the arrays differ in length, or there would be no batch.

    Example:
      >>> import numpy as np
      >>> data = {"x": np.arange(10.0).reshape(5, 2), "y": np.arange(5)}
      >>> batch = next(from_arrays(data, batch_size=2))
      >>> batch["x"].shape, bool((batch["x"][:, 0] == 2 * batch["y"]).all())
      ((2, 2), True)
      >>> [(b.tolist(), v.tolist()) for b, v in from_arrays(data["y"], batch_size=3, shuffle=False, pad_last=True,
      ...                                                    epochs=1)]
      [([0, 1, 2], [True, True, True]), ([3, 4, 4], [True, True, False])]
    """
    return ArraySource(arrays, batch_size, seed, shuffle, drop_last, pad_last, epochs)


class ArraySource(EpochSource):
    """From `from_arrays`."""

    kind = "arrays"

    def __init__(
        self,
        arrays: Any,
        batch_size: int,
        seed: int,
        shuffle: bool,
        drop_last: bool,
        pad_last: bool,
        epochs: int | None,
        shard: tuple[int, int] = (0, 1),
    ):
        self._arrays, self._rows = as_rows(arrays, name="arrays")
        self._size = as_number(batch_size, name="batch_size", least=1)
        self._seed = as_number(seed, name="seed", least=0)
        self._shuffle, self._drop_last, self._pad_last = shuffle, drop_last, pad_last
        self.epochs = as_epochs(epochs)
        self._shard, count = shard, shard[1]
        if self._rows == 0 or (drop_last and not pad_last and self._size > self._rows):
            raise ValueError(
                f"batch_size is {self._size}, and the arrays have {self._rows} rows, too few for one batch; give a "
                f"smaller batch_size, or pad_last=True or drop_last=False"
            )
        if self._size % count:
            raise ValueError(f"batch_size is {self._size}, no multiple of count, {count}; give one that is")
        left = self._rows % self._size
        if left % count and not (drop_last or pad_last):
            raise ValueError(
                f"the last batch has {left} rows, no multiple of count, {count}; give pad_last=True or drop_last=True"
            )

    def identity(self) -> dict[str, Any]:
        seed = self._seed if self._shuffle else None
        return {"rows": self._rows, "batch_size": self._size, "shuffle": self._shuffle, "seed": seed}

    @property
    def batches_per_epoch(self) -> int:
        whole = self._rows // self._size
        return whole if self._drop_last and not self._pad_last else -(-self._rows // self._size)

    def batches(self, epoch: int, start: int) -> Iterator[Any]:
        order = None
        if self._shuffle:
            order = np.random.default_rng(epoch_seeds(self._seed, epoch)).permutation(self._rows)
        for batch in range(start, self.batches_per_epoch):
            yield self._batch_of(order, batch * self._size)

    def sharded(self, index: int, count: int) -> ArraySource:
        if self._shard != (0, 1):
            raise ValueError("the source is one process's part already; shard the whole one")
        of = (self._arrays, self._size, self._seed, self._shuffle, self._drop_last, self._pad_last, self.epochs)
        part = ArraySource(*of, shard=(index, count))
        part.restore(self.state())
        return part

    def _batch_of(self, order: np.ndarray | None, first: int) -> Any:
        present = min(self._size, self._rows - first)
        size = self._size if self._pad_last else present
        index, count = self._shard
        mine = slice(index * size // count, (index + 1) * size // count)
        if order is None and size == present:
            return self._given(self._picked(slice(first + mine.start, first + mine.stop)), present, mine)
        slots = np.minimum(np.arange(mine.start, mine.stop), present - 1) + first
        return self._given(self._picked(slots if order is None else order[slots]), present, mine)

    def _picked(self, rows: Any) -> Any:
        return jax.tree.map(lambda array: array[rows], self._arrays)

    def _given(self, batch: Any, present: int, mine: slice) -> Any:
        return MaskedBatch(batch, np.arange(mine.start, mine.stop) < present) if self._pad_last else batch
