"""Calls on what earlier ones left: state that a port keeps, forgets, or writes otherwise than the reference.

Every other question is asked of a module in its first state. What is left over from the call before, such as a position
in a cache that is not set back, or a running mean that moves in evaluation, shows in the next call alone.
"""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from flax import nnx

from ..case import CaseError, Inputs, Mode
from ..observation import Observation
from ..report.records import Cause, Divergence, Finding, Tensor
from ..untraceable import port_failure
from .coverage import listed
from .differences import as_tensor
from .explained import Place, is_of_gradients_alone, place_of
from .yardstick import EQUAL_TOLERANCE, Difference, difference, magnitude

if TYPE_CHECKING:
    from ..jax_side import PortSide
    from .examination import Examination
    from .inside.localise import Look
    from .judge import Judge, Key, Question, Truth

ALL_S = 90.0  # that is looked into what is off
LONGEST_S = 30.0  # that the causes of a module are looked for
LINE_S = 10.0  # likewise its line
EARLIER = 3  # calls: what has room for two batches is written from its start again
MANY, MANY_S = 40, 2.0  # calls, the last alone with gradients, so that a count comes to a limit; and for how long
STEADY = 1e-12  # of its scale, that rounding has moved a tensor by at most in many calls, where the next tells
LATER = "gradient-later"
OTHERWISE = "state-otherwise"
RESET = (
    "set it back at the start of a call, or take it as an argument and give it back: the reference gives the same for "
    "the same input"
)
FOLLOW = (
    "let that follow use_running_average, or an attribute called training, or write train() and eval() for the model: "
    "the check switches them"
)
Names = Sequence[str]
Call = tuple[Mode, Inputs, Mapping[str, np.ndarray] | None]


@dataclass
class Again:
    """What is off after earlier calls, and why; nothing mostly.

    Attributes:
      deadline: of `time.monotonic`, for looks inside.
    """

    tensors: list[Tensor] = field(default_factory=list)
    divergences: list[Divergence] = field(default_factory=list)
    deadline: float = math.inf

    @property
    def places(self) -> set[Place]:
        """Those that have been told, at another input or in another mode."""
        return set(map(place_of, self.divergences))


def second_call(exam: Examination, port: PortSide) -> Again:
    """Calls both sides on the first random input after several others, and, in each mode in which one of them writes
    state, on the case's other inputs after it; after training in evaluation, too.

    After calls on the same input a running mean would be where it was, whatever its share is.

    Args:
      exam: whose judge answered.
      port: in float64; equal as far as it was asked.

    Raises:
      CaseError: where the port fails when it is called again.
    """
    found = Again()
    with exam.judge.sides.watched(exam.judge.exact.module):  # what later calls get to is seen, too
        _ask_again(exam, port, found)
    return found


def _ask_again(exam: Examination, port: PortSide, found: Again) -> None:
    for mode in (mode for mode in exam.case.modes if mode != "train_step"):
        asked = [t for t in exam.truths if t.question.mode == mode and not t.question.is_timed]
        for first in _first(asked):
            earlier = calls_before(exam.judge, first.question)
            if not _compare(exam, port, first, earlier[:1], found) or found.tensors:
                continue
            _compare(exam, port, first, earlier, found)
            many, they_part = ([], False) if found.tensors else _until_they_part(exam, port, first, earlier)
            if they_part and not _differs_at_first(exam, port, replace(first, question=many[-1])):
                _compare(exam, port, replace(first, question=many[-1]), many[:-1], found)
            elif many and mode == "forward_backward":  # a schedule may be seen in gradients alone
                _compare(exam, port, first, many, found)
            for truth in (t for t in asked if t.question.is_random or t.question.label in exam.case.edge_inputs):
                if truth is not first:
                    _compare(exam, port, truth, [first.question], found)
            if mode == "forward_backward" and "inference" in exam.case.modes and not found.tensors:
                for truth in _first([t for t in exam.truths if t.question.mode == "inference"]):
                    _compare(exam, port, truth, earlier, found)


