"""Memory of a case that has ended goes back to the system before the next one starts."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import signal
import sys
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def _no_interrupt() -> Iterator[None]:
    """Ctrl-C comes after the block: raised inside a finaliser it would be lost."""
    if threading.current_thread() is not threading.main_thread():
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


def release() -> None:
    """Drops what torch.compile cached and what nobody refers to, and gives freed pages back where the C library can.

    JAX drops the graphs of a function with the function, and its cache of single operations saves the next case time.
    """
    if "torch" in sys.modules:
        sys.modules["torch"]._dynamo.reset()
    with _no_interrupt():
        gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc alone has it
        if trim is not None:
            trim(0)
