"""`os._exit` in a user's code: it would end the command without a word, and with 0 as if all were well."""

from __future__ import annotations

import contextlib
import os
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn, TextIO

from .errors import is_of_a_library

ENDED = 2  # the exit code where nothing else can be done: that of what cannot be compared as it is written


class LeftEarly(SystemExit):
    """`os._exit` was called. Its text is what a shell shows and what makes the exit code 1, where nobody catches it."""


@contextlib.contextmanager
def exits_told(to: TextIO) -> Iterator[None]:
    """In this block `os._exit` raises `LeftEarly`, which a run takes as it takes `sys.exit`.

    In a process that is forked within the block it does what it always does. In a thread other than the main one, whose
    exceptions end nothing, the process ends with `ENDED`, and why is written to `to`.
    """
    leave, process = os._exit, os.getpid()

    def told(status: int) -> NoReturn:
        if os.getpid() != process:
            leave(status)
        if threading.current_thread() is threading.main_thread():
            raise LeftEarly(f"os._exit({status!r}) was called")
        with contextlib.suppress(OSError, ValueError):
            print(f"graphmode: os._exit({status!r}) was called in a thread{_line()}", file=to, flush=True)
        leave(ENDED)

    os._exit = told
    try:
        yield
    finally:
        os._exit = leave


def _line() -> str:
    """` (model.py:31)`, the innermost line of a user's that is running; empty where there is none."""
    frames = [f for f in traceback.extract_stack() if not is_of_a_library(f.filename)]
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
