"""Ctrl-C that ends a run, wherever it comes: code of a framework may swallow an exception, a finaliser always does."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

# a finaliser, JAX's callback of the garbage collector, and the callbacks of weak collections
_SWALLOWING = ("__del__", "_xla_gc_callback")
_SWALLOWING_IN_WEAKREF = ("remove", "_remove")
_SOON_S = 0.05


def _is_main_thread() -> bool:
    """Signals can be handled there alone."""
    return threading.current_thread() is threading.main_thread()


def is_swallowed(frame: FrameType | None) -> bool:
    """Whether an exception raised here is lost: in a finaliser, or in what the garbage collector calls."""
    while frame is not None:
        code = frame.f_code
        if code.co_name in _SWALLOWING:
            return True
        if code.co_name in _SWALLOWING_IN_WEAKREF and code.co_filename.endswith(("weakref.py", "_weakrefset.py")):
            return True
        frame = frame.f_back
    return False


class _Handler:
    """Of SIGINT: does what was done before, but never where it would be lost, and remembers that it came."""

    def __init__(self, previous: Callable[[int, FrameType | None], Any]):
        self._previous = previous
        self._came = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._came = True
        if is_swallowed(frame):
            timer = threading.Timer(_SOON_S, signal.pthread_kill, [threading.main_thread().ident, number])
            timer.daemon = True
            timer.start()
        else:
            self._previous(number, frame)

    def again(self) -> None:
        if self._came:
            raise KeyboardInterrupt


@contextlib.contextmanager
def remembered() -> Iterator[Callable[[], None]]:
    """Gives a function that raises KeyboardInterrupt where Ctrl-C came before in this block: call it between steps.

    Blocks may nest: they remember together.
    """
    previous = signal.getsignal(signal.SIGINT)
    if isinstance(previous, _Handler):
        yield previous.again
    elif not _is_main_thread() or not callable(previous):
        yield lambda: None
    else:
        handler = _Handler(previous)
        signal.signal(signal.SIGINT, handler)
        try:
            yield handler.again
        finally:
            signal.signal(signal.SIGINT, previous)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Ctrl-C comes after the block: raised inside a finaliser it would be lost."""
    if not _is_main_thread():
        yield
        return
    came: list[int] = []
    previous = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
        if came:
            signal.raise_signal(signal.SIGINT)
