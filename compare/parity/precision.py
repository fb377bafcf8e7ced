"""The verdict *precise* on one tensor: the port's error beside PyTorch's own, over the inputs of one mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..observation import Observation
from . import yardstick
from .judge import Key, Truth, shares_scale
from .yardstick import PRECISE_RATIO, SMALLEST_SCALE, is_judged, port_error, ratio_to, torch_error

if TYPE_CHECKING:
    from .examination import Examination

MOST_BY_LUCK = 4.0  # times the ratio that is allowed: further off, one draw tells
Again = Callable[[int], Sequence[tuple[Truth, Observation]]]  # further draws of an input, and the candidate's answers


class Precision:
    """Judges tensors of an examination; PyTorch's own errors are found once."""

    def __init__(self, exam: Examination):
        self.exam = exam
        self._torch_errors: dict[tuple[Key, tuple[int, ...], int, bool], float] = {}

    def verdict(
        self,
        mode: str,
        key: Key,
        rows: list[int],
        usual: list[Observation],
        again: Again | None = None,
        *,
        is_equal: bool = True,
    ) -> tuple[float | None, bool, str]:
        """The worst error ratio, the verdict, and what to say about it: random inputs pooled, each edge by itself. A
        tensor of few elements is judged where it is not equal, and far off.

        An edge is one draw, and the random ones are few; so is their rounding on either side, which a model may
        multiply. Where they tell against the candidate, `again` is asked for more of them, and all together count.
        """
        truths = self.exam.truths
        edges = [[i] for i in rows if not truths[i].question.is_random] if key[0] == "output" else []
        pools = [[i for i in rows if truths[i].question.is_random], *edges]
        worst: float | None = None
        notes: list[str] = []
        for pool in filter(None, pools):
            answers = [(truths[i], usual[i]) for i in pool]
            ratio, blame = self._ratio(mode, key, pool, answers, notes, is_equal)
            if again is not None and ratio and 1 < ratio / PRECISE_RATIO < MOST_BY_LUCK:
                ratio, blame = self._ratio(mode, key, pool, [*answers, *again(pool[0])], notes, is_equal)
            if blame:
                return worst, False, blame
            if ratio is not None and (worst is None or ratio > worst):
                worst = ratio
        for i in rows if key[0].endswith("gradient") else ():  # of one on an edge: that it is finite
            blame = "" if truths[i].question.is_random else self._without_fault(key, truths[i], usual[i], notes)[1]
            if blame:
                return worst, False, blame
        return worst, _is_precise(worst), notes[0] if notes and worst is None else ""

    def _ratio(
        self,
        mode: str,
        key: Key,
        pool: list[int],
        answers: Sequence[tuple[Truth, Observation]],
        notes: list[str],
        is_equal: bool,
    ) -> tuple[float | None, str]:
        """The error ratio, None where it cannot be had; and a gross fault."""
        triples = [(usual.find(key), truth.torch.find(key), truth.reference.find(key)) for truth, usual in answers]
        if any(array is None for triple in triples for array in triple):
            return None, ""
        ours: list[np.ndarray] = []
        for truth, usual in answers:
            found, blame = self._without_fault(key, truth, usual, notes)
            if found is None:
                return None, blame
            ours.append(found)
        _, torch, reference = (list(column) for column in zip(*triples, strict=True))
        held = [_held(t, r) for t, r in zip(torch, reference, strict=True)]
        ours, torch, reference = (_those(held, column) for column in (ours, torch, reference))
        few = not is_judged(reference)
        ratio = theirs = 0.0
        if not few or (not is_equal and reference[0].size and reference[0].dtype.kind in "fc"):
            theirs = self._torch_error(key, tuple(pool), torch, reference)
            ratio = ratio_to(port_error(ours, reference, kinked=_may_jump(mode, key)), theirs)
        if few and ratio <= PRECISE_RATIO * MOST_BY_LUCK:
            notes.append(f"precision not judged: {reference[0].size} elements")
            return None, ""
        if _is_precise(ratio) or (flushed := self._flushed(key, answers)) is None:
            return ratio, ""
        kept = [np.where(np.isfinite(f), f, t) for f, t in zip(_those(held, flushed), torch, strict=True)]
        beside = self._torch_error(key, tuple(pool), kept, reference, flushed=True)
        if not np.isfinite(beside) or not _is_precise(left := ratio_to(ratio * theirs, max(beside, theirs))):
            return ratio, ""
        self.exam.subnormal.excuses(answers[0][0], key, ratio)
        return left, ""

    def _without_fault(
        self, key: Key, truth: Truth, usual: Observation, notes: list[str]
    ) -> tuple[np.ndarray | None, str]:
        """The candidate's tensor, with PyTorch's elements where the fault is XLA's; a gross fault of its own; neither
        where it hangs on rounding."""
        p, t, r = usual.find(key), truth.torch.find(key), truth.reference.find(key)
        if p is None or t is None or r is None or not (blame := gross_fault(p, t, r)):
            return p, ""
        if (new := self.exam.subnormal.excused(truth, key, p)) is not None:
            notes.append(f"{blame} in {self.exam.dtype}, which hangs on subnormal numbers")
            return np.where(new, t, p), ""
        if not self._hangs_on_rounding(truth, key, p, t, r):
            return None, blame
        notes.append(f"{blame} in {self.exam.dtype}, as PyTorch's do where rounding moves them")
        return None, ""

    def _flushed(self, key: Key, answers: Sequence[tuple[Truth, Observation]]) -> list[np.ndarray] | None:
        """PyTorch's tensors without subnormal numbers; None where it has none."""
        answered = [self.exam.subnormal.answer(truth.question) for truth, _ in answers]
        if all(each is None for each in answered):
            return None
        arrays = [
            (truth.torch if each is None else each).find(key)
            for (truth, _), each in zip(answers, answered, strict=True)
        ]
        pairs = zip(arrays, answers, strict=True)
        same = all(x is not None and x.shape == truth.torch.get(key).shape for x, (truth, _) in pairs)
        return arrays if same else None  # type: ignore[return-value]

    def _hangs_on_rounding(
        self, truth: Truth, key: Key, port: np.ndarray, torch: np.ndarray, reference: np.ndarray
    ) -> bool:
        """Whether the integers that only the port gets wrong are such as PyTorch gets wrong one rounding apart, and not
        by more."""
        if reference.dtype.kind not in "iub" or port.shape != reference.shape:
            return False
        wrong = (port != reference) & (torch == reference)
        usual = self.exam.judge.rounding.unsteady(truth, key)
        off = np.abs(port.astype(float) - reference.astype(float))
        return bool((usual[wrong] > 0).all()) and off[wrong].max() <= PRECISE_RATIO * usual.max()

    def _torch_error(
        self,
        key: Key,
        pool: tuple[int, ...],
        torch: list[np.ndarray],
        reference: list[np.ndarray],
        *,
        flushed: bool = False,
    ) -> float:
        """PyTorch's own error in a tensor, over these inputs and, for a gradient, jittered ones; found once."""
        at = key, pool, len(torch), flushed
        if at not in self._torch_errors:
            truths = self.exam.truths
            kinked = _may_jump(truths[pool[0]].question.mode, key)
            self._torch_errors[at] = torch_error(
                torch,
                reference,
                dtype=self.exam.dtype,
                floor_scale=self._floor_scale(key, list(pool)),
                kinked=kinked,
                further=[errors[key] for i in pool for errors in truths[i].jitter if key in errors and kinked],
            )
        return self._torch_errors[at]

    def _floor_scale(self, key: Key, rows: list[int]) -> float:
        """For a gradient that is nothing but rounding (zero in exact arithmetic), the size of the model's largest.

        For a parameter's change, the parameter's own size, since it is the sum of the two that is rounded.
        """
        kind, name = key
        if kind == "parameter" and name in self.exam.judge.state_dict:
            return yardstick.rms(self.exam.judge.state_dict[name])
        if not shares_scale(kind):
            return 0.0
        truths = self.exam.truths
        sizes = [(yardstick.rms(truths[i].reference.get(key)), truths[i].shared_scale(key, rms=True)) for i in rows]
        own, largest = np.median(sizes, axis=0)
        return float(largest) if own < SMALLEST_SCALE * largest else 0.0


