"""Batches fetched and put on the device by a thread, ahead of the loop that takes them."""

from __future__ import annotations

import atexit
import contextlib
import functools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax

from .iterables import as_source
from .source import EPOCH_END, BatchSource, as_number

_EXIT_PATIENCE_S = 2.0


def read_ahead(
    source: Any, *, size: int = 2, place: Callable[[Any], Any] | jax.sharding.Sharding | jax.Device | None = None
) -> ReadAhead:
    """A source whose batches are made ready by a thread while the device works: fetched, and put on the device.

    Order and content are those of `source`, and what it raises is raised where the batch would have come. `state()` is
    the position of the last batch that was taken, whatever was read beyond it. Close it, or use it in a `with`, to end
    the thread; it ends by itself with the data, once nothing refers to this source, and at the interpreter's exit.

    `source` itself runs ahead: ask this one for positions. `close`, and an error, put it back to the last batch that
    was taken; of an iterator that can be read only once, what was read ahead is lost, and a further batch refused.

    The thread has the consumer's `jax.default_device` and `jax.enable_x64`, and no other of JAX's contexts, as a mesh.

    Args:
      source: any that `as_source` takes.
      size: how many batches may wait, at least 1; they lie on the device, beside the one in use.
      place: of a host batch, gives the batch that the step takes: a function (runs in the thread), or a sharding or
        device for `jax.device_put`. Without it, JAX's default device. `lambda batch: batch` leaves it on the host. One
        process of several: `lambda batch: jax.tree.map(lambda x: jax.make_array_from_process_local_data(sharding, x),
        batch)`.

    Example:
      >>> import numpy as np
      >>> from graphmode.training.data import from_arrays
      >>> source = from_arrays(np.arange(6), batch_size=2, shuffle=False, epochs=1)
      >>> with read_ahead(source) as batches:
      ...     print([batch.tolist() for batch in batches])
      [[0, 1], [2, 3], [4, 5]]
    """
    return ReadAhead(source, size, place)


class _Step(NamedTuple):
    """What one `advance` gave, and where the source stood after it."""

    batch: Any
    state: dict[str, Any]
    epoch: int
    finished: bool


class _Failure(NamedTuple):
    error: BaseException


class _Slots:
    """Up to `size` steps in order. A slot is taken before its batch is fetched, so no more than that are in memory."""

    def __init__(self, size: int):
        self._steps: deque[_Step | _Failure] = deque()
        self._free, self._closed = size, False
        self._changed = threading.Condition()  # with an RLock: a finalizer may close it from within

    def reserve(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._free or self._closed)
            self._free -= 1
            return not self._closed

    def put(self, step: _Step | _Failure) -> None:
        with self._changed:
            if not self._closed:
                self._steps.append(step)
                self._changed.notify_all()

    def take(self) -> _Step | _Failure:
        with self._changed:
            self._changed.wait_for(lambda: self._steps or self._closed)
            if not self._steps:
                raise ValueError("the source was closed while a batch was waited for")
            self._free += 1
            self._changed.notify_all()
            return self._steps.popleft()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._steps.clear()
            self._changed.notify_all()


def _fill(source: BatchSource, place: Callable[[Any], Any], slots: _Slots, device: Any, x64: bool) -> None:
    """The thread: no reference to the `ReadAhead`, or that would never be collected."""
    with jax.default_device(device), jax.enable_x64(x64):
        try:
            while not source.finished and slots.reserve():
                batch = source.advance()
                if batch is not EPOCH_END:
                    batch = place(batch)
                slots.put(_Step(batch, source.state(), source.epoch, source.finished))
                del batch
        except BaseException as error:
            slots.put(_Failure(error))


class ReadAhead(BatchSource):
    """From `read_ahead`."""

    def __init__(self, source: Any, size: int, place: Any):
        self._source = as_source(source)
        self._size = as_number(size, name="size", least=1)
        self._place = place if callable(place) else functools.partial(jax.device_put, device=place)
        self._slots: Any = None  # a _Slots and its thread while it reads
        self._thread: Any = None
        self._at: Any = None  # the last _Step that was taken

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
    def epochs(self) -> int | None:
        return self._source.epochs

    @property
    def batches_per_epoch(self) -> int | None:
        return self._source.batches_per_epoch

    @property
    def epoch(self) -> int:
        return self._source.epoch if self._at is None else self._at.epoch

    @property
    def finished(self) -> bool:
        return self._source.finished if self._at is None else self._at.finished

    def state(self) -> dict[str, Any]:
        return self._source.state() if self._at is None else self._at.state

    def advance(self) -> Any:
        if self.finished:
            return EPOCH_END
        if self._slots is None:
            self._start()
        step = self._slots.take()
        if isinstance(step, _Failure):
            self._stop()
            try:
                raise step.error
            finally:
                del step  # its traceback holds this frame
        self._at = step._replace(batch=None)
        return step.batch

    def restore(self, state: Mapping[str, Any]) -> None:
        self._stop()
        self._source.restore(state)
        self._at = None

    def restart(self) -> None:
        self._stop()
        self._source.restart()
        self._at = None

    def close(self) -> None:
        """Ends the thread, once the batch that it is at has come, and lets go of what waits."""
        self._stop()
        self._source.close()

    def one_epoch(self) -> Iterator[Any]:
        self._source.one_epoch()  # some refuse; none begins before the first batch is asked for
        return super().one_epoch()

    def _start(self) -> None:
        if self._at is not None:
            self._source.restore(self._at.state)
        else:
            self._at = _Step(None, self._source.state(), self._source.epoch, self._source.finished)
        self._slots = _Slots(self._size)
        config: Any = jax.config
        context = config.jax_default_device, config.jax_enable_x64  # of this thread
        self._thread = threading.Thread(
            target=_fill, args=(self._source, self._place, self._slots, *context), name="read_ahead", daemon=True
        )
        _running[self._thread] = self._slots
        weakref.finalize(self, self._slots.close).atexit = False
        self._thread.start()

    def _stop(self) -> None:
        if self._slots is None:
            return
        self._slots.close()
        self._thread.join()
        self._slots = self._thread = None
        with contextlib.suppress(ValueError):  # of what can be read only once; `_start` raises it where it matters
            self._source.restore(self._at.state)


_running: weakref.WeakKeyDictionary[threading.Thread, _Slots] = weakref.WeakKeyDictionary()


@atexit.register  # after JAX's own, hence called before JAX lets go of its devices
def _end_at_exit() -> None:
    running = list(_running.items())
    for _, slots in running:
        slots.close()
    for thread, _ in running:
        if thread.is_alive():
            thread.join(_EXIT_PATIENCE_S)
