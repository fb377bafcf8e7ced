"""What a port loses in float32 since XLA, on a CPU, makes zero of subnormal numbers, which PyTorch keeps."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import jax.tree_util as jtu
import numpy as np
import torch

from ..moved_results import FlushedResults
from ..quiet import quiet
from ..trees import is_floating

if TYPE_CHECKING:
    from ..case import Inputs
    from ..observation import Observation
    from .judge import Judge, Key, Question, Truth

LEAST = float(torch.finfo(torch.float32).tiny)  # of what is not subnormal; bfloat16's is the same
DTYPES = ("float32", "bfloat16")


class Subnormal:
    """Of one judge."""

    def __init__(self, judge: Judge):
        self.judge = judge
        self._told: dict[tuple[str, str, Key], tuple[Question, str]] = {}
        self._kept: dict[tuple[str, str], tuple[Question, Observation | None]] = {}

    def excused(self, truth: Truth, key: Key, ours: np.ndarray) -> np.ndarray | None:
        """Which elements are not finite in a port alone, if none of them is in PyTorch either where that makes zero of
        subnormal numbers; None where some are, or nothing is subnormal there. What is excused is told.

        Args:
          truth: the answers to a question.
          key: of a tensor.
          ours: the port's, in the dtype that people run.
        """
        theirs, flushed = truth.torch.find(key), self.answer(truth.question)
        again = None if flushed is None else flushed.find(key)
        if theirs is None or again is None or not ours.shape == theirs.shape == again.shape or not is_floating(theirs):
            return None
        new = ~_is_finite(ours) & _is_finite(theirs)
        if not new.any() or _is_finite(again)[new].any():
            return None
        self._tell(truth.question, key, f"is not finite in {int(new.sum())} of {ours.size} elements, and PyTorch's is,")
        return new

    def excuses(self, truth: Truth, key: Key, ratio: float) -> None:
        """Tells of a tensor whose digits are lost by it."""
        self._tell(truth.question, key, f"has {ratio:.3g} times PyTorch's error")

    def taken_warnings(self) -> list[str]:
        """What was excused since this was last asked."""
        told = list(self._told.values())
        self._told.clear()
        if not told:
            return []
        question, what = told[0]
        more = f", and {len(told) - 1} more tensors" if len(told) > 1 else ""
        warning = (
            f"{what} on {question.label!r} in {question.mode} and {self.judge.dtype}{more}: XLA on a CPU makes zero of "
            f"numbers below {LEAST:.2g}, and PyTorch, where it does, too, gives the same{self._place(question)}; keep "
            "what may be so small above that before its logarithm or a division by it, as jnp.maximum(x, "
            "jnp.finfo(x.dtype).tiny) does, or compute in logarithms (log_softmax, log_sigmoid, logsumexp)"
        )
        return [warning]

    def answer(self, question: Question) -> Observation | None:
        """What PyTorch gives with zeros in place of subnormal numbers; None where it has none, and where XLA keeps
        them."""
        if self.judge.dtype not in DTYPES or self.judge.torch_device != "cpu":
            return None
        at = question.mode, question.label
        if at not in self._kept or self._kept[at][0] is not question:
            self._kept[at] = question, self._answer(question, FlushedResults())
        return self._kept[at][1]

    def _answer(self, question: Question, mode: FlushedResults) -> Observation | None:
        inputs = _flushed(question.inputs) if mode.flushes else question.inputs
        with contextlib.suppress(Exception), quiet(), mode:
            answer = self.judge.usual.run(inputs, question.mode, question.cotangents)
            return answer if mode.count or inputs is not question.inputs else None
        return None

    def _tell(self, question: Question, key: Key, what: str) -> None:
        kind, name = key
        self._told[question.mode, question.label, key] = question, f"the {kind.replace('_', ' ')} {name} {what}"

    def _place(self, question: Question) -> str:
        """The first operation of the reference that makes more of what is not finite."""
        with_zeros, as_it_is = FlushedResults(), FlushedResults(flushes=False)
        for mode in (with_zeros, as_it_is):
            self._answer(question, mode)
        for number, found in with_zeros.not_finite.items():
            before = as_it_is.not_finite.get(number)
            if before is None or (found.elements > before.elements and found.name == before.name):
                return f", from {found.name}{found.line and f' at {found.line}'} on"
        return ""


def _flushed(inputs: Inputs) -> Inputs:
    """The same where no element is subnormal."""

    def is_small(leaf: np.ndarray) -> np.ndarray:
        return (np.abs(leaf) < LEAST) & (leaf != 0)

    if not any(is_floating(leaf) and is_small(leaf).any() for leaf in jtu.tree_leaves(inputs)):
        return inputs
    return jtu.tree_map(lambda leaf: np.where(is_small(leaf), 0, leaf) if is_floating(leaf) else leaf, inputs)


def _is_finite(array: np.ndarray) -> np.ndarray:
    return np.isfinite(array.astype(np.float32) if array.dtype.kind == "V" else array)