def _is_precise(ratio: float | None) -> bool:
    return ratio is None or ratio <= PRECISE_RATIO


def _held(array: np.ndarray, reference: np.ndarray) -> np.ndarray | None:
    """Where PyTorch has a number if there is one: what it loses is no yardstick. None where that is everywhere."""
    if reference.dtype.kind not in "fc" or array.shape != reference.shape:
        return None
    held = np.isfinite(array) | ~np.isfinite(reference)
    return None if held.all() else held


def _those(held: Sequence[np.ndarray | None], arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [x if kept is None else x[kept] for kept, x in zip(held, arrays, strict=True)]


def _may_jump(mode: str, key: Key) -> bool:
    """Whether a gradient is in it, which jumps where one rounding decides a relu."""
    return mode == "train_step" or key[0].endswith("gradient")


def gross_fault(port: np.ndarray, torch: np.ndarray, reference: np.ndarray) -> str:
    """What no precision excuses: another shape, a new NaN or infinity, an integer that PyTorch gets right."""
    if port.shape != torch.shape:
        return f"shape {port.shape}, and PyTorch has {torch.shape}"
    if reference.dtype.kind in "iub":
        wrong = (port != reference) & (torch == reference)
        return f"{int(wrong.sum())} of {port.size} elements differ" if wrong.any() else ""
    if np.isfinite(port).all():
        return ""
    new = ~np.isfinite(port) & np.isfinite(torch) & np.isfinite(reference)
    return f"{int(new.sum())} of {port.size} elements are not finite, and PyTorch's are" if new.any() else ""
