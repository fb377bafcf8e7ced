"""The ways of the port and of the reference through one wrong call: every value on either, from the same inputs."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.utils import _pytree as pytree

from graphmode.weights import as_numpy

from ..inside.calls import CallId, is_inside
from .change import Change, Site
from .computed_inside import ComputedInside
from .limit import Limit, check
from .port_way import PortWay, Step
from .replay import Replay
from .sites import instruction, source
from .values import LARGEST, Lacking, Values, cancel

if TYPE_CHECKING:
    from ..inside.localise import Look


GRAD = "grad"
MOST_PIECES = 256  # of a ragged batch
SUMS = ("add", "radd", "iadd", "sub", "subtract", "rsub", "isub", "sum")


class Made(NamedTuple):
    """One call of the reference: by which instruction, from which line, what it was given, and what it gave; and the
    numbers of Python's that it was given."""

    instruction: Any
    source: str
    given: list[np.ndarray]
    results: list[np.ndarray]
    numbers: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        return str(self.instruction[0])


class Ways:
    """Of a call of the port that has a counterpart, and goes wrong forward.

    Args:
      look: in which it was seen.
      at: the port's call.
      limit: of the port's first run.

    Attributes:
      made: the reference's function calls in the counterpart.
      port: its way; None where there are no such calls.
      steps: the port's operations, in all of its graph, when each module has the reference's inputs and hands on the
        reference's outputs.
      wrong: what is wrong at the borders of the call, of the port's values, and in what it keeps.
      fixed: what the port has whatever its inputs are, and from which line.
    """

    def __init__(self, look: Look, at: CallId, limit: Limit):
        self.look, self.at = look, at
        self.made, self._theirs = _made(look, at)
        self._joined = {_key(piece): whole for pieces, whole in joined(self.made) for piece in pieces}
        self.port = PortWay(look, at, limit) if self.made else None
        self.steps, self.wrong, self.fixed = ([], [], [])
        if self.port is not None:
            self.steps, self.wrong, self.fixed = self.port.steps, self.port.wrong, self.port.fixed

    def theirs(self, others: Sequence[Look] = ()) -> Values:
        """What the reference has, and has beside its constants in other digits."""
        also = (_made(other, self.at)[1] for other in others if self.at in other.run.forced)
        return Values(itertools.chain(self._theirs, *also))

    @functools.cached_property
    def ours(self) -> Values:
        """What the port has."""
        inside = [call.path for call in self.look.run.forced if _is_within(call.path, self.at.path)]
        return Values(_had(self.steps, inside))

    @functools.cached_property
    def own(self) -> list[Step]:
        """The operations of the module, without those inside that hand on what is the reference's."""
        inside = [call.path for call in self.look.run.forced if _is_within(call.path, self.at.path)]
        steps = (step for step in self.steps if is_inside(step.operation.module, self.at.path))
        return [step for step in steps if not any(is_inside(step.operation.module, path) for path in inside)]

    @functools.cached_property
    def own_values(self) -> Values:
        """What these make."""
        return Values(value for step in self.own for value in step.results)

    @functools.cached_property
    def maker(self) -> dict[int, Step]:
        """By the identity of a value of the port's, the operation that makes it, and does not hand it on."""
        return {id(x): step for step in self.steps for x in step.results if all(x is not each for each in step.given)}

    def descendants(self, step: Step) -> frozenset[int]:
        """The numbers of the operations that are given what comes of one."""
        come = set(map(id, step.results))
        numbers = set()
        for each in self.steps:  # those before it are given nothing of it
            if any(id(value) in come for value in each.given):
                come.update(map(id, each.results))
                numbers.add(each.operation.number)
        return frozenset(numbers)

    def gives_the_same(self, lacking: Mapping[int, Sequence[Lacking | None]], limit: Limit) -> bool:
        """Whether the port gives the same at the borders of the call where parts of some results are others.

        Args:
          lacking: those parts, of each result of operations, by their numbers.
          limit: of this run.

        Raises:
          LateError: where the time is over before.
        """
        return self.port is not None and self.port.gives_the_same(lacking, limit)

    def with_zeros(self, numbers: Collection[int], limit: Limit) -> dict[int, Any]:
        """Each of the port's values, by its identity, as it is where some operations, by their numbers, give zeros.

        Raises:
          LateError: where the time is over before.
        """
        return {} if self.port is None else self.port.with_zeros(numbers, limit)

    def never(self, limit: Limit) -> Iterator[Made]:
        """What the reference makes of what the port has, and the port never: there they part."""
        for each in self.made:
            check(limit)
            of_graph = each.name == GRAD  # what it gives hangs on more than on what it is given
            if of_graph or (each.name.strip("_") in SUMS and cancel(each.given, each.results)):
                continue
            if not all(map(self._has, each.results)) and all(map(self._has, each.given)):
                yield each

    def _has(self, value: Any) -> bool:
        if self.ours.have(value) or self.ours.have_element(value):
            return True
        whole = self._joined.get(_key(value)) if self._joined else None
        return whole is not None and self.ours.have(whole)