def calls_before(judge: Judge, question: Question) -> list[Question]:
    """The calls after which it is asked, on other draws where these are others."""
    others = (judge.other_inputs(question, number) for number in range(EARLIER))
    return [replace(question, inputs=each) for each in others if each is not None] or [question] * EARLIER


def later_outputs(judge: Judge, question: Question) -> Sequence[Mapping[str, np.ndarray]]:
    """What the reference gives there after other calls; nothing where it cannot be called so often."""
    if question.mode == "train_step":
        return []
    with judge.exact.as_it_was(), contextlib.suppress(Exception):
        asked = [*calls_before(judge, question), question]
        return [each.outputs for each in judge.exact.each_call((each.mode, each.inputs) for each in asked)]
    return []


def in_turns(judge: Judge, question: Question) -> list[tuple[Mode, Inputs]]:
    """Many calls, as both sides are asked for."""
    drawn = calls_before(judge, question)
    return [(each.mode, each.inputs) for each in (drawn[i % len(drawn)] for i in range(MANY))]


def _first(truths: Sequence[Truth]) -> Sequence[Truth]:
    """The one on the first random input, if there is one."""
    return [t for t in truths if t.question.is_random and not t.question.is_timed][:1]


def _compare(exam: Examination, port: PortSide, truth: Truth, earlier: Sequence[Question], into: Again) -> bool:
    """Whether one of the sides writes anything: then what is off is added to `into`."""
    question = truth.question
    answer = _reference_after(exam, question, earlier)
    if answer is None:
        return False
    theirs, written, count = answer
    before = [(each.mode, each.inputs, each.cotangents) for each in earlier[:count]]
    try:
        found = port.called_after(before, question.inputs, question.mode, question.cotangents)
    except Exception as error:
        where = f"when it is called again on the input {question.label!r} in {question.mode}"
        raise CaseError(f"case {exam.case.name!r}: the port {port_failure(error, where)}") from error
    if found is None:
        return False
    ours, kept = found
    if not kept and not written:
        return False
    trained_before = earlier[0].mode != question.mode
    label = f"{question.label}, {'after training' if trained_before else 'called again'}"
    if tensors := list(_wrong(exam, truth, label, ours.renamed(theirs), theirs)):
        into.tensors += tensors
        trained = [] if written else _written_in_training(exam, truth)
        cause = _of_evaluation(kept) if trained_before else _cause(tensors, kept, written, trained)
        into.deadline = min(into.deadline, time.monotonic() + ALL_S)
        inside = _looked_into(exam, port, replace(question, label=label), before, into) if written else None
        if inside is None:
            inside = [_divergence(exam, port, tensors, cause, kept)]
        elif cause.id == OTHERWISE and not trained_before:
            inside = [each if each.causes else replace(each, causes=[_otherwise(_buffers(each))]) for each in inside]
        elif cause.id == LATER:
            inside = [each if each.causes else replace(each, causes=[_later(_within(each, kept))]) for each in inside]
        inside = [each if each.causes else replace(each, causes=[cause]) for each in inside]
        into.divergences += [each for each in inside if place_of(each) not in into.places]
    return True


def _until_they_part(
    exam: Examination, port: PortSide, truth: Truth, drawn: Sequence[Question]
) -> tuple[list[Question], bool]:
    """Up to `MANY` calls, on these inputs in turns, as far as there is time, and whether the last one differs; none
    where one of them fails, or where rounding grows from call to call."""
    end, asked = time.monotonic() + MANY_S, [drawn[i % len(drawn)] for i in range(MANY)]
    reference = exam.judge.exact
    with reference.as_it_was(), contextlib.suppress(Exception):  # one of them refuses so many calls
        theirs = reference.each_call((each.mode, each.inputs) for each in asked)
        ours = port.each_call((each.mode, each.inputs, each.cotangents) for each in asked)
        for number, (given, wanted) in enumerate(zip(ours, theirs, strict=True)):
            apart = max((d.error for _, d in _apart(exam, truth, given.renamed(wanted), wanted)), default=0.0)
            if apart > EQUAL_TOLERANCE:
                return asked[: number + 1], True
            if apart > STEADY:
                return [], False
            if time.monotonic() > end:
                return asked[: number + 1], False
        return asked, False
    return [], False


