"""Where a `Runner` runs: in a process of its own, whose end costs nothing but its own cell, or in this one."""

from __future__ import annotations

import abc
import contextlib
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ClassVar

from ..case import Mode
from ..errors import describe_briefly
from ..quiet import quiet
from ..report.records import Launches, Memory, Status
from .forkserver import Died, ForkServer
from .runner import Ready, Refusal, Runner
from .timing import SPIN_S, Expired, deadline
from .worker import Order

LAST_WORDS = 3  # lines of a process that died


class Failed(Exception):
    """A row that cannot go on: the status and reason of its cell, and whether it was the row that told the reason."""

    def __init__(self, status: Status, reason: str, *, is_told: bool = False):
        super().__init__(reason)
        self.status, self.reason, self.is_told = status, reason, is_told


class Unloadable(Exception):
    """A case that another process cannot load."""


class Seat(abc.ABC):
    """A row that can be asked for what `Runner` can do. Each raises `Failed` where it ended without an answer.

    `limit_s` is how long an answer may take.
    """

    is_loaded = True  # whether its process has the case
    is_closed = False

    @abc.abstractmethod
    def begin(self, mode: Mode) -> Connection | None:
        """Begins `prepare`, and gives what to wait for before each `advance`; None where nothing can go on beside."""

    @abc.abstractmethod
    def advance(self) -> Ready | Refusal | None:
        """Takes the next word from there: what came of it, or None where it goes on.

        Raises:
          Unloadable: where the process cannot load the case.
        """

    @abc.abstractmethod
    def ask(self, limit_s: float, method: str, *arguments: Any) -> Any:
        """What this method of the `Runner` gives."""

    @abc.abstractmethod
    def close(self) -> None:
        """Nothing more will be asked."""

    def prepare(self, mode: Mode, limit_s: float) -> Ready | Refusal:
        return self.ask(limit_s, "prepare", mode)

    def calibrated(self, shortest_s: float, most: int, limit_s: float) -> int:
        return self.ask(limit_s, "calibrated", shortest_s, most)

    def sample(self, offset: int, calls: int, limit_s: float) -> float:
        return self.ask(limit_s, "sample", offset, calls)

    def enqueue(self, calls: int, is_short: bool, limit_s: float) -> float:
        return self.ask(limit_s, "enqueue", calls, is_short)

    def steady(self, calls: int, is_short: bool, limit_s: float) -> float:
        return self.ask(limit_s, "steady", calls, is_short)

    def examined(self, limit_s: float) -> tuple[Memory | None, Launches | None]:
        return self.ask(limit_s, "examined")


class OwnProcess(Seat):
    """A process of the server's. Closing it ends it, whatever it is at.

    On a CPU it stands still while nothing is asked of it: threads of PyTorch's and ONNX Runtime's spin for milliseconds
    after their work, as their users have it, and would spin on processors that the next row needs.

    Raises:
      Died: where the server has ended.
    """

    def __init__(self, server: ForkServer, order: Order, on_unloadable: Callable[[str], None]):
        self._log, self._on_unloadable = order.log, on_unloadable
        self._child = server.start(order)
        self._stands_still, self._is_paused = order.device == "cpu", False
        self._has_started = False
        self.is_loaded = False

    @property
    def is_closed(self) -> bool:  # type: ignore[override]
        return not self._child.is_alive

    def begin(self, mode: Mode) -> Connection | None:
        self._send("prepare", (mode,))
        return self._child.connection

    def advance(self) -> Ready | Refusal | None:
        if not self._has_started:
            self._start()
        elif not self.is_loaded:
            self._load()
        else:
            return self._answer(0.0)
        return None

    def ask(self, limit_s: float, method: str, *arguments: Any) -> Any:
        if not self._child.is_alive:
            raise Failed("failed", "its process has ended before")
        self._send(method, arguments)
        return self._answer(limit_s)

    def _send(self, method: str, arguments: tuple[Any, ...]) -> None:
        if self._is_paused:
            self._child.resume()
            self._is_paused = False
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the answer will tell
            self._child.connection.send((method, arguments))

    def _start(self) -> None:
        try:
            self._has_started = bool(self._child.pid)
        except Died as error:
            self.close()
            self._on_unloadable(str(error))
            raise Unloadable(str(error)) from error

    def _load(self) -> None:
        try:
            self._answer(0.0)
        except Failed as error:
            self.close()
            if error.is_told:
                self._on_unloadable(error.reason)
                raise Unloadable(error.reason) from error
            raise
        self.is_loaded = True

    def close(self) -> None:
        self._child.end()
        self._log.unlink(missing_ok=True)

    def _answer(self, limit_s: float) -> Any:
        try:
            if not self._child.connection.poll(limit_s):
                self.close()
                raise Failed("timeout", f"no answer after its budget, {limit_s:.3g} s")
            value, error = self._child.connection.recv()
        except (EOFError, ConnectionResetError):
            raise Failed("failed", self._epitaph()) from None
        if self._stands_still and self.is_loaded:
            self._child.pause()
            self._is_paused = True
        if error:
            raise Failed("failed", error, is_told=True)
        return value

    def _epitaph(self) -> str:
        code, words = self._child.end(), _last_words(self._log)
        self._log.unlink(missing_ok=True)
        how = f"ended with exit code {code}" if code is None or code >= 0 else f"died of {signal.Signals(-code).name}"
        if code == -signal.SIGKILL:
            how += ", as the system does where memory runs out"
        return f"its process {how}" + (f": {words}" if words else "")


class SameProcess(Seat):
    """In this process: what a row prints is caught, and what does not return to Python cannot be ended.

    Before another row is timed than the last one, it waits until that one's threads have ceased to spin.
    """

    _last: ClassVar[int] = 0  # the id of the runner that was asked last

    def __init__(self, runner: Runner):
        self._runner = runner

    def begin(self, mode: Mode) -> Connection | None:
        return None

    def advance(self) -> Ready | Refusal | None:
        raise AssertionError("nothing goes on beside")

    def ask(self, limit_s: float, method: str, *arguments: Any) -> Any:
        if SameProcess._last != id(self._runner):
            SameProcess._last = id(self._runner)
            time.sleep(SPIN_S)
        try:
            with quiet(), deadline(limit_s):
                return getattr(self._runner, method)(*arguments)
        except Expired:
            raise Failed("timeout", f"no answer after its budget, {limit_s:.3g} s") from None
        except Exception as error:
            raise Failed("failed", describe_briefly(error)) from error

    def close(self) -> None:
        pass


def _last_words(log: Path) -> str:
    """The first line of a fatal error, with where it happened; else the last lines."""
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    fatal = next((i for i, line in enumerate(lines) if line.startswith("Fatal Python error")), None)
    if fatal is not None:
        # of all threads' lines those of the one that died; it may hold no Python frame, and says so
        own = next((i for i, line in enumerate(lines) if line.startswith("Current thread")), fatal)
        where = next(iter(lines[own + 1 :]), "")
        return " ".join(part for part in (lines[fatal], where) if part)
    return "; ".join(lines[-LAST_WORDS:])
