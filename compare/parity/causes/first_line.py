"""The line from which on a port has no value that the reference has, where no known difference explains a module.

Every value that the module of the reference computes is laid beside every value that the port's computes from the same
inputs. Back from what is wrong, through what the reference never has, this comes to operations that take nothing but
what the reference has, too: there the port leaves its way. That says where, and of why no more than what the reference
does with the same values. Of what one function of PyTorch computes inside, the operations that it calls are seen, and
nothing within one of these: of a port that writes out such a one, and goes wrong in it, the line is where that begins.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.extend import core as jex

from ...report.records import Astray, Divergence
from ..inside.calls import CallId, is_inside
from .limit import LateError, Limit, check
from .port_way import Step
from .values import NUMBERS, WHOLE, Lacking, Values, as_array, cancel, has_rows
from .ways import Made, Ways, ways

if TYPE_CHECKING:
    from ..inside.localise import Look

MOST_LINES = 3  # of the port, and of the reference
LONGEST_S = 30.0
SAME = ("broadcast_in_dim", "convert_element_type", "reshape", "squeeze", "split")  # what hands on all that it is given
COUNTS = "iota"
LARGEST = "reduce_max"
BACKWARD = "transpose("  # in the stack of names
LENGTHS = "reduce_prod"
SUMS = ("add", "sub", "reduce_sum")
INDICES = {"gather": slice(1, 2), "dynamic_slice": slice(1, None)}  # which of what an operation is given are indices
MOVING = (  # what computes no number
    *("slice", "dynamic_slice", "gather", "concatenate", "pad", "rev", "reshape", "squeeze", "expand_dims"),
    *("transpose", "broadcast_in_dim", "copy", "convert_element_type"),
)
MOVES = (  # likewise of PyTorch's functions
    *("__getitem__", "select", "narrow", "chunk", "split", "unbind", "gather", "index_select", "flip", "roll"),
    *("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "stack", "cat", "concat"),
    *("permute", "transpose", "movedim", "moveaxis", "t", "mT", "T", "contiguous", "clone", "detach", "to"),
    *("expand", "expand_as", "repeat", "repeat_interleave", "tile", "pad"),
)


def astray(
    look: Look,
    divergence: Divergence,
    deadline: float = math.inf,
    others: Sequence[Look] = (),
    *,
    seconds: float = LONGEST_S,
) -> Astray | None:
    """Where a module that goes wrong forward leaves the reference's way; None where that cannot be told.

    Args:
      look: in which the divergence was found.
      divergence: of a module that has a counterpart.
      deadline: of `time.monotonic`, by when it is over in any case.
      others: looks beside the reference with its constants in other digits: what it has there, it has.
      seconds: that it may take, as `Limit` counts them.
    """
    with contextlib.suppress(LateError):
        return _astray(look, divergence, Limit(seconds, deadline), others)
    return None


def alike(
    look: Look, divergence: Divergence, deadline: float = math.inf, *, seconds: float = LONGEST_S
) -> Astray | None:
    """Where a port that is right forward, and goes wrong in what it keeps or in gradients, computes what the
    reference's line does that explains it; None where that cannot be told.

    Args:
      look, divergence, deadline, seconds: as of `astray`; the divergence has a cause with its line.
    """
    with contextlib.suppress(LateError):
        return _alike(look, divergence, Limit(seconds, deadline))
    return None


def _alike(look: Look, divergence: Divergence, limit: Limit) -> Astray | None:
    at = CallId(divergence.module, divergence.call)
    lines = {cause.reference for cause in divergence.causes}
    if divergence.outside or at not in look.run.forced or len(lines) > 1 or "" in lines:
        return None
    both = ways(look, at, limit)
    own = [step for step in both.steps if is_inside(step.operation.module, at.path)]
    for made in reversed([each for each in both.made if each.source in lines and each.name not in MOVES]):
        values = Values(made.results)
        same = [step for step in own if any(map(values.have_whole, step.results))]
        computing = [step for step in same if step.operation.eqn.primitive.name not in (*MOVING, "stop_gradient")]
        if computing:
            found = _lines(map(_told, computing))
            return Astray(port=found, reference=[]) if found else None
    return None


def _astray(look: Look, divergence: Divergence, limit: Limit, others: Sequence[Look]) -> Astray | None:
    at = CallId(divergence.module, divergence.call)
    if divergence.outside or at not in look.run.forced:
        return None
    both = ways(look, at, limit)
    if not both.made:  # it is scripted, or calls no function of its own: nothing of it can be seen
        return None
    theirs = both.theirs(others)
    first = _leaving(both, theirs, limit)
    known = look.changed.get(at, ())
    changed = [x for x in known if not theirs.have(x)]
    if known and not changed:  # as of a mask that is left out, where the other is had: what comes of it tells more
        changed = [x for x in look.made_of.get(at, list)() if not theirs.have(x)]
    if changed:
        with contextlib.suppress(LateError):
            first = _towards(both, theirs, first, changed, limit.anew())
    computing = [step for step in first if step.operation.eqn.primitive.name not in MOVING] or first
    fixed = {id(value) for _, value in both.fixed}

    def is_fixed(step: Step) -> bool:  # which may be right, and of no like
        return all(id(value) in fixed for value in step.results)

    if all(map(is_fixed, computing)):
        computing = [step for step in first if step not in computing] + computing
    # a mask of what is padded has no counterpart by nature
    computing.sort(key=lambda step: (not _is_floating(step), is_fixed(step)))
    if computing and _is_floating(computing[0]):  # the reference has the mask that stops a loop
        computing = [step for step in computing if step.operation.eqn.primitive.name != "not"]
    lines = _lines(map(_told, computing))
    if not lines:
        return None
    used = Values(value for step in first for value in step.given)
    reference = _instead([each for each in both.never(limit) if each.source], used)
    computed = [each.name for each in both.made if each.name not in MOVES]
    whole = computed[0] if len(computed) == 1 and len(first) > 1 else ""
    return Astray(port=lines, reference=reference, handed=_elsewhere(look, first, at.path), whole=whole)


def _elsewhere(look: Look, first: Sequence[Step], module: str) -> str:
    """The class of the module that all these operations are in, if none is in the one that goes wrong."""
    place, *others = {step.operation.module for step in first}
    return "" if others or is_inside(place, module) else look.kinds.get(place, "the model")


def _towards(both: Ways, theirs: Values, first: list[Step], changed: Sequence[np.ndarray], limit: Limit) -> list[Step]:
    """Those of the operations that lead to what the calls give that a known cause changes, and that the reference does
    not have; where the port has that, or has its rows, and none leads to it, the one that makes it.

    Raises:
      LateError: where the time is over.
    """
    values, numbers = Values(changed), Values(x for x in changed if x.size == 1)
    made = [step for step in both.own if any(values.have_whole(x) or numbers.have_element(x) for x in step.results)]
    for step in () if made else both.own:
        check(limit)
        own = [value for value in step.results if not theirs.have(value)]
        made += [step] if any(has_rows(value, each) for value in own for each in changed) else []
    computing = [step for step in made if step.operation.eqn.primitive.name not in MOVING] or made
    if not computing:
        return first
    end = computing[0].operation
    leading = [step for step in first if step.operation is end or end.number in both.descendants(step)]
    if end.eqn.primitive.name in MOVING:  # and what leads to it lays out what it takes
        leading = [step for step in leading if step.operation.source == end.source]
    return leading or computing[:1]


def _leaving(both: Ways, theirs: Values, limit: Limit) -> list[Step]:
    """Back from what is wrong, the operations that are given nothing but what the reference has, in order: that, too,
    which has more parts than the reference's, as at a fixed size, and gives the same with others in their place."""
    back = _Back(both, theirs)
    strict = back.leaving(limit)
    with contextlib.suppress(LateError):  # those that were found by then are idle all the same
        tried = [(step, parts) for step in back.around if any(parts := list(map(theirs.lacking, step.results)))]
        for step in _idle(both, tried, limit):
            back.know(step)
        back.leave_out(list(_idle(both, [_wholly(step) for step in back.around if _is_largest(step)], limit)), limit)
        while tried := [_wholly(step) for step in back.leaving(limit) if back.may_be_any(step)]:
            idle = list(_idle(both, tried, limit))
            for step in idle:
                back.know(step)
            if not idle:
                break
    return back.leaving(limit.anew()) or strict  # which looks nothing up anew


