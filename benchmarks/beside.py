"""Several forms of one computation timed beside each other, interleaved in one process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import typer
from graphmode.compare.dtypes import allow_tf32, matmul_precision
from graphmode.compare.report import ResultsError, prepare_folder
from graphmode.compare.report.bootstrap import interval
from graphmode.compare.report.records import Environment
from graphmode.compare.report.wording import number
from graphmode.compare.speed.environment import DeviceError, choose_device
from graphmode.compare.speed.timing import SPIN_S, Timed, interleave

from graphmode.dispatch import dispatch_inline
from graphmode.memory import keep_freed_memory
from graphmode.vectors import use_wide_vectors

INPUT_SETS = 3
SAMPLE_S = 5e-3
OURS = "graphmode"  # the form; all others are PyTorch's, or what bounds it
WAKE_S = 15e-3  # of calls, after which a form takes what it takes when called on and on: the others emptied its caches
MOST_CALLS = 500

Ratio = tuple[float, float, float]  # with the ends of its 95 % interval


@dataclass
class Measured:
    """One computation at one size: seconds a call of each form, or why there are none.

    Attributes:
      budget_s: of timed calls, for each form.
      revision: of the code, where it is not that of the run that the results are of.
    """

    name: str
    size: int | str
    samples_s: dict[str, list[float]] = field(default_factory=dict)
    reason: str = ""
    budget_s: float | None = None
    revision: str = ""

    def median(self, form: str) -> float | None:
        samples = self.samples_s.get(form)
        return float(np.median(samples)) if samples else None

    def ratio(self, form: str) -> Ratio | None:
        """Ours over that form, with its 95 % interval."""
        ours, theirs = self.samples_s.get(OURS), self.samples_s.get(form)
        if not ours or not theirs:
            return None
        low, high = interval(tuple(ours), tuple(theirs)) or (float("nan"), float("nan"))
        return float(np.median(ours) / np.median(theirs)), low, high

    def fastest(self, forms: Sequence[str]) -> str | None:
        """Which of these forms has the least median."""
        there = [form for form in forms if self.samples_s.get(form)]
        return min(there, key=lambda form: float(np.median(self.samples_s[form])), default=None)


def time_forms(forms: Mapping[str, Callable[[int], Any]], measured: Measured, *, budget_s: float) -> None:
    """Adds the samples of each form, a function of the number of its input set, or why it failed."""
    measured.budget_s = budget_s
    timed = {
        form: Timed(partial(_turn, call), partial(_calibrated, call), warm_s=0.0, side=str(form == OURS))
        for form, call in forms.items()
    }
    interleave(list(timed.values()), budget_s=budget_s)
    for form, one in timed.items():
        if one.error is not None:
            measured.reason += f"{form}: {type(one.error).__name__}: {one.error}. "
        elif one.samples:
            measured.samples_s[form] = one.samples


def _turn(call: Callable[[int], Any], offset: int, calls: int) -> float:
    """A sample, once the threads of the form before have ceased to spin, and its own run warm."""
    time.sleep(SPIN_S)
    start = time.perf_counter()
    while time.perf_counter() < start + WAKE_S:
        call(offset % INPUT_SETS)
        offset += 1
    return _take(call, offset, calls)


def _take(call: Callable[[int], Any], offset: int, calls: int) -> float:
    start = time.perf_counter()
    for i in range(offset, offset + calls):
        call(i % INPUT_SETS)
    return (time.perf_counter() - start) / calls


def _calibrated(call: Callable[[int], Any]) -> int:
    fastest = min(_take(call, i, 1) for i in range(3))
    return max(1, min(MOST_CALLS, round(SAMPLE_S / fastest)))


def prepared(folder: Path, device: str) -> str:
    """The device that is there, once the folder can be written to; both sides compute as all rows of a comparison do,
    in strict float32 on a GPU.

    Raises:
      typer.BadParameter: where one of the two is not to be had.
    """
    dispatch_inline()
    use_wide_vectors()
    try:
        prepare_folder(folder)
        chosen = choose_device(device)
    except (ResultsError, DeviceError) as error:
        raise typer.BadParameter(str(error)) from error
    if chosen == "cpu":
        keep_freed_memory()
    else:
        allow_tf32("float32")
        jax.config.update("jax_default_matmul_precision", matmul_precision("float32"))
    return chosen


def kept(path: Path, key: str) -> list[Measured]:
    """What a results file has under this key, each with the revision that it is of.

    Raises:
      typer.BadParameter: where the file is not there.
    """
    if not path.exists():
        raise typer.BadParameter(f"{path} is not there, so that there is nothing to keep; leave --keep out")
    record = json.loads(path.read_text())
    revision = record["environment"]["revision"]
    return [Measured(**{**one, "revision": one.get("revision") or revision}) for one in record[key]]


def told(ratio: Ratio | None) -> str:
    return "-" if ratio is None else f"{number(ratio[0])} ({number(ratio[1])} to {number(ratio[2])})"


def place(environment: Environment) -> str:
    """Where it was measured, in words."""
    where = f"{environment.threads} threads of a CPU" if environment.device == "cpu" else environment.device_name
    return f"{where}, revision {environment.revision}"
