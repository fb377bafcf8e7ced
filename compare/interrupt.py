"""Ctrl-C that ends a run, wherever it comes: code of a framework may swallow an exception, a finaliser always does."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


def _is_main_thread() -> bool:
    """Signals can be handled there alone."""
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def remembered() -> Iterator[Callable[[], None]]:
    """Gives a function that raises KeyboardInterrupt where Ctrl-C came before in this block: call it between steps."""
    came: list[int] = []

    def again() -> None:
        if came:
            raise KeyboardInterrupt

    if not _is_main_thread() or not callable(previous := signal.getsignal(signal.SIGINT)):
        yield again
        return

    def handle(number: int, frame: FrameType | None) -> None:
        came.append(number)
        previous(number, frame)

    signal.signal(signal.SIGINT, handle)
    try:
        yield again
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
