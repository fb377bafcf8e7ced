"""Orbax as `Checkpoints` uses it: imported when it is needed, atomic, quiet, and with errors that say why."""

from __future__ import annotations

import logging
import re
import sys
import threading
import weakref
from typing import Any, Protocol

from .manifest import FOLDER


def import_orbax() -> Any:
    """`orbax.checkpoint.v1`; the root logger keeps the handlers that it had."""
    root = logging.getLogger()
    before = list(root.handlers)
    try:
        from orbax.checkpoint import v1
    except ImportError as error:
        raise ImportError("checkpoints need Orbax: pip install 'graphmode[train]'") from error
    finally:
        root.handlers[:] = before
    return v1


def make_context(v1: Any) -> Any:
    """Of our own, whatever the caller's: renaming at the end, and the manifest as JSON rather than as a pytree."""
    context = v1.Context()
    context.atomicity.mode = v1.options.AtomicityMode.ATOMIC_RENAME
    context.checkpointables.registry = v1.handlers.local_registry().add(
        v1.handlers.JsonHandler, checkpointable_name=FOLDER
    )
    return context


class Quiet:
    """Until `end`, nothing of Orbax's reaches the log: what goes wrong is raised, and the rest is about itself."""

    def __init__(self) -> None:
        self._logger = logging.getLogger("absl")
        self._logger.addFilter(self._passes)

    def end(self) -> None:
        self._logger.removeFilter(self._passes)

    def _passes(self, record: logging.LogRecord) -> bool:
        return "orbax" not in record.pathname


class QuietRead:
    """Nothing is printed of what goes wrong after the first error of a read, which is the one that is raised.

    Orbax closes its event loop then, and tensorstore's threads go on to report each array to it, and fail: until a
    moment after the error, so that only `succeeded` ends this.
    """

    def __init__(self) -> None:
        self._before = sys.unraisablehook
        self._is_first = not isinstance(getattr(self._before, "__self__", None), QuietRead)
        if self._is_first:
            sys.unraisablehook = self._pass_on
            logging.getLogger("asyncio").addFilter(_passes_task)

    def succeeded(self) -> None:
        if self._is_first and sys.unraisablehook == self._pass_on:
            sys.unraisablehook = self._before
            logging.getLogger("asyncio").removeFilter(_passes_task)

    def _pass_on(self, raised: Any) -> None:
        if str(raised.exc_value) != "Event loop is closed":
            self._before(raised)


def _passes_task(record: logging.LogRecord) -> bool:
    return not re.search("tensorstore|OCDBT|zarr", record.getMessage())


def close_before_exit(open_one: Closes) -> None:
    """Closes it before the interpreter stops to start threads, which Orbax needs to the end of a save.

    `atexit` is too late for that. From Python 3.12 on nothing is early enough: a save that still runs when a program
    ends is lost then, and told to be.
    """
    if not _OPEN and (register := getattr(threading, "_register_atexit", None)) is not None:
        register(_close_all)
    _OPEN.add(open_one)


class Closes(Protocol):
    def close(self) -> None: ...


_OPEN: weakref.WeakSet[Closes] = weakref.WeakSet()


def _close_all() -> None:
    for open_one in list(_OPEN):
        try:
            open_one.close()
        except Exception:
            sys.excepthook(*sys.exc_info())


def why(error: BaseException) -> tuple[int | None, str]:
    """The system's error number, where there is one, and what happened; tensorstore has the number in its message.

    Orbax wraps what happened into a listing of all its handlers, and tensorstore adds its whole configuration.
    """
    found = re.search(r"os_error_code='(\d+)'", str(error))
    while error.__cause__ is not None and not isinstance(error, OSError):
        error = error.__cause__
    lines = str(error).strip().splitlines()
    told = re.split(r" \[(?:tensorstore_spec|source locations)", lines[0])[0].rstrip(".") if lines else ""
    reason = f"{type(error).__name__}: {told}" if told else type(error).__name__
    if "interpreter shutdown" in told:
        reason += "; close the checkpoints before the program ends, as `with Checkpoints(...)` does"
    if isinstance(error, OSError):
        return error.errno, reason
    found = found or re.search(r"os_error_code='(\d+)'", str(error))
    return int(found[1]) if found else None, reason