def _is_largest(step: Step) -> bool:
    return step.operation.eqn.primitive.name == LARGEST and _is_floating(step)


def _wholly(step: Step) -> tuple[Step, list[Lacking | None]]:
    return step, [WHOLE for _ in step.results]


def _idle(both: Ways, lacking: Sequence[tuple[Step, list[Lacking | None]]], limit: Limit) -> Iterator[Step]:
    """The operations whose lacking parts may be others, and the port gives the same, but for those that come of one of
    which that is not so.

    Raises:
      LateError: where the time is over.
    """
    waiting = list(lacking)
    while waiting:
        count = _idle_at_first(both, waiting, limit)
        yield from (step for step, _ in waiting[:count])
        behind = both.descendants(waiting[count][0]) if count < len(waiting) else frozenset()
        waiting = [each for each in waiting[count + 1 :] if each[0].operation.number not in behind]


def _idle_at_first(both: Ways, lacking: Sequence[tuple[Step, list[Lacking | None]]], limit: Limit) -> int:
    """How many of them, from the first on, may be others all at once."""

    def are(count: int) -> bool:
        return both.gives_the_same({step.operation.number: parts for step, parts in lacking[:count]}, limit)

    least, most = 0, len(lacking) + 1
    count = len(lacking)  # all of them, most often
    while most - least > 1:
        least, most = (count, most) if are(count) else (least, count)
        count = (least + most) // 2
    return least


