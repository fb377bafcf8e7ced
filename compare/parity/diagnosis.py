"""What is wrong with a port that is not equal: where the error arises, and why."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import TYPE_CHECKING, NamedTuple

from ..errors import describe_briefly
from ..quiet import quiet
from ..report.divergence_text import OPTIMIZER
from ..report.records import Astray, Cause, Divergence, ModuleEvidence, Tensor
from .dead_outputs import dead_outputs
from .explained import (
    Place,
    explained_by,
    is_of_gradients_alone,
    place_of,
    with_numbers,
    with_what_passes,
)
from .inside.calls import is_inside
from .judge import Question
from .raises import raises
from .remarks import at_a_kink, written_twice
from .step_diagnosis import left_alone, of_optimizer, of_steps

if TYPE_CHECKING:
    from ..case import Mode
    from ..torch_side import TorchSide
    from .causes import Elsewhere
    from .examination import Examination
    from .inside.localise import Look

LOOKS = 3  # at inputs of one mode
FURTHER = 3  # inputs, on which a cause is held that few integers tell
CAUSES_S = 120.0  # for the causes of all suspects
LINES_S = 30.0  # at least, for the lines of those without a cause
HELD_S = 10.0  # at least, for causes of what is off forward to be held against gradients
LINE_S = 10.0  # for that of one with a cause
LOST = "state-lost"  # likewise, whose line is none of the module's
STOPPED = "stop-gradient"  # the id of causes whose line is that which stops a gradient
EXPLAINED = 2  # with a cause, whose lines are looked for


@dataclass
class Diagnosis:
    """What looks inside a port found.

    Attributes:
      divergences: the modules that introduce error, first ones first, each once.
      modules: all that were called, of the first look that there was.
      notes: such as why there was none.
    """

    divergences: list[Divergence] = field(default_factory=list)
    modules: list[ModuleEvidence] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def look_inside(exam: Examination, variant: str) -> Diagnosis:
    """The modules of a port that is equal, on the first random input: all that the case's modes let see."""
    from .inside.localise import Look

    asked = [truth.question for truth in exam.truths if truth.question.mode != "train_step"]
    with quiet():
        try:
            look = Look(exam.port_side(variant, "float64"), exam.judge.exact, asked[0], exam.case.modules)
        except Exception as error:
            return Diagnosis(notes=[f"no look inside: {describe_briefly(error)}"])
        return Diagnosis(modules=look.modules())


def diagnose(exam: Examination, variant: str, tensors: Sequence[Tensor]) -> Diagnosis:
    """Looks inside a port on the inputs where it is not equal.

    Args:
      exam: whose judge answered.
      variant: of the port.
      tensors: the verdicts on it.
    """
    with quiet():
        return _Looks(exam, variant, tensors).diagnosis()


class _Seen(NamedTuple):
    """Looks at one input, the one first in which least is wrong."""

    first: Look
    others: list[Look]
    took_s: float


