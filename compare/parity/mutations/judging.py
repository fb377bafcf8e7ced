"""One plant, checked and judged: caught, located, explained."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence

import numpy as np

from graphmode.weights import WeightsError

from ...case import Case, CaseError
from ...errors import describe_briefly
from ...report.divergence_text import OPTIMIZER
from ...report.records import Divergence, Parity
from ..adversarial import BATCH_OF_ONE, KINDS
from ..check import CheckReport, check
from ..examination import Examination
from .plant import Plant
from .records import Alarm, Outcome
from .specimens import specimen

MOVES = 1e-9  # a smaller change of the float64 result is none
DRAWS = 1
MODEL = "(model)"

Check = Callable[..., CheckReport]


def judge(plant: Plant, *, seed: int = 0, examine: Check = check) -> Outcome:
    """Plants the bug, checks the case, and says what the report got right.

    Args:
      plant: what, and where.
      seed: of weights and inputs.
      examine: `check`, or another with its arguments.

    Raises:
      KeyError: where there is no such specimen.
    """
    start = time.perf_counter()
    case = specimen(plant.specimen)
    # a plant is caught, or not, on the inputs of its case
    broken = dataclasses.replace(plant.change(case), adversarial=())
    found = {"kind": plant.kind, "specimen": plant.specimen, "site": plant.site, "wanted": _told(plant)}
    try:
        report = examine(broken, seed=seed, draws=DRAWS, compiled=False, hasty=True)
    except (CaseError, WeightsError) as error:
        told = describe_briefly(error)
        return Outcome(**found, caught=True, refused=told, duration_s=time.perf_counter() - start)  # type: ignore[arg-type]
    parity = report.parity[-1]
    moved = movement(case, broken, seed=seed) if parity.equal else _largest(parity)
    divergences = parity.divergences
    causes = list(dict.fromkeys(cause.id for each in divergences for cause in each.causes))
    explained = any(cause in plant.causes for cause in causes)
    idle = moved <= MOVES
    return Outcome(
        **found,  # type: ignore[arg-type]
        idle=idle,
        caught=not idle and not report.passed,
        located=not idle and is_located(plant, parity),
        first_right=bool(divergences) and not divergences[0].outside and divergences[0].module in plant.modules,
        explained=not idle and explained,
        explained_wrongly=not idle and bool(causes) and not explained,
        moved=moved if math.isfinite(moved) else None,
        accused=[_name(each) for each in divergences],
        first=_name(divergences[0]) if divergences else "",
        causes=causes,
        notes=[note for note in parity.notes if "no look inside" in note],
        duration_s=time.perf_counter() - start,
    )


def is_located(plant: Plant, parity: Parity) -> bool:
    """Whether the report accuses a right place, and no wrong one."""
    accused = [each.module for each in parity.divergences if not each.outside]
    modules = [module for module in accused if module != OPTIMIZER]
    outside = any(each.outside for each in parity.divergences)
    if plant.place == "optimizer":
        return accused == [OPTIMIZER] and all(t.mode == "train_step" for t in parity.tensors if not t.equal)
    if plant.place == "outside":
        return outside and not modules
    right = any(module in plant.modules for module in modules)
    return right and not outside and all(module in (*plant.modules, *plant.also) for module in modules)


def movement(case: Case, broken: Case, *, seed: int) -> float:
    """How far the bug moves anything that the port answers in float64, whatever the reference says.

    Infinite where it makes a NaN, another shape or another tensor.
    """
    exam = Examination(case, seed=seed, draws=DRAWS, locate=False, compiled=False)
    other = Examination(broken, seed=seed, draws=DRAWS, locate=False, compiled=False, truths=exam.truths)
    usual, changed = (each.port_side(next(iter(each.case.models)), "float64") for each in (exam, other))
    moved = 0.0
    for question in (truth.question for truth in exam.truths):
        answers = [side.run(question.inputs, question.mode, question.cotangents) for side in (usual, changed)]
        before, after = ({(kind, name): array for kind, name, array in answer.tensors()} for answer in answers)
        if before.keys() != after.keys():
            return math.inf
        moved = max([moved, *(_distance(before[key], after[key]) for key in before)])
    return moved


def alarm(name: str, *, seed: int, quick: bool = False) -> Alarm:
    """Checks a correct port; a quick one on no other shapes, for which all would be compiled anew."""
    start = time.perf_counter()
    case = specimen(name)
    if quick:
        case = dataclasses.replace(case, adversarial=tuple(kind for kind in KINDS if kind != BATCH_OF_ONE))
    report = check(case, seed=seed, draws=DRAWS, compiled=False)
    told = "" if report.passed else str(report)
    return Alarm(specimen=name, seed=seed, passed=report.passed, told=told, duration_s=time.perf_counter() - start)


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    if a.shape != b.shape:
        return math.inf
    if not a.size:
        return 0.0
    same = (a == b) | (np.isnan(a) & np.isnan(b)) if a.dtype.kind == "f" else a == b
    apart = np.where(same, 0.0, np.abs(a.astype(np.float64) - b.astype(np.float64)))
    return float(np.nan_to_num(apart, nan=np.inf).max())


def _largest(parity: Parity) -> float:
    """The largest error of a port that is not equal, of its tensor's scale."""
    return max((math.inf if t.error is None else t.error for t in parity.tensors if not t.equal), default=0.0)


def _name(divergence: Divergence) -> str:
    return "(outside)" if divergence.outside else divergence.module or MODEL


def _told(plant: Plant) -> Sequence[str]:
    if plant.place != "module":
        return [f"({plant.place})"]
    return [module or MODEL for module in plant.modules]
