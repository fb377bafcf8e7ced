"""The parity of the cases to come, found in a process of its own while this one prepares and times rows.

It runs at the lowest priority and stands still while anything is timed: it takes what processors are left over. While
rows are prepared PyTorch has one thread in it, since several hold the processors that rows want for 8 ms after each
operation; it has all of them while this process can but wait for what it finds.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from .findings import Findings, remove
from .speed.forkserver import Died, ForkServer

AHEAD = 8  # cases whose findings may wait, in files; those of a large model take a gigabyte
LOWEST_PRIORITY = 19


class Lost(Exception):
    """The process could not find this, or has ended: find it here, where an error is told as it is."""


class Ahead:
    """Finds the parity of cases in order; `findings` gives that of each, by its number among the wanted.

    Args:
      server: that starts its process.
      wanted: `package.module:NAME` or `path/to/file.py:NAME`, and a dtype, in the order in which they will be asked
        for.
      seed, device: of the run.
      modes: that it wants timed, as `Plan.modes`.

    Raises:
      Died: where the server has ended.
    """

    def __init__(
        self,
        server: ForkServer,
        wanted: Sequence[tuple[str, str]],
        *,
        seed: int,
        device: str,
        modes: Sequence[str] = (),
    ):
        self._folder = Path(tempfile.mkdtemp(prefix="graphmode-"))
        self._child = server.start(Search(tuple(wanted), seed, device, tuple(modes), self._folder))
        self._left = range(len(wanted))
        self._handles = False  # signals, which it does once it has said something
        self._busy: int | None = None  # with this one

    def findings(self, number: int) -> Path:
        """The file with `Findings` of this one of the wanted; waits for it. Whoever asks removes it. Those before it
        that nobody has asked for are left out.

        Raises:
          Lost: where the process has ended, failed in another way than these, or is still busy with what was left out;
            where a later one was asked for before.
          CaseError, WeightsError: where the case cannot be compared as it is written.
        """
        if number not in self._left:
            raise Lost
        self._left = range(number + 1, self._left.stop)
        try:
            if not self._child.is_alive or not self._child.pid:
                raise Lost
            self._child.connection.send(number)
            path, error = self._answer(number)
        except (Died, EOFError, OSError):
            raise Lost from None
        if error is not None:
            raise error
        return path

    def _answer(self, number: int) -> tuple[Path, Exception | None]:
        while True:
            if not self._child.connection.poll():
                if self._busy is not None and self._busy < number:
                    self._child.connection.send(number + 1)  # this one, too, is left out
                    raise Lost
                if self._handles:
                    self._child.tell(signal.SIGUSR1)
            told = self._child.connection.recv()
            self._handles = True
            if isinstance(told, Begun):
                self._busy = told.number
                continue
            self._busy = None
            self._child.tell(signal.SIGUSR2)
            if told.number == number:
                return told.path, told.failure
            remove(told.path)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing of it runs inside this block."""
        self._child.pause()
        try:
            yield
        finally:
            self._child.resume()

    def close(self) -> None:
        """Ends the process and removes its files."""
        self._child.end()
        shutil.rmtree(self._folder, ignore_errors=True)


@dataclass(frozen=True)
class Begun:
    number: int


@dataclass(frozen=True)
class Done:
    number: int
    path: Path
    failure: Exception | None


@dataclass(frozen=True)
class Search:
    """What the process does: finds, writes into the folder and tells, no more than so many ahead of who asks, and
    nothing that whoever asks has passed over."""

    wanted: tuple[tuple[str, str], ...]
    seed: int
    device: str
    modes: tuple[str, ...]
    folder: Path

    def serve(self, connection: Connection) -> None:
        os.nice(LOWEST_PRIORITY)
        import torch

        from graphmode.weights import WeightsError

        from .case import CaseError
        from .functional_dropout import functional_dropout_off
        from .locate import locate
        from .parity.examination import Examination
        from .release import release
        from .speed.environment import set_up_threads

        set_up_threads()
        signal.signal(signal.SIGUSR1, lambda *_: set_up_threads())  # somebody waits
        signal.signal(signal.SIGUSR2, lambda *_: torch.set_num_threads(1))
        asked = 0
        for number, (location, dtype) in enumerate(self.wanted):
            while number - asked >= AHEAD or connection.poll():
                asked = connection.recv()
            if number < asked:
                continue
            connection.send(Begun(number))
            path = self.folder / str(number)
            failure: Exception | None = None
            try:
                with functional_dropout_off():
                    exam = Examination(
                        locate(location).training(self.modes), seed=self.seed, dtype=dtype, device=self.device
                    )
                    verdicts = list(exam.verdicts())
                exam.ask_timed(exam.case.timed_modes(self.modes))
                Findings(exam.truths, verdicts).write(path)
                del exam, verdicts
            except (CaseError, WeightsError) as error:
                failure = error
            except Exception:
                failure = Lost()
            connection.send(Done(number, path, failure))
            release()
        # Until nobody asks any more: an end of this process would be one of the findings that wait.
        with contextlib.suppress(EOFError, OSError):
            while True:
                connection.recv()
