"""Where the rows of a run get their processes, and what these need: the case, the judge's answers, a cache."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import torch

from ..errors import describe_briefly
from ..findings import Findings, remove
from ..locate import absolute
from ..parity.examination import Examination
from ..report.records import Floors, Parity
from . import forkserver
from .floors import measure_floors
from .forkserver import Child, Died, ForkServer
from .rows import Row
from .runner import Runner
from .seats import OwnProcess, SameProcess, Seat
from .worker import Order, Source, Survey, Toolchain

SET_UP_S = 60.0
SURVEY_S = 60.0


class Rooms:
    """Of one run. Inside its block there is a folder for compilers' caches, which every run begins empty.

    Args:
      isolate: whether rows get processes of their own.
      seed, device: of the run.
    """

    def __init__(self, *, isolate: bool, seed: int, device: str):
        self.seed, self.device = seed, device
        self.why_not = "" if not isolate or forkserver.can_fork() else "this system cannot fork safely"
        self.server: ForkServer | None = None
        if isolate and not self.why_not:
            self.server = forkserver.server(device)
        self._folder = tempfile.TemporaryDirectory(prefix="graphmode-", ignore_cleanup_errors=True)
        self.folder = Path(self._folder.name)
        self.cache = self.folder / "cache"
        self._setting_up: Child | None = None

    def set_up_compilers(self) -> None:
        """Begins what a compiler does once on a machine; it goes on beside, and no row pays for it."""
        if self.server is not None:
            with contextlib.suppress(Died):
                self._setting_up = self.server.start(Toolchain(self.cache, torch.get_num_threads()))

    def wait_for_compilers(self) -> None:
        """Until that has ended, as it is seen from its connection."""
        if self._setting_up is not None:
            with contextlib.suppress(Died):
                if self._setting_up.pid:
                    self._setting_up.connection.poll(SET_UP_S)
            self._setting_up.end()
            self._setting_up = None

    def floors(self, dtypes: Sequence[str]) -> Floors | str:
        """What the machine can do at best, measured in a process of its own, or what went wrong."""
        if self.server is None:
            return measure_floors(self.device, dtypes)
        self.wait_for_compilers()
        try:
            child = self.server.start(Survey(self.device, tuple(dtypes)))
            try:
                if child.pid and child.connection.poll(SURVEY_S):
                    return child.connection.recv()
            finally:
                child.end()
        except (Died, EOFError, OSError) as error:
            return describe_briefly(error)
        return f"no answer after {SURVEY_S:g} s"

    def __enter__(self) -> Rooms:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._setting_up is not None:
            self._setting_up.end()
        self._folder.cleanup()

    @contextlib.contextmanager
    def of(
        self,
        exam: Examination,
        verdicts: list[Parity],
        *,
        location: str = "",
        found: Path | None = None,
        size: int | None = None,
    ) -> Iterator[Seats]:
        """The seats for the rows of one case.

        Args:
          exam: with the judge's answers.
          verdicts: on its ports.
          location: where another process finds the case; without one it is pickled.
          size: the batch size that it is to be resized to, where the examination's case is.
          found: the file with these findings, if they lie in one already; it is gone after the block.
        """
        if self.server is None:
            yield Seats(exam, None, None, [_note(self.why_not)] if self.why_not else [])
            return
        path = found or self.folder / "findings"
        try:
            # a case that is pickled has its size already
            import_path = forkserver.import_path()
            packed = b"" if location else _pickled(exam, import_path)
            source = Source(import_path, absolute(location), packed, size if location else None)
        except Exception as error:
            yield Seats(exam, None, None, [_note(f"the case cannot be pickled ({describe_briefly(error)})")])
            return
        try:
            seats = Seats(exam, self.server, self._order(exam, source, path), [], self.wait_for_compilers)
            if found is None:
                try:
                    Findings(exam.truths, verdicts).write(path)
                except OSError as error:
                    remove(path)
                    why = f"cannot write into {path.parent} ({error.strerror}); free it, or set TMPDIR to another one"
                    seats = Seats(exam, None, None, [_note(why)])
            yield seats
        finally:
            remove(path)

    def _order(self, exam: Examination, source: Source, findings: Path) -> Order:
        return Order(
            source=source,
            findings=findings,
            row="",
            variant="",
            seed=self.seed,
            device=self.device,
            dtype=exam.dtype,
            threads=torch.get_num_threads(),
            cache=self.cache,
            log=self.folder / "log",
        )


class Seats:
    """For the rows of one case; `notes` say where they did not get processes of their own, and why."""

    def __init__(
        self,
        exam: Examination,
        server: ForkServer | None,
        order: Order | None,
        notes: list[str],
        wait_for_compilers: Callable[[], None] = lambda: None,
    ):
        self._exam, self._server, self._order = exam, server, order
        self._wait_for_compilers = wait_for_compilers
        self._count = 0
        self.notes = notes

    def open(self, row: Row, variant: str) -> Seat:
        """A place to run this row of this variant; in this process from the first on that cannot load the case."""
        if self._server is not None and self._order is not None:
            self._count += 1
            if row.name.startswith("torch.compile"):
                self._wait_for_compilers()
            log = self._order.log.with_suffix(f".{self._count}")
            order = replace(self._order, row=row.name, variant=variant, log=log)
            try:
                return OwnProcess(self._server, order, self._stay_here)
            except Died as error:
                self._stay_here(str(error))
        return SameProcess(Runner(self._exam, row, variant))

    def _stay_here(self, why: str) -> None:
        if self._server is not None:
            self._server = None
            self.notes.append(_note(f"another process cannot load the case ({why})"))


def _note(why: str) -> str:
    return f"all rows ran in one process: {why}"


def _pickled(exam: Examination, import_path: Sequence[str]) -> bytes:
    from .pickled import pickled  # cloudpickle belongs to an extra

    return pickled(exam.case, import_path)