class _Back:
    """The way back from what is wrong.

    Attributes:
      around: the operations on the way, in order, that make what the reference has not.
    """

    def __init__(self, both: Ways, theirs: Values):
        self.both, self.theirs = both, theirs
        self.around: list[Step] = []
        self._known: set[int] = set()
        self._without_idle: dict[int, Any] = {}
        self._wrong = set(map(id, both.wrong))
        self._maker = both.maker

    def know(self, step: Step) -> None:
        """What it makes may be anything: it is nothing that the reference would have to have."""
        self._known.update(map(id, step.results))

    def leave_out(self, idle: Sequence[Step], limit: Limit) -> None:
        """What is idle, as the largest of scores that is taken off and added again, is nothing that the reference would
        have to have; nor have others what they are by it alone.

        Raises:
          LateError: where the time is over.
        """
        for step in idle:
            self.know(step)
        if idle:
            self._without_idle = self.both.with_zeros({step.operation.number for step in idle}, limit)

    def may_be_any(self, step: Step) -> bool:
        """Whether it is not known, and others of its own elements can be tried in their place: not of one, by which a
        loop would have another number of turns."""
        known = all(id(value) in self._known for value in step.results)
        return not known and all(_has_several(as_array(value)) for value in step.results)

    def leaving(self, limit: Limit) -> list[Step]:
        """Those of the operations that are given nothing but what is known.

        Raises:
          LateError: where the time is over.
        """
        around: dict[int, Step] = {}
        waiting = [value for value in self.both.wrong if id(value) in self._maker]
        seen = set(map(id, waiting))
        while waiting:
            check(limit)
            step = self._maker[id(waiting.pop())]
            around[step.operation.number] = step
            for value in step.given:
                if id(value) not in seen and not self._is_known(value):
                    waiting.append(value)
                    seen.add(id(value))
        self.around = [step for _, step in sorted(around.items())]
        return [step for step in self.around if not any(id(value) in seen for value in step.given)]

    @functools.cached_property
    def _fixed_counts(self) -> frozenset[int]:
        """By identity, the whole numbers that no input makes."""
        arrays = ((id(value), as_array(value)) for _, value in self.both.fixed)
        return frozenset(at for at, x in arrays if x.dtype.kind in NUMBERS and (x == np.round(x)).all())

    @functools.cached_property
    def _fixed_indices(self) -> frozenset[int]:
        """By identity, what no input makes and what says alone where to take from: what is taken there tells of it."""
        indices: set[int] = set()
        others: set[int] = set()
        for step in self.both.steps:
            taken = INDICES.get(step.operation.eqn.primitive.name, slice(0, 0))
            indices.update(map(id, step.given[taken]))
            others.update(set(map(id, step.given)) - set(map(id, step.given[taken])))
        return frozenset(id(value) for _, value in self.both.fixed if id(value) in indices - others)

    def _is_constant(self, step: Step) -> bool:
        """Whether it counts, or is one number made of numbers, as `jnp.log(2.0)` is, which may be Python's there; or of
        lengths, as what a transform is divided by."""
        name = step.operation.eqn.primitive.name
        if name == COUNTS or (name == LENGTHS and all(id(value) in self._fixed_counts for value in step.given)):
            return True
        if any(np.size(value) > 1 for value in step.results):
            return False
        for atom, value in zip(step.operation.eqn.invars, step.given, strict=True):
            maker = self._maker.get(id(value))
            if not isinstance(atom, jex.Literal) and (maker is None or not self._is_constant(maker)):
                return False
        return True

    def _is_wrong(self, value: Any) -> bool:
        """Whether it is off at a border or in a buffer, or is that laid otherwise."""
        step = self._maker.get(id(value))
        moves = step is not None and step.operation.eqn.primitive.name in MOVING and bool(step.given)
        return id(value) in self._wrong or (moves and self._is_wrong(step.given[0]))  # type: ignore[union-attr]

    def _is_known(self, value: Any) -> bool:
        if self._is_wrong(value):  # though its parts may be the reference's, each in another place
            return False
        step = self._maker.get(id(value))
        name = "" if step is None else step.operation.eqn.primitive.name
        if step is None or id(value) in self._known or self._is_constant(step) or self.theirs.have(value):
            return True
        if id(value) in self._without_idle and self.theirs.have(self._without_idle[id(value)]):
            return True
        if id(value) in self._fixed_indices:  # what is taken there tells of it
            return True
        if name in SUMS and cancel(step.given, step.results):
            return all(map(self._is_known, step.given))
        return name in SAME and self._is_known(step.given[0])


