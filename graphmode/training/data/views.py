"""Sources made of another one: mapped, in groups for several steps a launch, one process's part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, get_args

import jax
import numpy as np

from .arrays import ArraySource
from .host import check_holds_arrays
from .iterables import as_source
from .source import EPOCH_END, BatchSource, as_number

Remainder = Literal["carry", "short", "drop"]


class View(BatchSource):
    """A source by another one, whose positions are its own: a state of either restores the other.

    Batches that were taken and not yet given, because something raised, are held, and the position is before them.
    """

    def __init__(self, source: Any):
        self._source = as_source(source)
        self._held: list[Any] = []
        self._before: dict[str, Any] = {}

    def _take(self) -> bool:
        """Holds one more batch; false where the epoch was over."""
        if not self._held:
            self._before = self._source.state()
        batch = self._source.advance()
        if batch is EPOCH_END:
            return False
        self._held.append(batch)
        return True

    # shared, so that what one view read to its end begins again under another
    @property
    def _ended(self) -> bool:
        return self._source._ended

    @_ended.setter
    def _ended(self, ended: bool) -> None:
        self._source._ended = ended

    @property
    def _origin(self) -> Any:
        return self._source._origin

    @property
    def epoch(self) -> int:
        return self._before["epoch"] if self._held else self._source.epoch

    @property
    def finished(self) -> bool:
        return not self._held and self._source.finished

    def one_epoch(self) -> Iterator[Any]:
        self._source.one_epoch()  # some refuse; none begins before the first batch is asked for
        return super().one_epoch()

    @property
    def epochs(self) -> int | None:
        return self._source.epochs

    @property
    def batches_per_epoch(self) -> int | None:
        return self._source.batches_per_epoch

    def state(self) -> dict[str, Any]:
        return self._before if self._held else self._source.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        self._source.restore(state)
        self._held = []

    def restart(self) -> None:
        self._source.restart()
        self._held = []

    def close(self) -> None:
        self._source.close()


def mapped(source: Any, fn: Callable[[Any], Any]) -> Mapped:
    """Each batch through a function on the host, as a cast or an augmentation.

    Args:
      source: any that `as_source` takes.
      fn: of a batch; for a position to be enough to go on from, by the batch alone.

    Example:
      >>> import numpy as np
      >>> from graphmode.training.data import from_arrays
      >>> next(mapped(from_arrays(np.arange(2), batch_size=2, shuffle=False), lambda batch: batch * 10)).tolist()
      [0, 10]
    """
    return Mapped(source, fn)


class Mapped(View):
    """From `mapped`."""

    def __init__(self, source: Any, fn: Callable[[Any], Any]):
        super().__init__(source)
        if not callable(fn):
            raise TypeError(f"fn is {fn!r}, and a function of a batch was wanted")
        self._fn = fn

    def advance(self) -> Any:
        if not self._held and not self._take():
            return EPOCH_END
        batch = self._fn(self._held[0])
        self._held = []
        return batch


def shard(source: Any, *, index: int | None = None, count: int | None = None) -> BatchSource:
    """This process's rows of each batch: of B rows, the `index`-th of `count` equal parts, along the leading axis.

    Every process makes the same source, with the batch size of all of them together, and a state of one serves all, a
    different `count` included. Of a source of `from_arrays` only these rows are read.

    Args:
      source: any that `as_source` takes.
      index: of the process; `jax.process_index()` if left out.
      count: of processes; `jax.process_count()` if left out.

    Raises:
      ValueError: where `count` does not divide the batch size, or `index` is not below it.

    Example:
      >>> import numpy as np
      >>> from graphmode.training.data import from_arrays
      >>> source = from_arrays(np.arange(8), batch_size=4, shuffle=False, epochs=1)
      >>> [batch.tolist() for batch in shard(source, index=1, count=2)]
      [[2, 3], [6, 7]]
    """
    source = as_source(source)
    count = as_number(jax.process_count() if count is None else count, name="count", least=1)
    index = as_number(jax.process_index() if index is None else index, name="index", least=0)
    if index >= count:
        raise ValueError(f"index is {index}, and count is {count}; give an index from 0 to {count - 1}")
    if isinstance(source, ArraySource):
        return source.sharded(index, count)

    def part(array: Any) -> Any:
        if not np.ndim(array) or len(array) % count:
            raise ValueError(
                f"a batch has an array of shape {np.shape(array)}, and count is {count}, which must divide its "
                f"leading axis; choose the batch size so"
            )
        rows = len(array) // count
        return array[index * rows : (index + 1) * rows]

    return Mapped(source, lambda batch: jax.tree.map(part, batch))


def stacked(source: Any, k: int, *, remainder: Remainder = "carry") -> Stacked:
    """Groups of `k` batches, `[k, B, ...]` each array: what a launch of `k` steps takes.

    Positions count batches, not groups: a run may go on with another `k`.

    Args:
      source: any that `as_source` takes; its batches have one shape.
      k: batches in a group.
      remainder: of batches too few for a group at an epoch's end. `"carry"` begins the group with them that the next
        epoch fills, so all groups have one shape; where the last epoch is over, what is left comes as a shorter group.
        `"short"` gives a shorter group in each epoch, which is one more compilation. `"drop"` leaves them out.

    Raises:
      ValueError: where batches of a group differ in shape; where `"drop"` leaves nothing; for `one_epoch` of groups
        that reach from one epoch into the next.

    Example:
      >>> import numpy as np
      >>> from graphmode.training.data import from_arrays
      >>> source = from_arrays(np.arange(3), batch_size=1, shuffle=False, epochs=2)
      >>> [group[:, 0].tolist() for group in stacked(source, 2)]
      [[0, 1], [2, 0], [1, 2]]
    """
    return Stacked(source, k, remainder)


class Stacked(View):
    """From `stacked`."""

    def __init__(self, source: Any, k: int, remainder: Remainder):
        super().__init__(source)
        self._k = as_number(k, name="k", least=1)
        if remainder not in get_args(Remainder):
            raise ValueError(f"remainder is {remainder!r}; choose 'carry', 'short' or 'drop'")
        self._remainder = remainder
        batches = self._source.batches_per_epoch
        if remainder == "drop" and batches is not None and batches < self._k:
            raise self._nothing_left(batches)

    @property
    def batches_per_epoch(self) -> int | None:
        """Groups in an epoch; None where that differs from one to the next."""
        batches = self._source.batches_per_epoch
        if batches is None or self._remainder == "drop":
            return None if batches is None else batches // self._k
        if self._remainder == "carry" and batches % self._k:
            return None
        return -(-batches // self._k)

    def one_epoch(self) -> Iterator[Any]:
        if self._remainder == "carry" and self.batches_per_epoch is None:
            raise ValueError(
                f"one_epoch was asked of groups of {self._k} batches that may reach into the next epoch; give "
                f"stacked(..., remainder='short') or 'drop'"
            )
        return super().one_epoch()

    def advance(self) -> Any:
        over = False
        while len(self._held) < self._k and not self._source.finished:
            epoch = self._source.epoch
            took = self._take()
            over = not took or self._source.epoch != epoch
            if over and (self._remainder != "carry" or not self._held):
                break
        if not self._held:
            return EPOCH_END
        if len(self._held) < self._k and self._remainder == "drop":
            left, self._held = len(self._held), []
            if self._before["batch"] == 0:
                raise self._nothing_left(left)
            return EPOCH_END
        group = _as_group(self._held, self._before)
        self._held = []
        return group

    def _nothing_left(self, batches: int) -> ValueError:
        return ValueError(f"k is {self._k}, and an epoch has {batches} batches; with remainder='drop' none would come")


def _as_group(batches: list[Any], before: Mapping[str, Any]) -> Any:
    for number, batch in enumerate(batches):
        begins = f"the group that begins at batch {before['batch']} of epoch {before['epoch']}"
        check_holds_arrays(batch, f"batch {number} of {begins}")
    first, *others = (jax.tree.leaves_with_path(batch) for batch in batches)
    for number, other in enumerate(others, 1):
        for (path, a), (other_path, b) in zip(first, other, strict=False):
            if path != other_path or np.shape(a) != np.shape(b):
                name = f"batch{jax.tree_util.keystr(path)}"
                raise ValueError(
                    f"{name} has shape {np.shape(a)} in the first batch of a group, and batch "
                    f"{number} of it has {np.shape(b)} at batch{jax.tree_util.keystr(other_path)}; a group needs one "
                    f"shape: with from_arrays, drop_last=True or pad_last=True"
                )
    return jax.tree.map(lambda *leaves: np.stack(leaves), *batches)
