"""Grain's loaders and datasets as a source: the position is that of Grain's own iterator."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .host import as_host
from .source import EPOCH_END, BatchSource, as_epochs, position_of

if TYPE_CHECKING:
    import grain


def from_grain(
    data: grain.DataLoader | grain.MapDataset[Any] | grain.IterDataset[Any], *, epochs: int | None = None
) -> GrainSource:
    """Batches of a Grain loader or dataset, which gives batches itself (`.batch(...)`, `grain.transforms.Batch`).

    A `MapDataset` is repeated, shuffled anew in each epoch. A `DataLoader` or an `IterDataset` has its epochs in itself
    (`IndexSampler(num_epochs=...)`, `.repeat(...)`), so here it counts as one.

    Args:
      data: what to read.
      epochs: of a `MapDataset`, how many; None for no end.

    Raises:
      ValueError: where epochs are given for data that hold their own, or the data have no batch.
      ImportError: where Grain is not installed.

    Source: https://google-grain.readthedocs.io

    Example:
      >>> import grain, numpy as np
      >>> data = grain.MapDataset.source(np.arange(6)).seed(1).shuffle().batch(2)
      >>> source = from_grain(data, epochs=1)
      >>> sorted(np.concatenate(list(source)).tolist())
      [0, 1, 2, 3, 4, 5]
    """
    return GrainSource(data, as_epochs(epochs))


class GrainSource(BatchSource):
    """From `from_grain`."""

    epochs: int | None = None

    def __init__(self, data: Any, epochs: int | None):
        try:
            import grain
        except ImportError as error:
            raise ImportError("from_grain needs Grain: pip install 'graphmode[train]'") from error
        self._batches = None
        if isinstance(data, grain.MapDataset):
            self._batches, self.epochs = len(data), epochs
            if not self._batches:
                raise ValueError("data has no batch; give a dataset that has some")
            data = data.repeat(epochs).to_iter_dataset()
            self._layout = "MapDataset"
        elif isinstance(data, grain.IterDataset | grain.DataLoader):
            self._layout = "DataLoader" if isinstance(data, grain.DataLoader) else "IterDataset"
            if epochs is not None:
                raise ValueError(
                    f"epochs is {epochs}, and a Grain {self._layout} has its epochs in itself; leave epochs out, and "
                    f"give IndexSampler(num_epochs=...) or MapDataset.repeat(...)"
                )
            self.epochs = 1
        else:
            raise TypeError(
                f"data is a {type(data).__name__}, and a grain.DataLoader, MapDataset or IterDataset was wanted"
            )
        self._data = data
        self._iterator: Any = None
        self._resumed: Any = None
        self._epoch, self._batch = 0, 0

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def batches_per_epoch(self) -> int | None:
        return self._batches

    def advance(self) -> Any:
        iterator = self._opened()
        try:
            batch = next(iterator)
        except StopIteration:
            if (self._epoch, self._batch) == (0, 0):
                raise ValueError("data has no batch; give a dataset that has some") from None
            self._epoch, self._batch = (self.epochs or self._epoch + 1), 0
            return EPOCH_END
        self._batch += 1
        if self._batches is not None:
            # by index, since a filter leaves some out
            self._epoch, self._batch = divmod(iterator.get_state()["next_index"], self._batches)
        return as_host(batch)

    def state(self) -> dict[str, Any]:
        return {
            "kind": "grain",
            "epoch": self._epoch,
            "batch": self._batch,
            "data": self._layout,
            "batches": self._batches,
            "iterator": _written(self._opened().get_state()),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        epoch, batch = position_of(state, "grain", {"data": self._layout, "batches": self._batches})
        if self.epochs is not None and (epoch, batch) > (self.epochs, 0):
            raise ValueError(f"state is of epoch {epoch}, batch {batch}, and this source has {self.epochs} epochs")
        iterator = iter(self._data)
        try:
            iterator.set_state(_read(state.get("iterator")))
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise ValueError(f"Grain refuses the state's iterator; is it the same data? {error}") from error
        self.close()
        self._iterator, self._epoch, self._batch, self._ended = iterator, epoch, batch, False

    def restart(self) -> None:
        self.close()
        self._resumed, self._epoch, self._batch = None, 0, 0

    def close(self) -> None:
        if self._iterator is not None:
            self._resumed = self._iterator.get_state()
            if hasattr(self._iterator, "close"):
                self._iterator.close()
            self._iterator = None

    def _opened(self) -> Any:
        if self._iterator is None:
            self._iterator = iter(self._data)
            if self._resumed is not None:
                self._iterator.set_state(self._resumed)
        return self._iterator


def _written(state: Any) -> Any:
    """An iterator's state for `json`: the text of bytes, a dict as it is."""
    if isinstance(state, bytes):
        return {"bytes": state.decode("utf-8")}

    def plain(value: Any) -> Any:
        if isinstance(value, np.generic | np.ndarray):
            return value.tolist()
        raise TypeError(f"Grain's iterator holds a {type(value).__name__} in its state, which JSON cannot")

    return json.loads(json.dumps(state, default=plain))


def _read(written: Any) -> Any:
    if isinstance(written, Mapping) and set(written) == {"bytes"}:
        return written["bytes"].encode("utf-8")
    return written
