"""The ways of the port and of the reference through one wrong call: every value on either, from the same inputs."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
import torch
from jax.extend.core import get_opaque_trace_state
from torch.utils import _pytree as pytree

from graphmode.weights import as_numpy

from ..inside.calls import CallId, is_inside
from ..inside.hooking import taken_apart, with_theirs
from ..inside.lanes import in_all_lanes
from ..inside.packed import unpacked
from ..yardstick import difference
from .change import Change, Site
from .graph import Graph, Operation, Run
from .limit import Limit
from .replay import Replay
from .sites import instruction, source
from .values import LARGEST, Values

if TYPE_CHECKING:
    from ..inside.layouts import Pair
    from ..inside.localise import Look


class Step(NamedTuple):
    """One operation of the port, what it was given, and what it gave."""

    operation: Operation
    given: list[Any]
    results: list[Any]


class Made(NamedTuple):
    """One call of the reference: by which instruction, from which line, what it was given, and what it gave."""

    instruction: Any
    source: str
    given: list[np.ndarray]
    results: list[np.ndarray]

    @property
    def name(self) -> str:
        return str(self.instruction[0])


class LateError(Exception):
    """The time is over."""


class Ways:
    """Of a call of the port that has a counterpart, and goes wrong forward.

    Args:
      look: in which it was seen.
      at: the port's call.
      limit: of all that is looked for in it.

    Attributes:
      made: the reference's function calls in the counterpart.
      steps: the port's operations, in all of its graph, when each module has the reference's inputs and hands on the
        reference's outputs.
      wrong: what is wrong at the borders of the call, of the port's values.
    """

    def __init__(self, look: Look, at: CallId, limit: Limit):
        self.look, self.at = look, at
        self.made, self._theirs = _made(look, at)
        self.steps, self.wrong = _port(look, at, limit) if self.made else ([], [])

    def theirs(self, others: Sequence[Look] = ()) -> Values:
        """What the reference has, and has beside its constants in other digits."""
        also = (_made(other, self.at)[1] for other in others if self.at in other.run.forced)
        return Values(itertools.chain(self._theirs, *also))

    @functools.cached_property
    def ours(self) -> Values:
        """What the port has."""
        inside = [call.path for call in self.look.run.forced if _is_within(call.path, self.at.path)]
        return Values(_had(self.steps, inside))

    def never(self, limit: Limit) -> Iterator[Made]:
        """What the reference makes of what the port has, and the port never: there they part."""
        for each in self.made:
            check(limit)
            if not all(map(self.ours.have, each.results)) and all(map(self.ours.have, each.given)):
                yield each


def ways(look: Look, at: CallId, limit: Limit) -> Ways:
    """Those of a call, found once and kept with the look.

    Raises:
      LateError: where the time is over before.
    """
    if at not in look.ways:
        look.ways[at] = Ways(look, at, limit)
    return look.ways[at]


def check(limit: Limit) -> None:
    if limit.is_over:
        raise LateError


def _made(look: Look, at: CallId) -> tuple[list[Made], list[Any]]:
    """The reference's function calls in the counterpart of a call, and all values that it has there."""
    forced = {look.matches[call] for call in look.run.forced}
    replay = Replay(look.judge.module, look.calls, look.matches[at], forced, backward=False)
    made = _reference(replay)
    return made, list(itertools.chain(look.calls[look.matches[at]].inputs.values(), _constants(replay), *_all(made)))


def _is_within(path: str, module: str) -> bool:
    return path != module and is_inside(path, module)


def _had(steps: Sequence[Step], inside: Sequence[str]) -> Iterator[Any]:
    """The port's values: not what modules inside are given, which is the reference's."""
    for step in steps:
        yield from step.results
        if not any(is_inside(step.operation.module, path) for path in inside):
            yield from step.given


def _all(made: Sequence[Made]) -> Iterator[list[np.ndarray]]:
    for each in made:
        yield [*each.given, *each.results]


def _reference(replay: Replay) -> list[Made]:
    """Each call of a function in the module, with its values as they were then: some are written to later."""
    found: list[Made] = []

    def note(site: Site) -> None:
        given, results = (_arrays(tree) for tree in ((site.args, site.kwargs), site.result))
        if results:
            found.append(Made(instruction(site), source(site), given, results))

    replay.run(Change(), note=note, forward_only=True)
    return found


def _constants(replay: Replay) -> Iterator[np.ndarray]:
    for tensor in itertools.chain(replay.module.parameters(), replay.module.buffers()):
        yield as_numpy(tensor.detach())


def _arrays(tree: Any) -> list[np.ndarray]:
    tensors = [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor) and x.numel() <= LARGEST]
    return [as_numpy(x.detach().clone()) for x in tensors]


def _port(look: Look, at: CallId, limit: Limit) -> tuple[list[Step], list[Any]]:
    """The operations of the port when each module has the reference's inputs and hands on its outputs, and what is
    wrong at the borders of this call; what is within a loop's own trace leaves it not, and is not asked."""
    run, wrong, order = look.run, [], []
    home: list[Any] = []

    def through(call: CallId, module: Any, run_it: Any, args: Any, kwargs: Any) -> Any:
        if not home:
            home.append(get_opaque_trace_state())
        if call not in look.run.forced:
            return run_it(module, *args, **kwargs)
        borders = run.borders(call)
        received, put_in = taken_apart((args, kwargs))
        there = look.calls[look.matches[call]]
        args, kwargs = put_in(handed_on(received, unpacked(there.inputs)[0], borders.inputs, borders.around == at))
        given, put_out = taken_apart(run_it(module, *args, **kwargs))
        return put_out(handed_on(given, there.outputs, borders.outputs, call == at))

    def handed_on(lanes: list[Any], theirs: dict[str, np.ndarray], pairs: list[Pair], noted: bool) -> list[Any]:
        def change(ours: list[Any]) -> list[Any]:
            if noted and get_opaque_trace_state() == home[0]:
                for pair in pairs:
                    wrong.append(ours[pair.index])
                    order.append((pair, theirs[pair.name]))
            return with_theirs(ours, theirs, pairs)

        return in_all_lanes(lanes, change)

    steps: list[Step] = []

    def visit(operation: Operation, given: list[Any], wide: Run) -> list[Any]:
        check(limit)
        results = wide(given)
        steps.append(Step(operation, given, results))
        return results

    with jax.disable_jit():
        outputs = Graph(look.port, look.question, through, beside=lambda: list(wrong)).evaluate(visit, opened=True)
    values = outputs[len(outputs) - len(wrong) :]
    off = [value for value, (pair, right) in zip(values, order, strict=True) if _is_off(pair, np.asarray(value), right)]
    return steps, off


def _is_off(pair: Pair, value: np.ndarray, right: np.ndarray) -> bool:
    if value.shape != pair.layout.shape:
        return True
    return not difference(pair.layout.to_reference(value), right).equal