def _instead(never: Sequence[Made], used: Values) -> list[str]:
    """Of what the reference makes, and the port never, that of which the port makes something else, if any."""
    same = [each for each in never if any(used.have(value) and np.size(value) > 1 for value in each.given)]
    of_these = same or never
    computing = [each for each in of_these if each.name not in MOVES and all(x.dtype.kind == "f" for x in each.results)]
    return _lines((each.source, "", each.name) for each in computing or of_these)


def _has_several(array: np.ndarray) -> bool:
    return array.size > 1 and bool((array != array.flat[0]).any())


def _is_floating(step: Step) -> bool:
    return any(as_array(value).dtype.kind == "f" for value in step.results)


def _told(step: Step) -> tuple[str, str, str]:
    """The line of an operation, the one that calls what that is in, and the operation's name; what goes back through a
    gradient in the model has the forward line."""
    operation = step.operation
    is_derivative = BACKWARD in str(operation.eqn.source_info.name_stack)
    name = operation.eqn.primitive.name
    return operation.source, operation.caller, f"{name} in its derivative" if is_derivative else name


def _lines(places: Iterable[tuple[str, str, str]]) -> list[str]:
    """`port.py:31 (mul, add)`, or `port.py:31 (mul, add; called at port.py:72)`, a line once, in the order in which
    they come."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for source, caller, name in places:
        if source:
            names, callers = found.setdefault(source, ([], []))
            names.append(name)
            callers += [caller] if caller else []
    return [
        f"{source} ({_once(names)}{f'; called at {_once(callers)}' if callers else ''})"
        for source, (names, callers) in list(found.items())[:MOST_LINES]
    ]


def _once(words: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(words))
