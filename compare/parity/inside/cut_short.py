"""Loops of `gm.while_loop` and `gm.fori` that `max_steps` ends before their condition does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax

from graphmode.ops.control import loops

from ...errors import is_of_a_library


class CutShort:
    """Within it, which loops of a port that runs eagerly are cut short is noted; values under a transform are not seen.

    Attributes:
      places: `file:line` of the call of each, and its `max_steps`.
    """

    def __init__(self) -> None:
        self.places: dict[str, int] = {}

    def __enter__(self) -> CutShort:
        self._original = loops.early_exit_scan
        loops.early_exit_scan = self._noted  # type: ignore[assignment]
        return self

    def __exit__(self, *exception: object) -> None:
        loops.early_exit_scan = self._original

    def _noted(self, *args: Any) -> Any:
        found = self._original(*args)
        going, most = found[2], args[5]
        if not isinstance(going, jax.core.Tracer) and bool(going):
            self.places[_caller()] = most
        return found


def _caller() -> str:
    """The line that calls the loop, of the user's code."""
    frame = sys._getframe(2)
    while frame.f_back is not None and is_of_a_library(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