def _differs_at_first(exam: Examination, port: PortSide, truth: Truth) -> bool:
    """Whether the two part there whatever was called before: then further draws show it, and it is none of state's."""
    question = truth.question
    theirs = exam.judge.exact.outputs(question.inputs, question.mode)
    ours = port.run(question.inputs, question.mode, question.cotangents).outputs
    return any(not difference(ours[n], x, magnitude(x)).equal for n, x in theirs.items() if n in ours)


def _looked_into(
    exam: Examination, port: PortSide, question: Question, earlier: Sequence[Call], told: Again
) -> list[Divergence] | None:
    """The modules that go wrong on what earlier calls have left, and why, without those that have been told; None where
    these have not left the same, or no look inside tells, or there is no time for one."""
    if time.monotonic() > told.deadline:
        return None
    from .causes import Elsewhere, astray, astray_backward, explain
    from .inside.localise import Look

    try:
        look = _look_after(exam, port, question, earlier)
        divergences = look.divergences() if look is not None else []
        if look is None or not divergences:
            return None
        another = exam.judge.another(question)
        elsewhere = Elsewhere(
            functools.cache(lambda: None if another is None else Look(look.port, look.judge, another, look.table)),
            tuple,
            functools.cache(lambda: _look_after(exam, port, question, ())),
            beside=functools.cache(lambda: tuple(_looks_beside(exam, port, question, earlier))),
        )
        found = []
        for each in divergences:
            if place_of(each) in told.places:
                continue
            why = explain(look, each, deadline=min(told.deadline, time.monotonic() + LONGEST_S), elsewhere=elsewhere)
            explained = replace(each, causes=why.causes, cut_short=why.cut_short, tried_s=why.tried_s)
            if is_of_gradients_alone(each):
                line, cause = astray_backward(look, explained, math.inf, seconds=LINE_S)
                explained = replace(explained, causes=explained.causes or [*filter(None, [cause])])
            else:
                line = astray(look, explained, seconds=LINE_S)
            found.append(replace(explained, astray=line))
        return found
    except Exception:  # what differs has been found, and is told of the model
        return None


def _look_after(exam: Examination, port: PortSide, question: Question, earlier: Sequence[Call]) -> Look | None:
    """A look at a call on what these have left; None where it is not the same on both sides."""
    from .inside.localise import Look

    if not earlier:
        return Look(port, exam.judge.exact, question, exam.case.modules)
    reference = exam.judge.side("float64")
    reference.call_each([(mode, inputs) for mode, inputs, _ in earlier])
    later = port.left_by(earlier, question.mode)
    left = later.named_state(question.mode, later.program(question.mode).rest)
    if not all(difference(left[n], x).equal for n, x in reference.buffers.items() if n in left):
        return None
    return Look(later, reference, question, exam.case.modules)