class _Looks:
    """Looks inside a port that is not equal, at one input after the other.

    Attributes:
      notes: such as why there was none at an input.
      modules: all that were called, of the first look that there was.
      found: the divergences, by place; what was found at an earlier input stays.
    """

    def __init__(self, exam: Examination, variant: str, tensors: Sequence[Tensor]):
        self.exam, self.tensors = exam, tensors
        self.variant, self.port = variant, exam.port_side(variant, "float64")
        self.judges = [exam.judge.exact, *([exam.judge.finer] if exam.judge.finer is not None else [])]
        self.deadline = time.monotonic() + CAUSES_S
        self.notes: list[str] = []
        self.modules: list[ModuleEvidence] = []
        self.found: dict[Place, Divergence] = {}
        self._found_in: dict[Place, _Seen] = {}
        self._parts: dict[Place, tuple[str, ...]] = {}  # what was judged as a part of each, if anything
        self._kept: dict[tuple[str, str, int], Look] = {}
        self._lines_left = EXPLAINED

    def diagnosis(self) -> Diagnosis:
        """What is found at all the inputs."""
        dead = self._dead_outputs()
        for question in questions(self.exam, self.tensors):
            if dead is not None and question.mode == dead.mode and self._are_gradients_alone(dead.mode):
                continue
            try:
                self._look_at(question)
            except Exception as error:  # the verdicts stand without it
                told = describe_briefly(error)
                self.notes.append(f"{question.mode}: the look inside on {question.label!r} ended early: {told}")
        self.notes += written_twice(self.exam, self.tensors)
        if not any(each.causes for each in self.found.values()):
            self.notes += at_a_kink(self.exam, self.port, self.variant, self.tensors)
        found = {place: each for place, each in self.found.items() if not self._stands_for_another(place)}
        update = next((t for t in self.tensors if t.kind == "update" and not t.equal), None)
        moved = [] if found else [t for t in self.tensors if t.kind == "parameter" and not t.equal]
        if update is not None:
            found[OPTIMIZER, False] = of_optimizer(self.exam, update)
            moved = left_alone(self.exam, moved)  # of the others it is known why they move otherwise
        steps = [of_steps(self.exam, moved)] if moved else []
        return Diagnosis([*found.values(), *steps], self.modules, self.notes)

    def _dead_outputs(self) -> Divergence | None:
        try:
            dead = dead_outputs(self.exam, self.port, self.tensors)
        except Exception as error:
            self.notes.append(f"gradients that the reference lacks were not looked for: {describe_briefly(error)}")
            return None
        if dead is not None:
            self.found[place_of(dead)] = dead
        return dead

    def _are_gradients_alone(self, mode: str) -> bool:
        return all(t.kind.endswith("gradient") for t in self.tensors if t.mode == mode and not t.equal)

    def _are_gradients_right(self, mode: str) -> bool:
        return all(t.equal for t in self.tensors if t.mode == mode and t.kind.endswith("gradient"))

    def _nan_gradients(self, look: Look) -> list[Divergence]:
        """Where gradients alone are off, those modules in which they become NaN."""
        from .causes import nan_gradients

        wrong = [t for t in self.tensors if t.mode == look.question.mode and not t.equal]
        if self.exam.judge.is_large or not self._are_gradients_alone(look.question.mode):
            return []
        try:
            return nan_gradients(look, wrong, self.deadline)
        except Exception as error:
            self.notes.append(f"where gradients become NaN was not looked for: {describe_briefly(error)}")
            return []

    def _look_at(self, question: Question) -> None:
        """Adds what is found at one input."""
        seen = self._seen(question)
        if seen is None:
            return
        look = seen.first
        self.modules = self.modules or look.modules()
        self._note_what_is_hidden(look)
        if question.mode == "forward_backward" and (nan := self._nan_gradients(look)):
            self.found.update({place_of(each): each for each in nan})
            return
        refuted = self._hold_backward(look)
        divergences = [each for each in look.divergences() if place_of(each) not in self.found]
        if self._are_gradients_right(question.mode):  # what is off between modules alone is made up for around it
            divergences = [each for each in divergences if not is_of_gradients_alone(each)] or divergences
        divergences = [with_numbers(look, with_what_passes(look, each)) for each in divergences]
        divergences = self._together(seen, self._explained(seen, divergences))
        told = {place_of(each) for each in divergences if each.causes}
        earlier = {place: each for place, each in refuted.items() if place not in told}  # more is off there
        divergences = [each for each in divergences if place_of(each) not in earlier]
        self._found_in.update({place_of(each): seen for each in divergences})
        divergences = [*earlier.values(), *divergences]
        if not self.exam.judge.is_large:
            until = max(self.deadline, time.monotonic() + LINES_S)  # however long the search for causes took
            divergences = [self._with_its_line(each, until) for each in divergences]
        self.found.update({place_of(each): each for each in divergences})
        self._parts.update({place_of(each): (*look.unlike, *look.hidden, *look.written) for each in divergences})

    def _seen(self, question: Question) -> _Seen | None:
        """Looks at an input with the reference's constants as it has them, and in float64 as the port does."""
        start = time.monotonic()
        try:
            looks = [self._look(question, judge) for judge in self.judges]
            first, *others = sorted(looks, key=lambda look: len(look.suspects) + bool(look.outside))
        except Exception as error:
            if (failed := raises(self.port, question, self.tensors)) is not None:
                self.found.setdefault(place_of(failed), failed)
            else:
                told = describe_briefly(error)
                self.notes.append(f"{question.mode}: no look inside on {question.label!r}: {told}")
            return None
        return _Seen(first, others, time.monotonic() - start)

    def _look(self, question: Question, judge: TorchSide) -> Look:
        """Kept, but of a large model."""
        from .inside.localise import Look

        key = question.mode, question.label, self.judges.index(judge)
        look = self._kept.get(key) or Look(self.port, judge, question, self.exam.case.modules)
        if not self.exam.judge.is_large:
            self._kept[key] = look
        return look

    def _note_what_is_hidden(self, look: Look) -> None:
        mode, label = look.question.mode, look.question.label
        if look.unlike:
            self.notes.append(
                f"{mode}: on {label!r} {look.unlike[0]!r} is handed, or gives, tensors of other shapes in the port "
                "than in the reference, or begins or ends elsewhere in it, so that it was judged as a part of what is "
                f"around it{_more(look.unlike)}"
            )
        self.notes += [
            f"{mode}: on {label!r} max_steps={most} ends the loop at {place} before its condition does: raise it, or "
            "see to what the loop gives as cut_short"
            for place, most in look.run.cut_short.items()
        ]
        if look.written:
            self.notes.append(
                f"{mode}: {look.written[0]!r} writes in the reference into what it is given, which is read after it, "
                f"so that it was judged as a part of what is around it{_more(look.written)}"
            )
        if look.hidden:
            self.notes.append(
                f"{mode}: {look.hidden[0]!r} is called within a transform that hides its values, so that it was judged "
                f"as a part of what is around it{_more(look.hidden)}"
            )

    def _hold_backward(self, look: Look) -> dict[Place, Divergence]:
        """Leaves of the causes that make right what is off in the forward pass those that do so for the gradients, too.

        Returns:
          The places whose causes all fail there, without them: they are taken out, to be looked at anew.
        """
        from .causes import FORWARD_ONLY, OF_A_CHOICE, explain

        refuted = {}
        for each in look.divergences() if look.question.mode == "forward_backward" else ():
            place = place_of(each)
            before = self.found.get(place)
            if before is None or before.mode != "inference":
                continue
            ids = frozenset(cause.id for cause in before.causes)
            outputs_alone = all(finding.what in ("received", "output") for finding in each.findings)
            if not ids or ids & FORWARD_ONLY or outputs_alone:
                continue
            until = max(self.deadline, time.monotonic() + HELD_S)  # or what is untrue would be told
            again = explain(look, each, deadline=until, only=ids)
            if again.cut_short or again.untried:  # which refutes nothing
                continue
            said = {cause.says.removesuffix(OF_A_CHOICE) for cause in again.causes}
            if held := [cause for cause in before.causes if cause.says.removesuffix(OF_A_CHOICE) in said]:
                self.found[place] = replace(before, causes=held)
            else:
                refuted[place] = replace(self.found.pop(place), causes=[])
        return refuted

    def _explained(self, seen: _Seen, divergences: list[Divergence]) -> list[Divergence]:
        try:
            for look in (seen.first, *seen.others):
                elsewhere = self._elsewhere(look, self.deadline - seen.took_s)
                is_first = look is seen.first
                divergences = explained_by(look, divergences, self.deadline, elsewhere, is_first=is_first)
        except Exception as error:
            at = seen.first.question
            self.notes.append(f"{at.mode}: causes were not tried on {at.label!r}: {describe_briefly(error)}")
        return divergences

    def _together(self, seen: _Seen, divergences: list[Divergence]) -> list[Divergence]:
        from .causes import explain
        from .inside.localise import Look
        from .joint_look import together

        first = seen.first
        if self.exam.judge.is_large or time.monotonic() > self.deadline:
            return divergences

        def anew(table: dict[str, str | None]) -> Look:
            return Look(self.port, first.judge, first.question, {**(self.exam.case.modules or {}), **table})

        def explained(look: Look, divergence: Divergence, within: frozenset[CodeType]) -> Divergence:
            elsewhere = self._elsewhere(look, self.deadline - seen.took_s)
            told = explain(look, divergence, deadline=self.deadline, elsewhere=elsewhere, within=within)
            return replace(divergence, causes=told.causes)

        try:
            return together(divergences, first, anew, explained)
        except Exception as error:
            told = describe_briefly(error)
            self.notes.append(f"{first.question.mode}: modules were not looked at together: {told}")
            return divergences

    def _elsewhere(self, look: Look, deadline: float) -> Elsewhere:
        from .causes import Elsewhere

        second = functools.cache(functools.partial(self._second, look, deadline))
        edges, usual = functools.partial(self._at_edges, look), functools.partial(self._at_random, look)
        later = functools.partial(self._later, look, deadline)
        further = functools.partial(self._further, look, deadline)
        return Elsewhere(second, edges, usual, later, further=further)

    def _further(self, look: Look, deadline: float) -> Iterator[Look]:
        """Looks at inputs of the same kind beside the second."""
        for number in range(1, 1 + FURTHER):
            further = self._second(look, deadline, number)
            if further is not None:
                yield further

    def _second(self, look: Look, deadline: float, number: int = 0) -> Look | None:
        """A look at another input of the same kind, of several the one of this number; None where there is none, or no
        time for a further one. The first of them is taken however late it is, since a cause was found: without it a
        number that fits by chance would be told."""
        from .inside.localise import Look

        if self.exam.judge.is_large or (number and time.monotonic() > deadline):
            return None
        try:
            question = self.exam.judge.another(look.question, number)
            return None if question is None else Look(look.port, look.judge, question, look.table)
        except Exception:  # one side is not defined there: the first look stays all that there is
            return None

    def _at_edges(self, look: Look) -> Iterator[Look]:
        """The same at the case's other edge inputs of the mode, where both sides are defined: those first on which some
        tensor is worst."""
        if self.exam.judge.is_large:
            return
        at = look.question
        worst = {t.input for t in self.tensors if t.mode == at.mode and not t.equal}
        asked = [t.question for t in self.exam.truths if t.question.mode == at.mode and not t.question.is_random]
        others = [question for question in asked if question.label != at.label]
        for question in sorted(others, key=lambda question: question.label not in worst)[:LOOKS]:
            with contextlib.suppress(Exception):
                yield self._look(question, look.judge)

    def _later(self, look: Look, deadline: float) -> Look | None:
        """The same, both sides with what a call on another input leaves in the reference's buffers, in training where
        the case has that, as running statistics are; None where it writes none, or some that the port does not have."""
        from graphmode.weights import as_numpy

        from .inside.localise import Look

        judge, question = self.exam.judge, look.question
        before_it: Mode = "forward_backward" if "forward_backward" in self.exam.case.modes else question.mode
        if judge.is_large or time.monotonic() > deadline:
            return None
        drawn = judge.other_inputs(question)
        reference = judge.side("float64")
        before = {name: x.clone() for name, x in reference.module.named_buffers()}
        if drawn is None or not reference.call_each([(before_it, drawn)]):
            return None
        changed = {n for n, x in reference.module.named_buffers() if not x.equal(before[n])}
        if not changed <= reference.buffers.keys():
            return None
        state_dict = {name: as_numpy(x.detach()) for name, x in reference.module.state_dict().items()}
        port = self.exam.port_with(self.variant, "float64", state_dict)
        held = port.named_state(question.mode, port.program(question.mode).rest)
        return Look(port, reference, question, look.table) if changed <= held.keys() else None

    def _at_random(self, look: Look) -> Look | None:
        """The same at the first random input of the mode, where this is at another kind."""
        if self.exam.judge.is_large or look.question.is_random:
            return None
        asked = (t.question for t in self.exam.truths if t.question.mode == look.question.mode)
        question = next((q for q in asked if q.is_random and not q.is_timed), None)
        return None if question is None else self._look(question, look.judge)

    def _with_its_line(self, divergence: Divergence, deadline: float) -> Divergence:
        """A divergence with the line where the port leaves the reference's way; not for long where a cause is known.
        Where none is, what makes NaN in it is one."""
        from .causes import alike, astray, astray_backward, nan_value

        off = not is_of_gradients_alone(divergence)
        if time.monotonic() > deadline or any(cause.id == LOST for cause in divergence.causes):
            return divergence
        if divergence.causes:
            self._lines_left -= 1
            if self._lines_left < 0:
                return divergence
        seen, seconds = self._found_in[place_of(divergence)], LINE_S if divergence.causes else LINES_S
        cause: Cause | None = None
        try:
            if off:
                found = astray(seen.first, divergence, deadline, seen.others, seconds=seconds)
                cause = None if divergence.causes else nan_value(seen.first, divergence, deadline)
            else:
                backward = functools.partial(astray_backward, seen.first, divergence, deadline, seconds=seconds)
                is_of_a_stop = any(each.id == STOPPED for each in divergence.causes)
                found, cause = backward() if is_of_a_stop else (None, None)
                if divergence.causes and (found is None or found.gradient != "stops"):
                    found = alike(seen.first, divergence, deadline, seconds=seconds) or found
                if found is None and not is_of_a_stop:
                    found, cause = backward()
                if cause is not None and self._does_otherwise(seen.first, found, place_of(divergence), deadline):
                    found, cause = found and replace(found, gradient="differs"), None
            causes = divergence.causes or ([] if cause is None else [cause])
            return replace(divergence, astray=found, causes=causes, cut_short=divergence.cut_short and not causes)
        except Exception as error:
            told = describe_briefly(error)
            self.notes.append(f"the line of {divergence.module or 'the model'} was not found: {told}")
            return divergence

    def _does_otherwise(self, look: Look, found: Astray | None, place: Place, deadline: float) -> bool:
        """Whether the port does something else to a gradient in a later call, as where a factor of it is 0 at first."""
        from .causes import astray_backward

        with contextlib.suppress(Exception):  # then all stays as the first call tells it
            later = self._later(look, deadline)
            if later is None or found is None:
                return False
            for each in later.divergences():
                if place_of(each) == place:
                    there, _ = astray_backward(later, each, deadline, seconds=LINE_S)
                    return there is not None and there.gradient != found.gradient
        return False

    def _stands_for_another(self, place: Place) -> bool:
        """Whether a module is accused for what was judged as a part of it, which another input accuses by itself, or
        for the same line of the reference as a module inside."""
        module, outside = place
        if outside:
            return False
        inside = {path: each for (path, out), each in self.found.items() if not out and _is_within(path, module)}
        lines = _lines(self.found[place])
        same = bool(lines) and any(lines == _lines(each) for each in inside.values())
        return same or any(path in inside for path in self._parts.get(place, ()))


