"""What is wrong with a port that is not equal: where the error arises, and why."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..errors import describe_briefly
from ..quiet import quiet
from ..report.divergence_text import OPTIMIZER
from ..report.records import Cause, Divergence, Finding, ModuleEvidence, Tensor
from .dead_outputs import dead_outputs
from .inside.calls import is_inside
from .judge import Question

if TYPE_CHECKING:
    from ..jax_side import PortSide
    from ..torch_side import TorchSide
    from .causes import Elsewhere
    from .examination import Examination
    from .inside.localise import Look

Place = tuple[str, bool]  # a module, and whether the fault is outside of all

LOOKS = 3  # at inputs of one mode
BUDGET_S = 60.0  # for the lines that lose digits
CAUSES_S = 120.0  # for the causes of all suspects
LINES_S = 30.0  # at least, for the lines of those without a cause


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
    from .causes import Elsewhere
    from .inside.localise import Look

    found: dict[Place, Divergence] = {}
    unlike: dict[Place, tuple[str, ...]] = {}  # what was judged as a part of each, if anything
    seen: dict[tuple[str, str, int], Look] = {}
    diagnosis = Diagnosis()
    notes, deadline = diagnosis.notes, time.monotonic() + CAUSES_S
    with quiet():
        port, judges = exam.port_side(variant, "float64"), [exam.judge.exact]
        judges += [exam.judge.finer] if exam.judge.finer is not None else []
        dead = None
        try:
            dead = dead_outputs(exam, port, tensors)
        except Exception as error:
            notes.append(f"gradients that the reference lacks were not looked for: {describe_briefly(error)}")
        if dead is not None:
            found[_place(dead)] = dead
            wrong = [t for t in tensors if t.mode == dead.mode and not t.equal]
            only_gradients = all(t.kind.endswith("gradient") for t in wrong)

        def look_at(question: Question, judge: TorchSide) -> Look:
            """Kept, but of a large model."""
            key = question.mode, question.label, judges.index(judge)
            look = seen.get(key) or Look(port, judge, question, exam.case.modules)
            if not exam.judge.is_large:
                seen[key] = look
            return look

        def at_edges(look: Look) -> Iterator[Look]:
            """The same at the case's other inputs of the mode, where either side is defined."""
            for question in _edges(exam, tensors, look.question):
                with contextlib.suppress(Exception):
                    yield look_at(question, look.judge)

        def at_random(look: Look) -> Look | None:
            """The same at the first random input of the mode, where this is at another kind."""
            if exam.judge.is_large or look.question.is_random:
                return None
            asked = (t.question for t in exam.truths if t.question.mode == look.question.mode)
            question = next((q for q in asked if q.is_random and not q.is_timed), None)
            return None if question is None else look_at(question, look.judge)

        for question in questions(exam, tensors):
            if dead is not None and question.mode == dead.mode and only_gradients:
                continue
            start = time.monotonic()
            try:
                # the reference's constants as it has them, or in float64 as the port does: what tells least apart
                looks = [look_at(question, judge) for judge in judges]
                look, *others = sorted(looks, key=lambda look: len(look.suspects) + bool(look.outside))
            except Exception as error:
                notes.append(f"{question.mode}: no look inside on {question.label!r}: {describe_briefly(error)}")
                continue
            took = time.monotonic() - start
            diagnosis.modules = diagnosis.modules or look.modules()
            if look.unlike:
                notes.append(
                    f"{question.mode}: on {question.label!r} {look.unlike[0]!r} is handed, or gives, tensors of other "
                    "shapes in the port than in the reference, or ends elsewhere in it, so that it was judged as a "
                    f"part of what is around it{_more(look.unlike)}"
                )
            notes += [
                f"{question.mode}: on {question.label!r} max_steps={most} ends the loop at {place} before its "
                "condition does: raise it, or see to what the loop gives as cut_short"
                for place, most in look.run.cut_short.items()
            ]
            if look.hidden:
                notes.append(
                    f"{question.mode}: {look.hidden[0]!r} is called within a transform that hides its values, so that "
                    f"it was judged as a part of what is around it{_more(look.hidden)}"
                )
            _hold_backward(look, found, deadline)
            divergences = [each for each in look.divergences() if _place(each) not in found]
            try:
                for each in (look, *others):
                    elsewhere = Elsewhere(
                        functools.cache(functools.partial(_second_look, exam, each, deadline - took)),
                        functools.partial(at_edges, each),
                        functools.partial(at_random, each),
                    )
                    divergences = _explained_by(each, divergences, deadline, elsewhere, is_first=each is look)
            except Exception as error:
                notes.append(f"{question.mode}: causes were not tried on {question.label!r}: {describe_briefly(error)}")
            if not exam.judge.is_large:
                until = max(deadline, time.monotonic() + LINES_S)  # however long the search for causes took
                divergences = [_with_its_line(look, others, each, until, notes) for each in divergences]
            found.update({_place(each): each for each in divergences})
            unlike.update({_place(each): (*look.unlike, *look.hidden) for each in divergences})
        found = {place: each for place, each in found.items() if not _stands_for_another(place, unlike, found)}
        update = next((t for t in tensors if t.kind == "update" and not t.equal), None)
        if update is not None:
            found[OPTIMIZER, False] = _of_optimizer(exam, update)
        elif not found and (moved := [t for t in tensors if t.kind == "parameter" and not t.equal]):
            found[OPTIMIZER, False] = _of_steps(exam, moved)
    diagnosis.divergences = list(found.values())
    return diagnosis


