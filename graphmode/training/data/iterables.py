"""Whatever gives batches as a source: by its position where it has one, by counting where not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from .grain_loader import from_grain
from .host import as_host
from .source import BatchSource, EpochSource, as_epochs, skipped
from .torch_loader import from_torch


def as_source(data: Any, *, seed: int = 0, epochs: int | None = None) -> BatchSource:
    """A source of any of these: a source; a DataLoader of PyTorch's; Grain's; an iterable, function or iterator.

    A position of an iterable, as a list of batches or a `tf.data` pipeline, counts batches: `restore` begins its epoch
    again and drops as many, so the iterable must give the same ones. A function is called without arguments for each
    epoch. An iterator that can be read only once, as a generator, counts too, and `restore` refuses to go elsewhere
    than where it stands.

    Args:
      data: as above. A tuple, dict or array would be one batch, and is refused.
      seed: for a DataLoader, see `from_torch`.
      epochs: how many; None for no end, and for what has its own number of epochs.

    Raises:
      TypeError: where `data` gives no batches.
      ValueError: where `epochs` is given for what has its own number.

    Example:
      >>> import numpy as np
      >>> source = as_source([np.zeros(2), np.ones(2)], epochs=1)
      >>> source.restore({"kind": "iterable", "epoch": 0, "batch": 1, "batches": 2})
      >>> [batch.tolist() for batch in source]
      [[1.0, 1.0]]
    """
    torch, grain = sys.modules.get("torch"), sys.modules.get("grain")
    if torch is not None and isinstance(data, torch.utils.data.DataLoader):
        return from_torch(data, seed=seed, epochs=epochs)
    if grain is not None and isinstance(data, grain.DataLoader | grain.MapDataset | grain.IterDataset):
        return from_grain(data, epochs=epochs)
    if isinstance(data, BatchSource | Iterator):
        if epochs is not None:
            raise ValueError(f"epochs is {epochs}, and a {type(data).__name__} has its own number; leave epochs out")
        return data if isinstance(data, BatchSource) else IteratorSource(data)
    if isinstance(data, tuple | Mapping | np.ndarray | jax.Array | str | bytes) or hasattr(data, "detach"):
        raise TypeError(
            f"data is a {type(data).__name__}, which is one batch, and something that gives batches was wanted; give "
            f"from_arrays(data, batch_size=...), or [data] for this one batch"
        )
    if isinstance(data, Iterable) or callable(data):
        return IterableSource(data, as_epochs(epochs))
    raise TypeError(
        f"data is a {type(data).__name__}, and something that gives batches was wanted: from_arrays(...), a "
        f"DataLoader, a Grain dataset, an iterable or an iterator"
    )


class IterableSource(EpochSource):
    """Of an iterable, or a function that gives an iterator, each time from the beginning."""

    kind = "iterable"

    def __init__(self, data: Iterable[Any] | Callable[[], Iterator[Any]], epochs: int | None):
        self._data, self.epochs = data, epochs
        # only a list is known to keep its word
        self._batches = len(data) if isinstance(data, list) else None
        if self._batches == 0:
            raise ValueError("data is an empty list, which has no batch; give some")

    def identity(self) -> dict[str, Any]:
        return {"batches": self._batches}

    @property
    def batches_per_epoch(self) -> int | None:
        return self._batches

    def batches(self, epoch: int, start: int) -> Iterator[Any]:
        running = self._data() if callable(self._data) and not isinstance(self._data, Iterable) else self._data
        return (as_host(batch) for batch in skipped(iter(running), start))


class IteratorSource(EpochSource):
    """Of an iterator that can be read once."""

    kind = "iterator"
    epochs = 1

    def __init__(self, data: Iterator[Any]):
        self._data = data

    @property
    def _origin(self) -> Any:
        return self._data

    def batches(self, epoch: int, start: int) -> Iterator[Any]:
        return map(as_host, self._data)

    def restore(self, state: Mapping[str, Any]) -> None:
        before = self.epoch, self._batch
        super().restore(state)
        if (self.epoch, self._batch) != before:
            wanted = self._batch
            self._move(*before)
            raise ValueError(
                f"state is of batch {wanted}, and this iterator, which can be read only once, stands at batch "
                f"{before[1]}; give an iterable or a function that begins anew, or skip the batches yourself and leave "
                f"restore out"
            )

    def restart(self) -> None:
        raise ValueError("the iterator is at its end and can be read only once; give an iterable or a function")
