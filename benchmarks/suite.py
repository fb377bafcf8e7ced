"""The whole comparison, unattended: `python benchmarks/suite.py FOLDER`, in 9 minutes unless told otherwise.

For a machine that is lent for minutes and has nothing to download. Each case runs in a process of its own, the most
telling ones first, so that a crash costs one case and the end of the time the last ones; those whose weights are not
installed, which are judged and not timed, come last. Every case in float32 first, on a GPU with steps of training, some
with a batch sweep, and then in the other dtypes; on a GPU no case takes more than its share of the time before all
others have had theirs. There several cases are prepared at a time, each with some of the processors: to time, they take
turns, and what is not timed stands still meanwhile. What has finished is in FOLDER after every case, as `results.json`
and the pages made from it; started again on the same FOLDER, the suite goes on with what is missing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Annotated

import typer
from graphmode.compare.case import MODES
from graphmode.compare.dtypes import DtypeError, check_dtype
from graphmode.compare.report import CaseInfo, Results, ResultsError, prepare_folder, write_pages
from graphmode.compare.speed.environment import DeviceError, choose_device, revision
from graphmode.compare.speed.machine import processors
from graphmode.compare.speed.turn import VARIABLE, Turn
from graphmode.models import zoo
from graphmode.models.installed import WEIGHTS, how_to_install

MOST_TELLING = (
    *("conditional_scale", "lstm", "resnet18", "bert", "silero_vad", "stats_rnn", "positives_first", "gpt2"),
    "efficientnet_lite0",
)
GPU_DTYPES = ("float32", "bfloat16", "tf32")
GPU_SWEEP = "1,8,64"
SWEPT = ("resnet18",)  # unless sizes are given
GPU_SHARE = 0.6  # of all the time: what one case takes of it at most while others wait
GPU_PREPARE_S = 90  # for a row beside others; how slow the machine is would be measured once for each case
PROCESSORS_EACH = 4  # of a case that is prepared beside others; all share the GPU's memory, too
MOST_AT_ONCE = 4
# of each row: a pool of as many as there are processors, which imports PyTorch first, is of use to a large model alone
ONE_COMPILER = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
LEAST_S = 20.0  # for a case: with less left, it is not begun
NOT_BEGUN = "not begun: the time is over"
TO_END_S = 30.0  # after Ctrl-C, to write its pages
PARTS = {  # of the library, timed beside PyTorch's on a GPU: what is run, and the seconds that are kept for it
    "ops": (("ops.py", "--seconds", "0.03"), 60.0),
    "layers": (("layers.py", "--seconds", "0.03", "--size", "large", "--no-compile"), 70.0),
}


def ordered(names: list[str]) -> list[str]:
    """The most telling cases first, the others in the zoo's order, and last those whose weights are not installed.

    Raises:
      typer.BadParameter: for a name that is not in the zoo.
    """
    known = list(zoo.CASES)
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"there is no case {name!r}; the cases are {', '.join(known)}")
    order = [*MOST_TELLING, *(name for name in known if name not in MOST_TELLING)]
    return sorted((name for name in order if not names or name in names), key=lacks_weights)


def lacks_weights(name: str) -> bool:
    folder = zoo.CASES[name].split(".")[2]
    return folder in WEIGHTS and bool(how_to_install(folder))


def fitting() -> int:
    """How many cases are prepared at a time on a GPU."""
    return min(MOST_AT_ONCE, max(1, len(processors()) // PROCESSORS_EACH))


def found(folder: Path, *, seed: int, quick: bool) -> Results | None:
    """What a case left in this folder at this revision and in this way, interrupted or not; None where nothing."""
    try:
        results = Results.load(folder / "results.json")
    except ResultsError:
        return None
    same = (results.seed, results.quick, results.environment.revision) == (seed, quick, revision())
    return results if same else None


@dataclass(frozen=True)
class Unit:
    """A case in one dtype, which one process compares."""

    case: str
    dtype: str

    @property
    def name(self) -> str:
        return self.case if self.dtype == "float32" else f"{self.case}-{self.dtype}"

    def arguments(self, sweep: str, swept: Sequence[str], *, floors: bool) -> list[str]:
        """A sweep is made in float32 alone."""
        sizes = ["--sweep", sweep] if sweep and self.dtype == "float32" and self.case in swept else []
        return [self.case, "--dtype", self.dtype, *sizes, *([] if floors else ["--no-floors"])]


def run_case(folder: Path, arguments: list[str], limit_s: float, turn: Turn | None = None) -> str:
    """Runs one case in a process of its own; says how it ended. Its output goes to `log.txt` in the folder.

    With a turn it is a session of its own, which stands still while another one times; a Ctrl-C reaches it from here.
    """
    command = [sys.executable, "-m", "graphmode", "compare", *arguments, "--out", str(folder)]
    prepare_folder(folder)
    with (folder / "log.txt").open("w") as log, _started(command, log, turn) as process:
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # it keeps what has finished
            try:
                process.wait(TO_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
            return f"broken off after {limit_s:.0f} s"
    if code < 0:
        return f"its process died of {signal.Signals(-code).name}"
    return {0: "passed", 1: "something is not as expected", 2: "could not be compared"}.get(code, f"exit code {code}")


@contextlib.contextmanager
def _started(command: list[str], log: IO[str], turn: Turn | None) -> Iterator[subprocess.Popen[str]]:
    if turn is None:
        with subprocess.Popen(command, stdout=log, stderr=log) as process:
            yield process
        return
    environment = {**ONE_COMPILER, **os.environ, VARIABLE: str(turn.folder)}
    with subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True) as process:
        turn.register(process.pid)
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.wait(TO_END_S)
            turn.unregister(process.pid)


def time_part(name: str, folder: Path, device: str) -> str:
    """Times a part of the library by its own script, briefly; says how it ended. What it has timed is kept."""
    (script, *arguments), limit_s = PARTS[name]
    command = [sys.executable, str(Path(__file__).with_name(script)), str(folder), *arguments, "--device", device]
    prepare_folder(folder)
    with (folder / "log.txt").open("w") as log:
        try:
            code = subprocess.run(command, stdout=log, stderr=log, timeout=limit_s).returncode
        except subprocess.TimeoutExpired:
            return f"broken off after {limit_s:.0f} s"
    return "timed" if code == 0 else f"exit code {code}"


def gather(units: Sequence[Unit], left: dict[str, Results | None], notes: dict[str, str]) -> Results | None:
    """What all units left, as one; None where none did. A case for which there was no time is left out by name, or has
    a note of the dtypes that it was not compared in; one that left nothing is in it with what became of it."""
    parts = [results for results in left.values() if results is not None]
    if not parts:
        return None
    whole = Results.merged(parts)
    lost = [unit for unit in units if left[unit.name] is None and unit.name in notes]
    whole.cases = [replace(case, notes=list(case.notes)) for case in whole.cases]
    there = {case.name: case for case in whole.cases}
    for unit in lost:
        if notes[unit.name] != NOT_BEGUN:
            problem = f"{notes[unit.name]}; it left no results"
            whole.cases.append(CaseInfo(name=unit.name, summary="", problem=problem))
        elif unit.case in there:
            there[unit.case].notes.append(f"for want of time not compared in {unit.dtype}")
        elif unit.case not in whole.left_out:
            whole.left_out.append(unit.case)
    whole.complete = whole.complete and not any(results is None for results in left.values())
    return whole


def main(
    folder: Annotated[Path, typer.Argument(help="Where results.json, the pages and cases/ go.")],
    minutes: Annotated[float, typer.Option(help="The time for all of it.", min=0.0)] = 9.0,
    case: Annotated[list[str] | None, typer.Option("--case", "-c", help="A case of the zoo; all where none.")] = None,
    dtype: Annotated[
        list[str] | None, typer.Option(help="float32, bfloat16, tf32; float32 alone on a CPU, else all three.")
    ] = None,
    mode: Annotated[list[str] | None, typer.Option(help="What is timed; on a GPU also training steps.")] = None,
    sweep: Annotated[
        str | None, typer.Option(help=f"Batch sizes; on a GPU {GPU_SWEEP} of {' and '.join(SWEPT)} unless given.")
    ] = None,
    row: Annotated[list[str] | None, typer.Option("--row", "-r", help="A pattern of rows; all where none.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = "auto",
    seed: Annotated[int, typer.Option(help="Of weights and inputs.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Rough times, sooner.")] = False,
    at_once: Annotated[
        int | None, typer.Option(help="Cases that are prepared at a time, of which one times; one on a CPU.", min=1)
    ] = None,
) -> None:
    """Compare every case, the most telling first, each in its own process, within the time."""
    end = time.monotonic() + 60 * minutes
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # its runs are of sessions of their own, and end with it
    names = ordered(case or [])
    try:
        chosen = choose_device(device)
        on_gpu = chosen == "gpu"
        dtypes = dtype or (GPU_DTYPES if on_gpu else ("float32",))
        for one in dtypes:
            check_dtype(one, chosen)
    except (DeviceError, DtypeError) as error:
        raise typer.BadParameter(str(error)) from error
    if wrong := set(mode or ()) - set(MODES):
        raise typer.BadParameter(f"--mode is {', '.join(sorted(wrong))}; choose from {', '.join(MODES)}")
    units = [Unit(name, one) for one in dtypes for name in names]
    swept = names if sweep else SWEPT
    sweep = (GPU_SWEEP if on_gpu else "") if sweep is None else sweep
    share_s = 60 * minutes * (GPU_SHARE if on_gpu else 1)
    arguments = ["--device", device, "--seed", str(seed), *(["--quick"] if quick else [])]
    arguments += [part for one in mode or (MODES if on_gpu else ()) for part in ("--mode", one)]
    arguments += [part for pattern in row or [] for part in ("--row", pattern)]
    arguments += ["--budget", str(GPU_PREPARE_S)] if on_gpu and not quick else []
    parts = PARTS if on_gpu and not case else {}
    last = end - sum(limit_s for _, limit_s in parts.values())
    try:
        folder = prepare_folder(folder)
        runs = Runs(
            folder,
            units,
            arguments,
            sweep,
            swept,
            share_s=share_s,
            end=last,
            seed=seed,
            quick=quick,
            at_once=at_once or (fitting() if on_gpu else 1),
        )
        results = runs.run()
        for name in parts:
            typer.echo(f"{name}: {time_part(name, folder / name, device)}")
        if results is None:
            typer.echo("nothing was compared; see log.txt of each case, or give more --minutes", err=True)
            raise typer.Exit(2)
        for path in (folder / "results.json", *write_pages(results, folder)):
            typer.echo(f"wrote {path}")
    except ResultsError as error:
        typer.echo(f"{error}; or give an empty folder", err=True)
        raise typer.Exit(2) from error
    raise typer.Exit(0 if results.passed and results.complete else 1)


class Runs:
    """The runs of all units, each in a folder of its own, until the time is over.

    Args:
      folder: where results are gathered.
      units: in order of importance.
      arguments: of every run.
      sweep, swept: batch sizes, and the cases that are timed at them.
      share_s: what a unit takes at most while others wait; what was broken off, now or by an earlier start, begins anew
        when all have had theirs and more time is left than it had.
      end: of `time.monotonic`.
      seed, quick: that results which are there already have to be of.
      at_once: how many units run at a time; where several do, they take turns to time.
    """

    def __init__(
        self,
        folder: Path,
        units: Sequence[Unit],
        arguments: Sequence[str],
        sweep: str,
        swept: Sequence[str],
        *,
        share_s: float,
        end: float,
        seed: int,
        quick: bool,
        at_once: int = 1,
    ):
        self.folder, self.units, self.arguments, self.sweep, self.swept = folder, units, arguments, sweep, swept
        self.share_s, self.end, self.seed, self.quick, self.at_once = share_s, end, seed, quick, at_once
        self._turn: Turn | None = None
        self._writing = threading.Lock()
        self._floors_of: set[str] = set()  # dtypes
        self.left = {unit.name: self._found(unit) for unit in units}
        self.notes: dict[str, str] = {}

    def run(self) -> Results | None:
        """Runs what the folder lacks, and saves what there is after each; None where there is nothing.

        Raises:
          ResultsError: where the folder cannot be written to, or has results of another environment.
        """
        wanted: list[tuple[Unit, str]] = []
        begun = time.monotonic()
        for number, unit in enumerate(self.units, 1):
            before, told = self.left[unit.name], f"{number} of {len(self.units)}"
            if before is not None:
                self._floors_of |= _with_floors(before)
                self.notes[unit.name] = "there already" if before.complete else "broken off before"
                typer.echo(f"{told}, {unit.name}: {self.notes[unit.name]}")
            else:
                wanted.append((unit, told))
        with tempfile.TemporaryDirectory(prefix="graphmode-") as folder, ThreadPoolExecutor(self.at_once) as pool:
            self._turn = Turn.begun(Path(folder) / "turn") if self.at_once > 1 else None
            try:
                list(pool.map(lambda each: self._run(*each, self.share_s), wanted))
            except KeyboardInterrupt:
                self.end = time.monotonic()  # no further one begins
                if self._turn is not None:
                    self._turn.interrupt()
                raise
            if self._turn is not None and wanted:
                now = time.monotonic()
                timed_s = self._turn.stood_still(begun, now)
                typer.echo(f"in {now - begun:.0f} s, one case or another was timed for {timed_s:.0f} s")
        self._turn = None
        for unit in self.units:
            there = self.left[unit.name]
            if there is not None and not there.complete and self._rest_s > there.duration_s:
                self._run(unit, "again", self._rest_s)
        return gather(self.units, self.left, self.notes)

    @property
    def _rest_s(self) -> float:
        return self.end - time.monotonic() - TO_END_S

    def _run(self, unit: Unit, told: str, limit_s: float) -> None:
        start, limit_s = time.monotonic(), min(limit_s, self._rest_s)
        left, note = self.left[unit.name], NOT_BEGUN
        if limit_s >= LEAST_S:
            with self._writing:
                arguments = unit.arguments(self.sweep, self.swept, floors=unit.dtype not in self._floors_of)
                self._floors_of.add(unit.dtype)
            note = run_case(self._place(unit), [*arguments, *self.arguments], limit_s, self._turn)
            left = self._found(unit)
            if left is None or unit.dtype not in _with_floors(left):
                self._floors_of.discard(unit.dtype)  # the next one measures them
        with self._writing:
            self.left[unit.name], self.notes[unit.name] = left, note
            typer.echo(f"{told}, {unit.name}: {note} ({time.monotonic() - start:.0f} s)")
            self._save(unit)

    def _save(self, last: Unit) -> None:
        """What there is, in one file."""
        try:
            results = gather(self.units, self.left, self.notes)
        except ResultsError as error:  # this one's environment is another: it is told, and costs no other
            self.left[last.name], self.notes[last.name] = None, f"{self.notes[last.name]}, and left out: {error}"
            (self._place(last) / "results.json").replace(self._place(last) / "left_out.json")
            results = gather(self.units, self.left, self.notes)
        if results is not None:
            results.save(self.folder / "results.json")

    def _place(self, unit: Unit) -> Path:
        return self.folder / "cases" / unit.name

    def _found(self, unit: Unit) -> Results | None:
        return found(self._place(unit), seed=self.seed, quick=self.quick)


def _with_floors(results: Results) -> set[str]:
    """The dtypes whose products were measured with these."""
    return set(results.floors.flops_per_s) if results.floors else set()


if __name__ == "__main__":
    typer.run(main)