def _hold_backward(look: Look, found: dict[Place, Divergence], deadline: float) -> None:
    """Leaves of the causes that make right what is off in the forward pass those that do so for the gradients, too.

    A place whose causes all fail there is taken out, to be looked at anew.
    """
    from .causes import FORWARD_ONLY, explain

    for each in look.divergences() if look.question.mode == "forward_backward" else ():
        place = _place(each)
        before = found.get(place)
        if before is None or before.mode != "inference":
            continue
        ids = frozenset(cause.id for cause in before.causes)
        if not ids or ids & FORWARD_ONLY or all(finding.what in ("received", "output") for finding in each.findings):
            continue
        again = explain(look, each, deadline=deadline, only=ids)
        if again.cut_short:
            continue
        said = {cause.says for cause in again.causes}
        if held := [cause for cause in before.causes if cause.says in said]:
            found[place] = replace(before, causes=held)
        else:
            del found[place]


def _stands_for_another(
    place: Place, unlike: Mapping[Place, tuple[str, ...]], found: Mapping[Place, Divergence]
) -> bool:
    """Whether a module is accused for what was judged as a part of it, which another input has accused by itself."""
    module, outside = place
    parts = [] if outside else [path for path in unlike.get(place, ()) if path != module and is_inside(path, module)]
    return any((path, False) in found for path in parts)


def _more(paths: tuple[str, ...]) -> str:
    return f", and {len(paths) - 1} more modules" if len(paths) > 1 else ""


def diagnose_precision(exam: Examination, variant: str, tensors: Sequence[Tensor]) -> Diagnosis:
    """Looks for where a port that is equal, and not precise, loses digits: random inputs together, edges by themselves.

    Args:
      exam: whose judge answered.
      variant: of the port.
      tensors: the verdicts on it.
    """
    from .inside.localise import Look

    diagnosis = Diagnosis()
    update = next((t for t in tensors if t.kind == "update" and not t.precise), None)
    if update is not None:
        diagnosis.divergences.append(_of_optimizer(exam, update, dtype=exam.dtype))
    failed = {t.mode for t in tensors if not t.precise}
    looked = False
    with quiet():
        exact, usual = exam.port_side(variant, "float64"), exam.port_side(variant, exam.dtype)
        for mode in (m for m in exam.case.modes if m != "train_step" and m in failed):
            for pool in filter(None, _pools(exam, mode, tensors)):
                try:
                    looks = [Look(exact, exam.judge.exact, question, exam.case.modules) for question in pool]
                    diagnosis.modules = diagnosis.modules or looks[0].modules()
                    found = _imprecise(exam, looks, usual, diagnosis.notes)
                except Exception as error:
                    told = describe_briefly(error)
                    diagnosis.notes.append(f"{mode}: no look for lost digits on {pool[0].label!r}: {told}")
                    continue
                if found:
                    diagnosis.divergences = found + diagnosis.divergences
                    return diagnosis
                looked = True
    if looked:
        diagnosis.notes.append(f"in {exam.dtype} no module by itself is less precise than PyTorch's")
    return diagnosis


