"""A port with other weights than the first: what one initialisation hides, such as a branch that no input takes then.

A network whose densities are all below zero renders nothing, and nothing that is wrong behind them is seen, whatever
its inputs are. An average of the weights that begins as their copy stays one whatever its share is.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..case import CaseError
from ..trees import is_floating
from .built_otherwise import built_otherwise
from .further import Further, further
from .judge import Judge, Truth
from .more_draws import on_more_draws
from .second_call import second_call

if TYPE_CHECKING:
    from ..jax_side import PortSide
    from .examination import Examination

SEED = 1  # more than the first weights'
LABEL = "other weights"
STEPS = "after steps of training"


def with_other_weights(exam: Examination, variant: str, port: PortSide) -> Further:
    """Asks a port that is equal on all that it was asked the first random input again, with the weights that the
    reference draws from another seed; beside copies of the first ones, where its buffers are such, several times.

    Nothing is asked where it draws none, where the case brings weights of its own, and where the reference does not
    answer in finite numbers.

    Args:
      exam: whose judge answered.
      variant: of the port.
      port: in float64.
    """
    copies = _copies(exam.judge)
    other = _examined_with_other_weights(exam, copies)
    if other is None:
        return Further()
    exact = other.port_side(variant, "float64")
    exact.take_graphs(port)
    found = further(other, variant, exact)
    found.warnings = built_otherwise(exam, variant, other.judge, but=copies)
    if copies and not found.tensors:
        again = second_call(other, exact)
        found.tensors, found.divergences = again.tensors, again.divergences
    return found if found.tensors else on_more_draws(other, variant, exact, found)


def after_steps(exam: Examination, variant: str, port: PortSide, label: str) -> Further:
    """Asks a port that is wrong after steps of training alone with the weights that the reference has after its own, on
    the same input: what is wrong there is none of the optimizer's.

    Args:
      exam: whose judge answered.
      variant: of the port.
      port: in float64.
      label: of the input.
    """
    case, asked = exam.case, (t for t in exam.truths if t.question.mode == "train_step" and t.question.label == label)
    truth = next(asked, None)
    if truth is None:
        return Further()
    judge = Judge(case, seed=exam.seed, dtype=exam.dtype, device=exam.device)
    moves, first = truth.reference.parameters, judge.state_dict
    ended = {name: first[name] + move for name, move in moves.items() if name in first}
    judge.hold(ended | {name: value for name, value in truth.reference.buffers.items() if name in first})
    other = _examined_by(exam, judge, _answers(judge, exam.truths, STEPS, label))
    if other is None:
        return Further()
    exact = other.port_side(variant, "float64")
    exact.take_graphs(port)
    return further(other, variant, exact)


def _copies(judge: Judge) -> dict[str, np.ndarray]:
    """The reference's buffers that are copies of its parameters, which are not all one number, by name."""
    learned = [judge.state_dict[name] for name in judge.exact.parameters if name in judge.state_dict]
    told = [array for array in learned if array.size and np.ptp(array)]
    held = {name: judge.state_dict[name] for name in judge.exact.buffers if name in judge.state_dict}
    return {name: array for name, array in held.items() if any(np.array_equal(array, each) for each in told)}


def _examined_with_other_weights(exam: Examination, copies: Mapping[str, np.ndarray]) -> Examination | None:
    case = exam.case
    if case.pretrained is not None and not exam.judge.missing_weights:
        return None
    try:
        judge = Judge(case, seed=exam.seed + SEED, dtype=exam.dtype, device=exam.device)
    except CaseError:
        return None
    if judge.state_dict.keys() != exam.judge.state_dict.keys() or _are_same(judge, exam.judge):
        return None
    if copies:
        judge.hold(copies)
    return _examined_by(exam, judge, _answers(judge, exam.truths))


def _examined_by(exam: Examination, judge: Judge, truths: list[Truth]) -> Examination | None:
    """An examination as this one is, with another judge and its answers, if it has any."""
    if not truths:
        return None
    other = copy.copy(exam)
    other.judge, other.truths, other.scales = judge, truths, exam.scales.beside(truths)
    other._ports, other._sound, other._fine = {}, set(exam._sound), set(exam._fine)
    return other


def _are_same(judge: Judge, first: Judge) -> bool:
    return all(np.array_equal(value, first.state_dict[name]) for name, value in judge.state_dict.items())


def _answers(judge: Judge, truths: Sequence[Truth], why: str = LABEL, asked: str = "random 0") -> list[Truth]:
    """To a random input, the first one mostly, in each mode; none where one of them is not finite."""
    found = []
    for truth in truths:
        question = truth.question
        if question.label != asked or question.mode == "train_step":
            continue
        try:
            answer = judge.own_truth(replace(question, label=f"{question.label}, {why}"))
        except Exception:
            return []
        if not all(np.isfinite(x).all() for _, _, x in answer.reference.tensors() if is_floating(x)):
            return []
        found.append(answer)
    return found
