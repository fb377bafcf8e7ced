"""The line from which on a port has no value that the reference has, where no known difference explains a module.

Every value that the module of the reference computes is laid beside every value that the port's computes from the same
inputs. Back from what is wrong, through what the reference never has, this comes to operations that take nothing but
what the reference has, too: there the port leaves its way. That says where, and of why no more than what the reference
does with the same values. What one function of PyTorch computes inside cannot be seen: of a port that writes out such
a function, and goes wrong in it, the line is where that begins.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
import torch
from torch.utils import _pytree as pytree

from graphmode.weights import as_numpy

from ...errors import is_of_a_library
from ...report.records import Astray, Divergence
from ..inside.calls import CallId, is_inside
from ..inside.hooking import taken_apart, with_theirs
from ..inside.lanes import in_all_lanes
from ..yardstick import difference
from .change import Change, Site
from .graph import Graph, Operation, Run
from .limit import Limit
from .replay import Replay
from .values import LARGEST, Values

if TYPE_CHECKING:
    from ..inside.layouts import Pair
    from ..inside.localise import Look

MOST_LINES = 3  # of the port, and of the reference
LONGEST_S = 30.0
COUNTS = "iota"  # what counts, and computes nothing
SAME = ("broadcast_in_dim", "convert_element_type", "reshape", "squeeze")  # what PyTorch leaves to the next operation
MOVES = (  # what computes no number
    *("__getitem__", "select", "narrow", "chunk", "split", "unbind", "gather", "index_select", "flip", "roll"),
    *("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "stack", "cat", "concat"),
    *("permute", "transpose", "movedim", "moveaxis", "t", "mT", "T", "contiguous", "clone", "detach", "to"),
    *("expand", "expand_as", "repeat", "repeat_interleave", "tile", "pad"),
)


class _Step(NamedTuple):
    """One operation of the port, what it was given, and what it gave."""

    operation: Operation
    given: list[Any]
    results: list[Any]


class _Made(NamedTuple):
    """One call of the reference: from which line, what it was given, and what it gave."""

    name: str
    source: str
    given: list[np.ndarray]
    results: list[np.ndarray]


class _Late(Exception):
    """The time is over."""


def astray(
    look: Look, divergence: Divergence, deadline: float = math.inf, others: Sequence[Look] = ()
) -> Astray | None:
    """Where a module that goes wrong forward leaves the reference's way; None where that cannot be told.

    Args:
      look: in which the divergence was found.
      divergence: of a module that has a counterpart.
      deadline: of `time.monotonic`; 30 s are given at most, as `Limit` counts them.
      others: looks beside the reference with its constants in other digits: what it has there, it has.
    """
    with contextlib.suppress(_Late):
        return _astray(look, divergence, Limit(LONGEST_S, deadline), others)
    return None


def _astray(look: Look, divergence: Divergence, limit: Limit, others: Sequence[Look]) -> Astray | None:
    at = CallId(divergence.module, divergence.call)
    if divergence.outside or at not in look.run.forced:
        return None
    made, had = _made(look, at)
    if not made:  # it is scripted, or calls no function of its own: nothing of it can be seen
        return None
    also = (_made(other, at)[1] for other in others if at in other.run.forced)
    theirs = Values(itertools.chain(had, *also))
    steps, wrong = _port(look, at, limit)
    first = _leaving(steps, wrong, theirs, limit)
    lines = _lines((step.operation.source, step.operation.eqn.primitive.name) for step in first)
    if not lines:
        return None
    ours = Values(_had(steps, [call.path for call in look.run.forced if _is_within(call.path, at.path)]))
    used = Values(value for step in first for value in step.given)
    return Astray(port=lines, reference=_instead(made, ours, used), handed=_elsewhere(look, first, at.path))


def _made(look: Look, at: CallId) -> tuple[list[_Made], Iterator[Any]]:
    """The reference's function calls in the counterpart of a call, and all values that it has there."""
    forced = {look.matches[call] for call in look.run.forced}
    replay = Replay(look.judge.module, look.calls, look.matches[at], forced, backward=False)
    made = list(_reference(replay))
    return made, itertools.chain(look.calls[look.matches[at]].inputs.values(), _constants(replay), *_all(made))


def _elsewhere(look: Look, first: Sequence[_Step], module: str) -> str:
    """The class of the module that all these operations are in, if none is in the one that goes wrong."""
    place, *others = {step.operation.module for step in first}
    return "" if others or is_inside(place, module) else look.kinds.get(place, "the model")


def _is_within(path: str, module: str) -> bool:
    return path != module and is_inside(path, module)


def _had(steps: Sequence[_Step], inside: Sequence[str]) -> Iterator[Any]:
    """The port's values: not what modules inside are given, which is the reference's."""
    for step in steps:
        yield from step.results
        if not any(is_inside(step.operation.module, path) for path in inside):
            yield from step.given