def _pools(exam: Examination, mode: str, tensors: Sequence[Tensor]) -> Iterator[list[Question]]:
    """Random inputs together, of a large model one since a look holds all that its modules give; then edges, those
    first that are known to fail."""
    asked = [t.question for t in [*exam.truths, *exam.own.truths] if t.question.mode == mode]
    draws = 1 if exam.judge.is_large else LOOKS
    yield [q for q in asked if q.is_random and not q.is_timed][:draws]
    failed = [t.input for t in tensors if t.mode == mode and not t.precise]
    edges = [q for q in asked if not q.is_random]
    yield from ([q] for q in sorted(edges, key=lambda q: q.label not in failed)[:LOOKS])


def _imprecise(exam: Examination, looks: list[Look], usual: PortSide, notes: list[str]) -> list[Divergence]:
    """The modules that lose digits, with their causes."""
    from .causes import explain_digits
    from .causes.graph import Graph
    from .inside.imprecise import PrecisionLook

    found = PrecisionLook(looks, usual, exam.judge.usual).divergences()
    if not found:
        return []
    known = [match.port for match in looks[0].matching.matches]
    graph, deadline = Graph(usual, looks[0].question), time.monotonic() + BUDGET_S
    told: list[Divergence] = []
    for each in found:
        if time.monotonic() > deadline:
            notes.append(f"the line was looked for in {len(told)} of {len(found)} modules: {BUDGET_S:.0f} s were over")
            return told + found[len(told) :]
        told.append(replace(each, causes=explain_digits(graph, each.module, known)))
    return told


def _place(divergence: Divergence) -> Place:
    return divergence.module, divergence.outside


def _of_optimizer(exam: Examination, update: Tensor, dtype: str = "") -> Divergence:
    """The optimizer as the place of the error: given the same gradients it steps otherwise; with a dtype, in that."""
    from .causes import explain_optimizer, explain_optimizer_digits

    finding = Finding(
        what="update",
        tensor="the step on given gradients",
        error=update.error,
        index=update.index,
        port_value=update.port_value,
        reference_value=update.reference_value,
    )
    if dtype:
        causes = explain_optimizer_digits(exam.case, seed=exam.seed, dtype=dtype, device=exam.device)
    else:
        causes = explain_optimizer(exam.case, seed=exam.seed, device=exam.device)
    return Divergence(
        mode="train_step", input=update.input, module=OPTIMIZER, findings=[finding], causes=causes, dtype=dtype
    )


def _of_steps(exam: Examination, moved: Sequence[Tensor]) -> Divergence:
    """The optimizer as the place where forward and backward are right, it is right on given gradients, and yet
    parameters move otherwise: it treats some gradients otherwise, such as those that are not there."""
    moved = sorted(moved, key=lambda t: t.name not in exam.judge.frozen)  # what follows from those comes after them
    findings = [
        Finding(
            what="update",
            tensor=f"{t.name} after steps of training",
            error=t.error,
            index=t.index,
            port_value=t.port_value,
            reference_value=t.reference_value,
        )
        for t in moved
    ]
    steps = [truth.reference.parameters for truth in exam.truths if truth.question.mode == "train_step"]
    stays = all(t.name in each and not each[t.name].any() for t in moved for each in steps)
    causes = []
    if trained := [t.name for t in moved if t.name in exam.judge.frozen]:
        says = f"trains {', '.join(trained)}, which the reference freezes (requires_grad=False)"
        fix = (
            "leave them out of what the optimizer updates (optax.partition, wrt=), or stop their gradient and have no "
            "weight decay, which moves what has a gradient of zero, too"
        )
        causes.append(Cause(id="frozen", says=says, fix=fix, residual=0.0))
    elif steps and stays:
        names = ", ".join(t.name for t in moved)
        says = f"moves {names}, which the reference leaves where they are: they have no gradient there"
        fix = "a zero gradient still decays and moves: leave out what has none (gm.optim takes None, or present=)"
        causes.append(Cause(id="absent-gradient", says=says, fix=fix, residual=0.0))
    return Divergence(mode="train_step", input=moved[0].input, module=OPTIMIZER, findings=findings, causes=causes)