def ways(look: Look, at: CallId, limit: Limit) -> Ways:
    """Those of a call, found once and kept with the look.

    Raises:
      LateError: where the time is over before.
    """
    if at not in look.ways:
        look.ways[at] = Ways(look, at, limit)
    return look.ways[at]


def way_of_port(look: Look, at: CallId, limit: Limit) -> PortWay:
    """The port's alone, also where the reference calls nothing but modules.

    Raises:
      LateError: where the time is over before.
    """
    return ways(look, at, limit).port or PortWay(look, at, limit)


def _made(look: Look, at: CallId) -> tuple[list[Made], list[Any]]:
    """The reference's function calls in the counterpart of a call, and all values that it has there."""
    forced = {look.matches[call] for call in look.run.forced}
    replay = Replay(look.judge.module, look.calls, look.matches[at], forced, backward=False)
    with ComputedInside() as inside:
        made = _reference(replay)
    inputs = look.calls[look.matches[at]].inputs.values()
    wholes = [*(whole for _, whole in joined(made)), *_numbers(made)]
    return made, list(itertools.chain(inputs, _constants(replay), inside.values, wholes, *_all(made)))


def joined(made: Sequence[Made]) -> Iterator[tuple[list[np.ndarray], np.ndarray]]:
    """What an instruction gives in all turns of a loop, of as many rows as each has, one after the other, as a port may
    hold it that computes all at once; the pieces first. Of equally many rows each is a part of what the port has."""
    groups: dict[Any, list[np.ndarray]] = {}
    for each in made:
        for place, result in enumerate(each.results):
            alone = len({x.shape[1:] for x in each.results}) == 1  # as of a split
            groups.setdefault((each.instruction, result.shape[1:], 0 if alone else place), []).append(result)
    for pieces in groups.values():
        has_rows = 1 < len(pieces) <= MOST_PIECES and all(piece.ndim for piece in pieces)
        if has_rows and len(set(map(len, pieces))) > 1:
            yield pieces, np.concatenate(pieces)


def _numbers(made: Sequence[Made]) -> Iterator[np.ndarray]:
    """Those that an instruction is given in the turns of a loop, as a port may hold them that computes all at once."""
    groups: dict[Any, list[tuple[float, ...]]] = {}
    for each in made:
        groups.setdefault(each.instruction, []).append(each.numbers)
    for turns in groups.values():
        if 1 < len(turns) <= MOST_PIECES and turns[0] and len(set(map(len, turns))) == 1:
            yield from np.array(turns).T


def _key(value: np.ndarray) -> tuple[tuple[int, ...], bytes]:
    return value.shape, value.tobytes()


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
        # what is assigned to has no result: it is what it holds then
        writes = site.name == "__setitem__"
        args, result = (site.args[1:], site.args[0]) if writes else (site.args, site.result)
        given, results = (_arrays(tree) for tree in ((args, site.kwargs), result))
        if results:
            numbers = tuple(float(x) for x in args if isinstance(x, float))  # numpy's float64 is one
            found.append(Made(instruction(site), source(site), given, results, numbers))

    replay.run(Change(), note=note, forward_only=True)
    return found


def _constants(replay: Replay) -> Iterator[np.ndarray]:
    for tensor in itertools.chain(replay.module.parameters(), replay.module.buffers()):
        yield as_numpy(tensor.detach().to_dense())


def _arrays(tree: Any) -> list[np.ndarray]:
    tensors = [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor) and x.numel() <= LARGEST]
    return [as_numpy(x.detach().to_dense().clone()) for x in tensors]
