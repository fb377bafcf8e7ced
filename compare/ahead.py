"""The parity of the cases to come, found in a process of its own while this one prepares and times rows.

It runs at the lowest priority and stands still while anything is timed: it takes what processors are left over.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from .findings import Findings

AHEAD = 8  # cases whose findings may wait, in files; those of a large model take a gigabyte
LOWEST_PRIORITY = 19
LOOK_AGAIN_S = 5.0  # whether anybody still waits for what is found


class Lost(Exception):
    """The process could not find this, or has ended: find it here, where an error is told as it is."""


def can_go_ahead() -> bool:
    """Whether such a process can be stopped while rows are timed; on Windows it cannot."""
    return hasattr(signal, "SIGSTOP")


class Ahead:
    """Finds the parity of cases in order; `findings` gives it case by case.

    Args:
      wanted: `package.module:NAME` or `path/to/file.py:NAME`, and a dtype, in the order in which they will be asked
        for.
      seed, device: of the run.
    """

    def __init__(self, wanted: Sequence[tuple[str, str]], *, seed: int, device: str):
        self._folder = Path(tempfile.mkdtemp(prefix="graphmode-"))
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._room = context.Semaphore(AHEAD)
        self._process = context.Process(
            target=_work, args=(theirs, self._room, list(wanted), seed, device, self._folder), daemon=True
        )
        self._process.start()
        theirs.close()

    def findings(self) -> Path:
        """The file with `Findings` of the next case; waits for it. Whoever asks removes it.

        Raises:
          Lost: where the process has ended, or failed in another way than these.
          CaseError, WeightsError: where the case cannot be compared as it is written.
        """
        try:
            path, error = self._connection.recv()
        except (EOFError, OSError):
            raise Lost from None
        self._room.release()
        if error is not None:
            raise error
        return path

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing of it runs inside this block."""
        self._signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal(signal.SIGCONT)

    def close(self) -> None:
        """Ends the process and removes its files."""
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        self._connection.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _signal(self, number: signal.Signals) -> None:
        if self._process.is_alive() and self._process.pid is not None:
            os.kill(self._process.pid, number)


def _work(
    connection: Connection, room: Any, wanted: list[tuple[str, str]], seed: int, device: str, folder: Path
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asked
    os.nice(LOWEST_PRIORITY)
    from graphmode.weights import WeightsError

    from .case import CaseError
    from .locate import locate
    from .parity.examination import Examination
    from .release import release
    from .speed.environment import set_up_threads

    set_up_threads()
    gc.freeze()  # what is imported stays: a collection between cases need not walk it
    for number, (location, dtype) in enumerate(wanted):
        while not room.acquire(timeout=LOOK_AGAIN_S):
            if not multiprocessing.parent_process().is_alive():  # type: ignore[union-attr]
                return
        path = folder / str(number)
        failure: Exception | None = None
        try:
            exam = Examination(locate(location), seed=seed, dtype=dtype, device=device)
            verdicts = list(exam.verdicts())
            exam.ask_timed()
            Findings(exam.truths, verdicts).write(path)
            del exam, verdicts
        except (CaseError, WeightsError) as error:
            failure = error
        except Exception:
            failure = Lost()
        try:
            connection.send((path, failure))
        except BrokenPipeError:
            return
        release()