def _second_look(exam: Examination, look: Look, deadline: float) -> Look | None:
    """A look at another input of the same kind; None where there is none, or no time for it."""
    from .inside.localise import Look

    if exam.judge.is_large or time.monotonic() > deadline:
        return None
    try:
        question = exam.judge.another(look.question)
        return None if question is None else Look(look.port, look.judge, question, exam.case.modules)
    except Exception:  # one side is not defined there: the first look stays all that there is
        return None


def _explained_by(
    look: Look, divergences: list[Divergence], deadline: float, elsewhere: Elsewhere, *, is_first: bool
) -> list[Divergence]:
    """The divergences, those without a cause as this look tells of the same place: a further one where it has a cause.

    Beside the reference's constants in other digits than the port's, all that is made of them is off by a little.
    """
    without = {_place(each) for each in divergences if not each.causes}
    seen = [each for each in look.divergences() if _place(each) in without]
    told = {_place(each): each for each in _explained(look, seen, deadline, elsewhere)} if seen else {}
    silent = {_place(each) for each in seen} - told.keys()
    told = {place: each for place, each in told.items() if is_first or each.causes}
    return [told.get(_place(each), each) for each in divergences if _place(each) not in silent]


def _explained(
    look: Look, divergences: list[Divergence], deadline: float, elsewhere: Elsewhere
) -> Iterator[Divergence]:
    """The divergences of a look with their causes, which hold in other looks, too."""
    from .causes import explain, explain_casts

    found = [explain(look, each, deadline=deadline, elsewhere=elsewhere) for each in divergences]
    casts: dict[str, Cause] = {}
    if not all(one.causes for one in found):
        known = [match.port for match in look.matching.matches]
        casts = explain_casts(look.port, look.question, look.observed, known)
    hold = any(not own.causes and each.module in casts for each, own in zip(divergences, found, strict=True))
    for each, own in zip(divergences, found, strict=True):
        if hold and not own.causes and each.module not in casts and not each.outside and _is_off_forward(each):
            continue  # without the casts all is right: it hands on what another module gives in a narrower dtype
        if each.outside and casts and look.port.case.loss is None:
            continue  # a cotangent in the dtype of an output that was cast
        causes = own.causes or [*filter(None, [None if each.outside else casts.get(each.module)])]
        yield replace(each, causes=causes, cut_short=own.cut_short and not causes, tried_s=own.tried_s)


def _with_its_line(
    look: Look, others: Sequence[Look], divergence: Divergence, deadline: float, notes: list[str]
) -> Divergence:
    """A divergence without a cause, with the line where the port leaves the reference's way."""
    from .causes import astray

    if divergence.causes or not _is_off_forward(divergence) or time.monotonic() > deadline:
        return divergence
    try:
        return replace(divergence, astray=astray(look, divergence, deadline, others))
    except Exception as error:
        notes.append(f"the line of {divergence.module or 'the model'} was not found: {describe_briefly(error)}")
        return divergence


def _is_off_forward(divergence: Divergence) -> bool:
    return any(finding.what in ("received", "output") for finding in divergence.findings)


def _edges(exam: Examination, tensors: Sequence[Tensor], but: Question) -> list[Question]:
    """The case's edge inputs of a mode but one, those first on which some tensor is worst."""
    if exam.judge.is_large:
        return []
    worst = {t.input for t in tensors if t.mode == but.mode and not t.equal}
    asked = [t.question for t in exam.truths if t.question.mode == but.mode and not t.question.is_random]
    found = [question for question in asked if question.label != but.label]
    return sorted(found, key=lambda question: question.label not in worst)[:LOOKS]


def questions(exam: Examination, tensors: Sequence[Tensor]) -> Iterable[Question]:
    """Of each mode, the first inputs on which some tensor is worst: random ones before edges, and the check's own where
    no other fails."""
    failed = {(t.mode, t.input) for t in tensors if not t.equal}
    for truths in (lambda: exam.truths, lambda: exam.own.truths):
        asked = [t.question for t in truths() if (t.question.mode, t.question.label) in failed]
        for mode in (m for m in exam.case.modes if m != "train_step"):
            randoms = [q for q in asked if q.mode == mode and q.is_random][:1]
            yield from [*randoms, *(q for q in asked if q.mode == mode and not q.is_random)][:LOOKS]
        if asked:
            return
