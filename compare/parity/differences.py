"""How far a candidate's answers in float64 are off, tensor by tensor."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from ..report.records import Tensor
from .scales import Scales
from .yardstick import Difference, difference, magnitude

if TYPE_CHECKING:
    from graphmode.weights import Drop

    from ..case import Case, Mode
    from ..observation import Observation
    from .judge import Judge, Key, Truth


class Differences:
    """The differences of one candidate's answers.

    Attributes:
      notes: what was left out or is odd, as far as answers were compared.
      trained: parameters that have a gradient here, and that the reference freezes.
    """

    def __init__(self, case: Case, judge: Judge, scales: Scales):
        self._case, self._judge, self._scales = case, judge, scales
        self.notes: list[str] = []
        self.trained: list[str] = []

    def of(self, truth: Truth, answer: Observation) -> dict[Key, Difference]:
        """Of each tensor of an answer, those that only one side has among them."""
        keys = dict.fromkeys((kind, name) for side in (truth.reference, answer) for kind, name, _ in side.tensors())
        return {key: self._of_tensor(truth, key, answer) for key in keys}

    def _of_tensor(self, truth: Truth, key: Key, answer: Observation) -> Difference:
        mode, (kind, name) = truth.question.mode, key
        ours, theirs = answer.find(key), truth.reference.find(key)
        if ours is not None and theirs is not None:
            if ours.dtype != theirs.dtype and ours.dtype.kind == "f":
                self.notes.append(
                    f"{mode}: {kind} {name} is {ours.dtype} in a {theirs.dtype} run: something inside the port casts"
                )
            return difference(ours, theirs, self._scales.of(truth, key))
        if theirs is None and ours is not None and name in self._judge.frozen:
            return self._of_frozen(truth, key, ours)
        if theirs is None:
            told = f"the port has the {kind.replace('_', ' ')} {name}, and the reference has it not as such"
            self.notes.append(f"{mode}: {told}")
            return Difference(0.0) if kind == "parameter_gradient" else Difference(np.inf, note="only the port has it")
        dropped = self._dropped(name)
        if dropped is not None or name.endswith("num_batches_tracked"):
            why = f" ({dropped.why})" if dropped is not None and dropped.why else ""
            told = f"the {kind.replace('_', ' ')} {name} is not kept by the port{why}, and was not compared"
            self.notes.append(f"{mode}: {told}")
            return Difference(0.0)
        if kind == "buffer":
            held = "hold it in an nnx.Variable that is no nnx.Param, such as nnx.BatchStat or a class of your own"
            return Difference(np.inf, note=f"the port has it not as a buffer: {held}")
        return Difference(np.inf, note="the port has it not: parameters must be nnx.Params")

    def _of_frozen(self, truth: Truth, key: Key, ours: np.ndarray) -> Difference:
        """Of a parameter that the reference freezes (`requires_grad=False`): it stays where it is."""
        kind, name = key
        if kind == "buffer":  # held as what is no parameter, as is right
            return difference(ours, self._judge.state_dict[name].astype(ours.dtype))
        if kind == "parameter":
            found = difference(ours, np.zeros_like(ours), max(truth.shared_scale(key), magnitude(ours)))
            return found if found.equal else dataclasses.replace(found, note="the reference freezes it")
        if ours.any():
            self.trained.append(name)
        return Difference(0.0)

    def _dropped(self, name: str) -> Drop | None:
        """The rule by which the case drops it."""
        from graphmode.weights import Drop

        return next((rule for rule in self._case.weights if isinstance(rule, Drop) and rule.matches(name)), None)


def as_tensor(mode: Mode, label: str, key: Key, apart: Difference, *, precise: bool) -> Tensor:
    """What is found of one tensor on one input, for a report.

    Args:
      mode, label: of the question.
      key: of the tensor.
      apart: how far it is off.
      precise: whether its rounding is as PyTorch's.
    """
    kind, name = key
    return Tensor(
        name=name,
        kind=kind,  # type: ignore[arg-type]
        mode=mode,
        equal=apart.equal,
        precise=precise,
        error=apart.error if np.isfinite(apart.error) else None,
        input=label,
        index=apart.index,
        port_value=apart.port,
        reference_value=apart.reference,
        note=apart.note,
    )
