"""What every source of batches can do: give the next one, say where it stands, and go on from there."""

from __future__ import annotations

import abc
import operator
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np

EPOCH_END: Any = object()  # what `advance` gives where an epoch was over without a batch
_Source = TypeVar("_Source", bound="BatchSource")


class BatchSource(abc.ABC):
    """Batches in epochs, with a position that can be written down.

    A batch is a pytree of arrays. A source is its own iterator, over all its epochs, and goes on where it stands: a
    loop that was left early is taken up by the next one. Once iteration has come to its end, the next loop begins again
    at epoch 0. `one_epoch` is for two nested loops, and for evaluation.

    Subclass `EpochSource` for a source of your own.

    Example:
      >>> import numpy as np
      >>> from graphmode.training.data import from_arrays
      >>> source = from_arrays({"x": np.arange(6)}, batch_size=2, shuffle=False, epochs=2)
      >>> next(source)["x"].tolist(), source.state()["batch"]
      ([0, 1], 1)
      >>> [batch["x"].tolist() for batch in source]
      [[2, 3], [4, 5], [0, 1], [2, 3], [4, 5]]
    """

    _ended = False

    @abc.abstractmethod
    def advance(self) -> Any:
        """The next batch, and the position after it; or `EPOCH_END`, where the epoch turned out to be over.

        Where it raises, the position is as before, and the next call tries the same batch again.
        """

    @abc.abstractmethod
    def state(self) -> dict[str, Any]:
        """The position after the last batch that was given, for `json`: `kind`, `epoch`, `batch` and what must agree.

        `epoch` and `batch`, from 0, are of the batch that comes next.
        """

    @abc.abstractmethod
    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes to a position of `state()`: exactly the batches come that would have come there.

        Raises:
          ValueError: where the state is of another kind of source, or of other data, sizes or seed.
        """

    @abc.abstractmethod
    def restart(self) -> None:
        """Goes to the first batch of epoch 0."""

    @property
    @abc.abstractmethod
    def epoch(self) -> int:
        """Of the batch that comes next, from 0."""

    @property
    @abc.abstractmethod
    def epochs(self) -> int | None:
        """How many there are in all; None where there is no end."""

    @property
    def batches_per_epoch(self) -> int | None:
        """None where it is not known."""
        return None

    @property
    def finished(self) -> bool:
        """Whether all epochs are over."""
        return self.epochs is not None and self.epoch >= self.epochs

    @property
    def _origin(self) -> Any:
        """What holds the position: of two sources with one origin, each moves the other."""
        return self

    def close(self) -> None:  # noqa: B027  most hold nothing
        """Lets go of what reading holds, as threads and worker processes. The position stays."""

    def one_epoch(self) -> Iterator[Any]:
        """What is left of the epoch at hand.

        Example:
          >>> import numpy as np
          >>> from graphmode.training.data import from_arrays
          >>> source = from_arrays(np.arange(4), batch_size=2, shuffle=False)
          >>> for epoch in range(source.epoch, 2):
          ...     print(epoch, [batch.tolist() for batch in source.one_epoch()])
          0 [[0, 1], [2, 3]]
          1 [[0, 1], [2, 3]]
        """
        iter(self)
        epoch = self.epoch
        while not self.finished and self.epoch == epoch:
            batch = self.advance()
            if batch is not EPOCH_END:
                yield batch
        self._ended = self.finished

    def __iter__(self: _Source) -> _Source:
        if self._ended:
            self.restart()
            self._ended = False
        return self

    def __next__(self) -> Any:
        while not self.finished:
            batch = self.advance()
            if batch is not EPOCH_END:
                return batch
        self._ended = True
        raise StopIteration

    def __len__(self) -> int:
        """Batches in an epoch."""
        if self.batches_per_epoch is None:
            raise TypeError(f"a {type(self).__name__} does not know how many batches an epoch has")
        return self.batches_per_epoch

    def __enter__(self: _Source) -> _Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class EpochSource(BatchSource):
    """A source by what an epoch holds: subclass it with `batches`, and `identity` where a seed or a size must agree.

    Attributes:
      kind: names the source in `state()`.
      epochs: how many; None, the default, for no end.

    Example:
      >>> class Countdown(EpochSource):
      ...     kind, epochs = "countdown", 1
      ...     def batches(self, epoch, start):
      ...         yield from [3, 2, 1][start:]
      >>> source = Countdown()
      >>> source.restore({"kind": "countdown", "epoch": 0, "batch": 1})
      >>> list(source)
      [2, 1]
    """

    kind: ClassVar[str]
    epochs: int | None = None
    _epoch, _batch = 0, 0
    _running: Iterator[Any] | None = None

    @abc.abstractmethod
    def batches(self, epoch: int, start: int) -> Iterator[Any]:
        """The batches of an epoch from number `start` on: by `epoch` and `start` alone, whatever came before."""

    def identity(self) -> dict[str, Any]:
        """What a restored state must have in common with this source, for `json`."""
        return {}

    @property
    def epoch(self) -> int:
        return self._epoch

    def advance(self) -> Any:
        if self._running is None:
            self._running = iter(self.batches(self._epoch, self._batch))
        try:
            batch = next(self._running)
        except StopIteration:
            if self._batch == 0:
                self._running = None
                raise ValueError(
                    f"epoch {self._epoch} of the {self.kind} source has no batch; give data that has some, and where "
                    f"they come from an iterator, one that begins anew for each epoch"
                ) from None
            self._move(self._epoch + 1, 0)
            return EPOCH_END
        except BaseException:
            self._running = None  # a generator that raised would look as if its epoch were over
            raise
        self._batch += 1
        if self._batch == self.batches_per_epoch:
            self._move(self._epoch + 1, 0)
        return batch

    def state(self) -> dict[str, Any]:
        return {"kind": self.kind, "epoch": self._epoch, "batch": self._batch, **self.identity()}

    def restore(self, state: Mapping[str, Any]) -> None:
        epoch, batch = position_of(state, self.kind, self.identity())
        check_within(epoch, batch, self.epochs, self.batches_per_epoch)
        self._move(epoch, batch)
        self._ended = False

    def restart(self) -> None:
        self._move(0, 0)

    def close(self) -> None:
        self._running = None

    def _move(self, epoch: int, batch: int) -> None:
        self._epoch, self._batch, self._running = epoch, batch, None


ANEW = (
    "its batches would be others. Go on with the same data, or with the training alone, from the first batch of these: "
    "state, _ = checkpoints.restore(step), and fit(step, data, state=state, checkpoints=Checkpoints(another_folder))"
)


def position_of(state: Mapping[str, Any], kind: str, identity: Mapping[str, Any]) -> tuple[int, int]:
    """The epoch and batch of a state, which must be of this kind and identity."""
    if not isinstance(state, Mapping) or not {"kind", "epoch", "batch"} <= set(state):
        raise ValueError(f"state is {state!r}, and a dict of state(), with kind, epoch and batch, was wanted")
    if state["kind"] != kind:
        raise ValueError(f"state is of a {state['kind']} source, and this is a {kind} source; {ANEW}")
    missing = object()
    different = [
        f"{name} is {state.get(name, 'missing')!r} in the state and {value!r} here"
        for name, value in identity.items()
        if state.get(name, missing) != value
    ]
    if different:
        raise ValueError(f"state is of another {kind} source: {'; '.join(different)}; {ANEW}")
    epoch, batch = state["epoch"], state["batch"]
    for name, value in (("epoch", epoch), ("batch", batch)):
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 0:
            raise ValueError(f"state[{name!r}] is {value!r}, and an integer of at least 0 was wanted")
    return int(epoch), int(batch)


def check_within(epoch: int, batch: int, epochs: int | None, batches_per_epoch: int | None) -> None:
    if epochs is not None and (epoch, batch) > (epochs, 0):
        raise ValueError(f"state is of epoch {epoch}, batch {batch}, and this source has {epochs} epochs; give it more")
    if batches_per_epoch is not None and batch >= batches_per_epoch:
        raise ValueError(
            f"state is of batch {batch} of its epoch, and here an epoch has {batches_per_epoch} batches; is it the "
            f"same data?"
        )


def skipped(batches: Iterator[Any], start: int) -> Iterator[Any]:
    """`batches` without the first `start`, which must be there."""
    for passed in range(start):
        if next(batches, EPOCH_END) is EPOCH_END:
            raise ValueError(
                f"the position to go on from is batch {start} of its epoch, and the data ended after {passed}; is it "
                f"the same data?"
            )
    return batches


def as_epochs(epochs: int | None) -> int | None:
    """A number of epochs, or None for no end."""
    return None if epochs is None else as_number(epochs, name="epochs", least=1)


def as_number(value: int, *, name: str, least: int) -> int:
    """A Python integer of at least `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}, and an integer of at least {least} was wanted") from None
    if isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} is {value!r}, and an integer of at least {least} was wanted")
    if number < least:
        raise ValueError(f"{name} is {number}; give an integer of at least {least}")
    return number


def epoch_seeds(seed: int, epoch: int) -> np.random.SeedSequence:
    """Randomness of an epoch, by the seed and the epoch alone."""
    return np.random.SeedSequence(seed, spawn_key=(epoch,))