def _leaving(steps: Sequence[_Step], wrong: Sequence[Any], theirs: Values, limit: Limit) -> list[_Step]:
    """Back from what is wrong, the operations that are given nothing but what the reference has, in order."""
    maker = {id(x): step for step in steps for x in step.results if all(x is not each for each in step.given)}

    def is_known(value: Any) -> bool:
        step = maker.get(id(value))
        name = "" if step is None else step.operation.eqn.primitive.name
        if step is None or name == COUNTS or theirs.have(value):
            return True
        return name in SAME and is_known(step.given[0])

    around: dict[int, _Step] = {}
    waiting = [value for value in wrong if id(value) in maker]
    seen = set(map(id, waiting))
    while waiting:
        _check(limit)
        step = maker[id(waiting.pop())]
        around[step.operation.number] = step
        for value in step.given:
            if id(value) not in seen and not is_known(value):
                waiting.append(value)
                seen.add(id(value))
    return [step for _, step in sorted(around.items()) if not any(id(value) in seen for value in step.given)]


def _check(limit: Limit) -> None:
    if limit.is_over:
        raise _Late


def _instead(made: Sequence[_Made], ours: Values, used: Values) -> list[str]:
    """What the reference computes of what the port has, and the port never: of what it goes astray with, if any."""
    never = [
        each
        for each in made
        if not all(map(ours.have, each.results)) and all(map(ours.have, each.given)) and each.source
    ]
    same = [each for each in never if any(used.have(value) and np.size(value) > 1 for value in each.given)]
    of_these = same or never
    computing = [each for each in of_these if each.name not in MOVES and all(x.dtype.kind == "f" for x in each.results)]
    return _lines((each.source, each.name) for each in computing or of_these)


def _lines(places: Iterable[tuple[str, str]]) -> list[str]:
    """`port.py:31 (mul, add)`, a line once, in the order in which they come."""
    found: dict[str, list[str]] = {}
    for source, name in places:
        if source:
            found.setdefault(source, []).append(name)
    return [f"{source} ({', '.join(dict.fromkeys(names))})" for source, names in list(found.items())[:MOST_LINES]]


def _all(made: Sequence[_Made]) -> Iterator[list[np.ndarray]]:
    for each in made:
        yield [*each.given, *each.results]


def _reference(replay: Replay) -> Iterator[_Made]:
    """Each call of a function in the module, with its values as they were then: some are written to later."""
    found: list[_Made] = []

    def note(site: Site) -> None:
        given, results = (_arrays(tree) for tree in ((site.args, site.kwargs), site.result))
        if results:
            found.append(_Made(site.name, _source(site), given, results))

    replay.run(Change(), note=note, forward_only=True)
    return iter(found)


def _constants(replay: Replay) -> Iterator[np.ndarray]:
    for tensor in itertools.chain(replay.module.parameters(), replay.module.buffers()):
        yield as_numpy(tensor.detach())


def _arrays(tree: Any) -> list[np.ndarray]:
    tensors = [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor) and x.numel() <= LARGEST]
    return [as_numpy(x.detach().clone()) for x in tensors]


def _source(site: Site) -> str:
    for code, instruction, _ in site.place:
        if not is_of_a_library(code.co_filename):
            lines = [line for start, stop, line in code.co_lines() if start <= instruction < stop and line is not None]
            return f"{Path(code.co_filename).name}:{lines[0]}" if lines else ""
    return ""


def _port(look: Look, at: CallId, limit: Limit) -> tuple[list[_Step], list[Any]]:
    """The operations of the port when each module has the reference's inputs and hands on its outputs, and what is
    wrong at the borders of this call."""
    run, wrong, order = look.run, [], []

    def through(call: CallId, module: Any, run_it: Any, args: Any, kwargs: Any) -> Any:
        if call not in look.run.forced:
            return run_it(module, *args, **kwargs)
        borders = run.borders(call)
        received, put_in = taken_apart((args, kwargs))
        there = look.calls[look.matches[call]]
        args, kwargs = put_in(handed_on(received, there.inputs, borders.inputs, borders.around == at))
        given, put_out = taken_apart(run_it(module, *args, **kwargs))
        return put_out(handed_on(given, there.outputs, borders.outputs, call == at))

    def handed_on(lanes: list[Any], theirs: dict[str, np.ndarray], pairs: list[Pair], noted: bool) -> list[Any]:
        def change(ours: list[Any]) -> list[Any]:
            if noted:
                for pair in pairs:
                    wrong.append(ours[pair.index])
                    order.append((pair, theirs[pair.name]))
            return with_theirs(ours, theirs, pairs)

        return in_all_lanes(lanes, change)

    steps: list[_Step] = []

    def visit(operation: Operation, given: list[Any], wide: Run) -> list[Any]:
        _check(limit)
        results = wide(given)
        steps.append(_Step(operation, given, results))
        return results

    with jax.disable_jit():
        outputs = Graph(look.port, look.question, through, beside=lambda: list(wrong)).evaluate(visit)
    values = outputs[len(outputs) - len(wrong) :]
    off = [value for value, (pair, right) in zip(values, order, strict=True) if _is_off(pair, np.asarray(value), right)]
    return steps, off


def _is_off(pair: Pair, value: np.ndarray, right: np.ndarray) -> bool:
    if value.shape != pair.layout.shape:
        return True
    return not difference(pair.layout.to_reference(value), right).equal
