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

from .findings import Findings
from .speed.forkserver import Died, ForkServer

AHEAD = 8  # cases whose findings may wait, in files; those of a large model take a gigabyte
LOWEST_PRIORITY = 19


class Lost(Exception):
    """The process could not find this, or has ended: find it here, where an error is told as it is."""


class Ahead:
    """Finds the parity of cases in order; `findings` gives it case by case.

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
        self._handles = False  # signals, which it does once it has said something

    def findings(self) -> Path:
        """The file with `Findings` of the next case; waits for it. Whoever asks removes it.

        Raises:
          Lost: where the process has ended, or failed in another way than these.
          CaseError, WeightsError: where the case cannot be compared as it is written.
        """
        try:
            if not self._child.is_alive or not self._child.pid:
                raise Lost
            if self._handles and not self._child.connection.poll():
                self._child.tell(signal.SIGUSR1)
            path, error = self._child.connection.recv()
            self._handles = True
            self._child.tell(signal.SIGUSR2)
            self._child.connection.send("one more")
        except (Died, EOFError, OSError):
            raise Lost from None
        if error is not None:
            raise error
        return path

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
class Search:
    """What the process does: finds, writes into the folder and tells, no more than so many ahead of who asks."""

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
        from .locate import locate
        from .parity.examination import Examination
        from .release import release
        from .speed.environment import set_up_threads

        set_up_threads()
        signal.signal(signal.SIGUSR1, lambda *_: set_up_threads())  # somebody waits
        signal.signal(signal.SIGUSR2, lambda *_: torch.set_num_threads(1))
        waiting = 0
        for number, (location, dtype) in enumerate(self.wanted):
            while waiting >= AHEAD or connection.poll():
                connection.recv()
                waiting -= 1
            path = self.folder / str(number)
            failure: Exception | None = None
            try:
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
            connection.send((path, failure))
            waiting += 1
            release()
        # Until nobody asks any more: an end of this process would be one of the findings that wait.
        with contextlib.suppress(EOFError, OSError):
            while True:
                connection.recv()
