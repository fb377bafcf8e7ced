"""Memory of what has ended goes back to the system before the next thing starts."""

from __future__ import annotations

import ctypes
import gc
import sys

from .interrupt import held_back


def release() -> None:
    """Between cases: drops what torch.compile cached and what nobody refers to, and gives freed pages back.

    JAX drops the graphs of a function with the function, and its cache of single operations saves the next case time.
    """
    with held_back():
        if "torch._dynamo" in sys.modules:
            sys.modules["torch._dynamo"].reset()
        gc.collect()
    trim()


def trim() -> None:
    """Gives freed pages back where the C library can: of some gigabytes in 50 ms, so it may come after every row."""
    if sys.platform == "linux":
        give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc alone has it
        if give_back is not None:
            give_back(0)