def _more(paths: tuple[str, ...]) -> str:
    more = len(paths) - 1
    return f", and {more} more module{'s' if more > 1 else ''}" if more else ""


def _is_within(path: str, module: str) -> bool:
    return path != module and is_inside(path, module)


def _lines(divergence: Divergence) -> set[tuple[str, str]]:
    """What the causes are, and of which lines of the reference, where these are known of all."""
    lines = {(cause.id, cause.reference) for cause in divergence.causes}
    return lines if all(line for _, line in lines) else set()


def questions(exam: Examination, tensors: Sequence[Tensor]) -> Iterable[Question]:
    """Of each mode, the first inputs on which some tensor is worst, after a random one, where most can be told; and the
    check's own where no other fails."""
    failed = {(t.mode, t.input) for t in tensors if not t.equal}
    usual = [t.question for t in exam.truths if t.question.is_random and not t.question.is_timed]
    for truths in (lambda: exam.truths, lambda: exam.own.truths):
        asked = [t.question for t in truths() if (t.question.mode, t.question.label) in failed]
        for mode in (m for m in exam.case.modes if m != "train_step"):
            worst = [q for q in asked if q.mode == mode]
            randoms = [q for q in worst if q.is_random] or [q for q in usual if worst and q.mode == mode]
            yield from [*randoms[:1], *(q for q in worst if not q.is_random)][:LOOKS]
        if asked:
            return