def _looks_beside(exam: Examination, port: PortSide, question: Question, earlier: Sequence[Call]) -> Iterator[Look]:
    """Looks at the same call after fewer of the earlier ones, and after more: a cause has to do there what the port
    does, too."""
    every = len(earlier)
    fewer = [earlier[:count] for count in sorted({1, 2, every // 2, every - 1} & set(range(1, every)))]
    this = (question.mode, question.inputs, question.cotangents)
    for calls in (*fewer, [*earlier, this], [*earlier, this, earlier[0]]):
        look = _look_after(exam, port, question, calls)
        if look is not None:
            yield look


def _reference_after(
    exam: Examination, question: Question, earlier: Sequence[Question]
) -> tuple[Observation, Names, int] | None:
    """What the reference gives, what the earlier calls wrote, and how many they were; fewer where it fails after so
    many, as a cache does that is full, and None where it can be called once alone. Without gradients where it has
    none."""
    reference = exam.judge.exact
    for count in range(len(earlier), 0, -1):
        before = [(each.mode, each.inputs) for each in earlier[:count]]
        for with_gradients in (True, False) if question.mode == "forward_backward" else (False,):
            with contextlib.suppress(Exception):
                asked = question.inputs, question.mode, question.cotangents
                return *reference.called_after(before, *asked, with_gradients=with_gradients), count
    return None


def _written_in_training(exam: Examination, truth: Truth) -> Names:
    """What the reference writes in training; nothing where that is not asked for."""
    if truth.question.mode != "inference" or "forward_backward" not in exam.case.modes:
        return []
    inputs = truth.question.inputs
    return exam.judge.exact.called_after([("forward_backward", inputs)], inputs, "forward_backward")[1]


def _wrong(exam: Examination, truth: Truth, label: str, ours: Observation, theirs: Observation) -> Iterator[Tensor]:
    for key, apart in _apart(exam, truth, ours, theirs):
        if not apart.equal:
            yield as_tensor(truth.question.mode, label, key, apart, precise=False)


def _apart(exam: Examination, truth: Truth, ours: Observation, theirs: Observation) -> Iterator[tuple[Key, Difference]]:
    for kind, name, wanted in theirs.tensors():
        given = ours.find((kind, name))
        if given is None or name.endswith("num_batches_tracked"):
            continue  # what a port has not is told of the first call
        scale = magnitude(wanted)  # of the first call all may be zero
        if kind != "buffer":
            scale = max(scale, exam.scales.of(truth, (kind, name)))
        yield (kind, name), difference(given, wanted, scale)


def _divergence(exam: Examination, port: PortSide, tensors: Sequence[Tensor], cause: Cause, kept: Names) -> Divergence:
    findings = [Finding.of(t, f"{t.name} after earlier calls") for t in tensors]
    wrong = [t.name for t in tensors if t.kind == "buffer"]
    holders = {name.rpartition(".")[0] for name in wrong or kept}
    path = holders.pop() if len(holders) == 1 else ""
    modules = {".".join(map(str, where)): module for where, module in nnx.iter_modules(port.model)}
    return Divergence(
        mode=tensors[0].mode,
        input=tensors[0].input,
        module=path,
        kind=type(modules.get(path, port.model)).__name__,
        reference_kind=type(exam.judge.exact.module).__name__ if not path else "",
        findings=findings,
        causes=[cause],
    )


def _of_evaluation(kept: Names) -> Cause:
    of = ", ".join(kept) or "its state"
    return Cause(
        id=OTHERWISE,
        says=f"makes something else of {of} in evaluation, after training, than the reference",
        fix="look at what is read there in evaluation: before any training it may come to the same",
        residual=0.0,
    )


def _cause(tensors: Sequence[Tensor], kept: Names, written: Names, trained: Names) -> Cause:
    if trained:
        id, fix = "state-left", FOLLOW
        says = f"keeps {', '.join(kept)} for the next call, which the reference does in training alone"
    elif not written:
        id, fix = "state-left", RESET
        says = f"keeps {', '.join(kept)} for the next call, and the reference keeps nothing"
    elif not kept:
        id, fix = "buffer-not-written", "write it into a variable of the module, and carry the state out of the step"
        says = f"keeps nothing of what the reference writes into {', '.join(written)}"
    elif all(t.kind.endswith("gradient") for t in tensors):
        return _later(kept)
    else:
        return _otherwise([t.name for t in tensors if t.kind == "buffer"])
    return Cause(id=id, says=says, fix=fix, residual=0.0)


def _later(kept: Names) -> Cause:
    return Cause(
        id=LATER,
        says=f"has other gradients than the reference where earlier calls have written {', '.join(kept)}; outputs and "
        "buffers are right",
        fix="look at what the backward pass makes of it: a mask or a limit that no first call gets to",
        residual=0.0,
    )


def _within(divergence: Divergence, kept: Names) -> Names:
    """What its module keeps, if that keeps any of it."""
    return [name for name in kept if name.startswith(f"{divergence.module}.")] or kept


def _otherwise(off: Names) -> Cause:
    return Cause(
        id=OTHERWISE,
        says=f"makes {listed(off) or 'something'} otherwise than the reference of what the call before left",
        fix="look at what is made of what it held: a factor of zero, a count, and a place to write at hide at first",
        residual=0.0,
    )


def _buffers(divergence: Divergence) -> list[str]:
    """Those that are wrong in the module, of all that are."""
    return [finding.tensor for finding in divergence.findings if finding.what == "buffer"]
