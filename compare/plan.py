"""What a run of the comparison does, and who hears of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from .case import Case, Mode
from .report.records import CaseInfo, Cell, Parity
from .speed.bench import Budget

QUICK = Budget(prepare_s=15.0, time_s=0.25)


@dataclass(frozen=True)
class Plan:
    """What a run does.

    Attributes:
      speed: whether to time, after the parity check that every number needs.
      rows: patterns of row names; all where empty.
      device: `"auto"`, `"cpu"` or `"gpu"`.
      dtypes: in which parity is judged precise, and rows are timed: `"float32"`, `"bfloat16"`, on a GPU `"tf32"`.
      modes: that are timed; all that a case has, where none is named. Parity is judged in all of them.
      sweep: batch sizes at which the fastest rows of each case that has a `sweep` are timed, too.
      seed: of weights, inputs and cotangents.
      quick: shorter budgets.
      budget: of each cell; None for the usual one.
      prepare_s: the part of the budget before the first timed call, where it is to be another.
      time_s: the part of the budget that goes to timed calls, where it is to be another: more of it tells smaller
        differences.
      processes: that each contender for the fastest row runs in, since times differ from process to process; None for
        two, where the second does not take long to prepare.
      isolate: whether each row runs in a process of its own, where the system can fork: what hangs or crashes costs
        its own cell. In one process a debugger can reach it.
      steps: of training in lockstep, of each port of a case with an optimizer; none where 0.
      floors: whether to measure what this machine can do at best, too.
      modules: whether to look inside ports that are equal, too.
      shrink: folder for a small script of each port that is not equal; None for no scripts.
      within_s: seconds in which the run shall end: a case that is likely to need more than is left is left out, and the
        results name it. None for as long as it takes.
      usual_s: seconds that cases take on some machine, by name, from which follows what they are likely to take on this
        one; any other case as long as the longest so far.
    """

    speed: bool = True
    rows: tuple[str, ...] = ()
    device: str = "auto"
    dtypes: tuple[str, ...] = ("float32",)
    modes: tuple[Mode, ...] = ()
    sweep: tuple[int, ...] = ()
    seed: int = 0
    quick: bool = False
    budget: Budget | None = None
    prepare_s: float | None = None
    time_s: float | None = None
    processes: int | None = None
    isolate: bool = True
    steps: int = 0
    floors: bool = True
    modules: bool = False
    shrink: Path | None = None
    within_s: float | None = None
    usual_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def cell_budget(self) -> Budget:
        budget = self.budget or (QUICK if self.quick else Budget())
        given = {"prepare_s": self.prepare_s, "time_s": self.time_s}
        asked = {name: seconds for name, seconds in given.items() if seconds is not None}
        return replace(budget, is_patient=self.prepare_s is not None, **asked)

    @property
    def contender_processes(self) -> int | None:
        return 1 if self.quick and self.processes is None else self.processes


@dataclass
class Listener:
    """What a front end hears of a run; each hook does nothing unless set."""

    on_case: Callable[[Case], None] = field(default=lambda case: None)
    on_step: Callable[[str], None] = field(default=lambda text: None)
    on_parity: Callable[[Parity], None] = field(default=lambda parity: None)
    on_told: Callable[[str], None] = field(default=lambda text: None)
    on_cells: Callable[[list[Cell]], None] = field(default=lambda cells: None)
    on_problem: Callable[[CaseInfo], None] = field(default=lambda info: None)
