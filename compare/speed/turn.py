"""Several runs on one machine, of which one times at a time, while the others stand still.

A machine with many processors and one GPU prepares rows of several cases at once; whoever times them holds the turn.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import time
from collections.abc import Iterator
from pathlib import Path

VARIABLE = "GRAPHMODE_TURN"
_SPAN = struct.Struct("dd")
_STOP_S = 1.0  # then whoever has the turn goes on: a process in the kernel may not stop for long
_STOPPED = "TtZX"  # stopped, traced, ended and not waited for, dead


class Turn:
    """Of the runs that share a folder. Each is a session of processes (`setsid`), registered by whoever starts it.

    Attributes:
      folder: in it are `lock`, which one holds, `spans`, when it was held so far, and `runs`, a file for each session.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._lock, self._spans, self._runs = folder / "lock", folder / "spans", folder / "runs"

    @classmethod
    def begun(cls, folder: Path) -> Turn:
        """One whose folder is made here."""
        turn = cls(folder)
        turn._runs.mkdir(parents=True)
        turn._lock.touch()
        turn._spans.touch()
        return turn

    def register(self, session: int) -> None:
        """From now on this session stands still while another has the turn."""
        (self._runs / str(session)).touch()

    def unregister(self, session: int) -> None:
        """Of one that has ended. Had it the turn, the others go on."""
        (self._runs / str(session)).unlink(missing_ok=True)
        import fcntl  # POSIX alone has it, and only there are turns taken

        with contextlib.suppress(BlockingIOError), self._lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._signal(signal.SIGCONT)

    def interrupt(self) -> None:
        """Ctrl-C, for whoever leads each session: they are not of the terminal's."""
        for path in self._runs.iterdir():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(path.name), signal.SIGINT)

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Waits until nobody has the turn, and has it in this block: no process of another session runs."""
        import fcntl

        with self._lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            start = time.monotonic()
            self._stop_others()
            try:
                yield
            finally:
                with self._spans.open("ab") as spans:
                    spans.write(_SPAN.pack(start, time.monotonic()))
                self._signal(signal.SIGCONT)

    def stood_still(self, start: float, end: float) -> float:
        """Seconds between two readings of `time.monotonic` or `time.perf_counter` in which somebody had the turn."""
        held = _SPAN.iter_unpack(self._spans.read_bytes())
        return sum(max(0.0, min(last, end) - max(first, start)) for first, last in held)

    def _stop_others(self) -> None:
        """Until none of them runs any more: one that waits for a processor stops once it has one."""
        end = time.monotonic() + _STOP_S
        while self._signal(signal.SIGSTOP) and time.monotonic() < end:
            time.sleep(0.001)

    def _signal(self, number: signal.Signals) -> int:
        """To all processes of the other sessions; how many of them had not stopped before."""
        mine = os.getsid(0)
        sessions = {int(path.name) for path in self._runs.iterdir()} - {mine}
        running = 0
        for entry in Path("/proc").iterdir() if sessions else ():
            if not entry.name.isdigit():
                continue
            state, session = _state_and_session(entry)
            if session in sessions:
                running += state not in _STOPPED
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(int(entry.name), number)
        return running


def _state_and_session(process: Path) -> tuple[str, int]:
    """As `/proc/<pid>/stat` tells them, behind a name that may hold anything; ("X", 0) where the process has ended."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        state, _, _, session = (process / "stat").read_text().rpartition(")")[2].split()[:4]
        return state, int(session)
    return "X", 0


def turn() -> Turn | None:
    """That of this process's environment; None where it has the machine for itself, as when who shared it has ended."""
    folder = os.environ.get(VARIABLE)
    return Turn(Path(folder)) if folder and Path(folder).is_dir() else None


def taken() -> contextlib.AbstractContextManager[None]:
    """Nothing of another run goes on inside this block."""
    mine = turn()
    return mine.taken() if mine else contextlib.nullcontext()


def stood_still(start: float, end: float) -> float:
    """Seconds between two readings of the clock in which this process may have stood still for another run."""
    mine = turn()
    return mine.stood_still(start, end) if mine else 0.0
