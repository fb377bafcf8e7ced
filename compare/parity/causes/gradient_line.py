"""The line of a port whose gradient is not the reference's, where its values are, and no known difference explains it.

Every value of the port's that the reference has, too, has a gradient on both sides. Back from what is wrong, towards
the model's outputs, this comes to a value whose gradient is wrong while that of all which is made of it is right: the
lines that use it there give it another gradient than the reference's do.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.utils import _pytree as pytree

from graphmode.weights import as_numpy

from ...port_program import starts
from ...report.records import Astray, Cause, Divergence
from ...trees import is_floating
from ..inside.borders import Backward, Seen
from ..inside.calls import CallId, is_inside
from ..inside.hooking import BORDER, kept_in_memory
from ..inside.localise import named_border
from ..inside.port_backward import BackwardPass
from .change import Change, Site
from .first_line import MOVING
from .graph import Graph, Operation, Run
from .limit import Limit
from .replay import Replay
from .sites import source
from .values import LARGEST, Laid, Pairs
from .ways import LateError, check

if TYPE_CHECKING:
    from ..inside.localise import Look

MOST_LINES = 3
WITHIN = 1e-9  # of itself and of the largest of the model, in which a gradient is the reference's
STOP = "stop_gradient"
GRADIENTS = ("received_cotangent", "input_gradient", "parameter_gradient")
MOST_ENDS = 8  # values, the last ones, whose uses are looked into
MOST_STOPS = 12  # of the gradient, that are tried one by one
HOW = ("stops", "through", "differs")
SAYS = {
    "stops": "stops the gradient where the reference's goes on",
    "through": "lets the gradient through where the reference's does not go",
}
FIXES = {
    "stops": "leave jax.lax.stop_gradient out there",
    "through": "write jax.lax.stop_gradient(x) of what is used there",
}
Wrong = set[tuple[str, str, CallId | None]]
Key = tuple[int, int]  # the number of an operation, and which of its results


@dataclass(frozen=True)
class _Use:
    """What is given to the operation of this number, in this place."""

    number: int
    place: int
    operation: Operation = field(compare=False)


class _Theirs(NamedTuple):
    """A value of the reference, its gradient, None where it takes none, and the line that makes it; `is_again` where
    that is given the value, as one that lays it otherwise is; and its place among all of them."""

    value: np.ndarray
    gradient: np.ndarray | None
    source: str = ""
    is_again: bool = False
    place: int = 0


class _Spot(NamedTuple):
    """A line of the port, an operation there, and in which place that is given a value."""

    source: str
    name: str
    place: int

    def __str__(self) -> str:
        return self.source if self.name in (STOP, *MOVING) else f"{self.source} ({self.name})"


class _Told(NamedTuple):
    """What the port does to a gradient: it `stops` it, lets it `through`, or it `differs` otherwise; where, and the
    line of the reference that makes the value, if it is known."""

    how: Literal["stops", "through", "differs"]
    spots: tuple[_Spot, ...]
    reference: str


def astray_backward(
    look: Look, divergence: Divergence, deadline: float, *, seconds: float
) -> tuple[Astray | None, Cause | None]:
    """Where a port that is right forward gives another gradient, and why, if a gradient is stopped there, or is not;
    None where that cannot be told. All that is off in the module is right, or less of it wrong, when the gradient is
    made right there, and a cause is told where all is.

    Args:
      look: in which the divergence was found.
      divergence: of a module that has a counterpart, and whose gradients alone are off.
      deadline: of `time.monotonic`, by when it is over in any case.
      seconds: that it may take, as `Limit` counts them.
    """
    at = CallId(divergence.module, divergence.call)
    alone = all(finding.what in GRADIENTS for finding in divergence.findings)
    if divergence.outside or not alone or at not in look.run.forced or look.question.mode != "forward_backward":
        return None, None
    with contextlib.suppress(LateError):
        return _Search(look, at, Limit(seconds, deadline)).found()
    return None, None


class _Search:
    def __init__(self, look: Look, at: CallId, limit: Limit):
        self.look, self.at, self.limit = look, at, limit
        self.theirs = [each._replace(place=i) for i, each in enumerate(_reference(look, at))]
        self.port = _Port(look, at, limit)
        self.pairs = Pairs([each.value for each in self.theirs])
        sizes = [np.abs(x).max(initial=0.0) for x in self.port.gradients.values()]
        self.within = WITHIN * max(filter(math.isfinite, sizes), default=0.0)
        self._off_by: dict[Key, list[np.ndarray]] = {}
        self._matches: dict[Key, list[tuple[_Theirs, Laid]]] = {}

    def found(self) -> tuple[Astray | None, Cause | None]:
        told, left = self._mended()
        kinds = {each.how for each in told}
        if not told:
            return None, None
        how = told[0].how if len(kinds) == 1 else "differs"
        lines = list(dict.fromkeys(str(spot) for each in told for spot in each.spots))[:MOST_LINES]
        reference = list(dict.fromkeys(each.reference for each in told if each.reference))[:MOST_LINES]
        found = Astray(port=lines, reference=reference, gradient=how)
        if left or how == "differs":
            return found, None
        line = reference[0] if reference else ""
        return found, Cause(id="stop-gradient", says=SAYS[how], fix=FIXES[how], residual=0.0, reference=line)

    def _mended(self) -> tuple[list[_Told], Wrong]:
        """What the port does at the ends of what is wrong, as far as less is wrong without it, and what still is."""
        wrong = self.port.wrong
        if not wrong:
            return [], wrong
        told, left = self._mended_at_ends(wrong)
        if told and all(each.how != "differs" for each in told):
            return told, left
        stops = {_spot(use): None for uses in self.port.uses.values() for use in uses if _stops(use.operation)}
        for spot in list(stops)[:MOST_STOPS]:  # of what the reference does not have
            stopped = [_Told("stops", (spot,), "")]
            without = self._wrong_without(stopped)
            if without < wrong and without <= left:
                return stopped, without
        return told, left

    def _mended_at_ends(self, wrong: Wrong) -> tuple[list[_Told], Wrong]:
        ends = sorted(filter(self._is_last, self.port.inside), reverse=True)[:MOST_ENDS]
        if not ends:
            return [], wrong
        by_use = self.port.of_uses([each for key in ends for each in self._laid_otherwise(key)], self.limit)
        told = [each for key in ends if (each := self._told(key, by_use)).spots]
        told = list(dict.fromkeys(told))
        left = self._wrong_without(told)
        if not left < wrong:  # some are none: values that are like others by chance
            told = [each for each in told if self._wrong_without([each]) <= wrong]
            left = self._wrong_without(told) if told else wrong
        if not left < wrong:
            return [], wrong
        for each in sorted(told, key=lambda each: each.how != "differs"):
            others = [other for other in told if other is not each]
            if others and self._wrong_without(others) <= left:
                told = others
        return told, left

    def _wrong_without(self, told: Sequence[_Told]) -> Wrong:
        """What is wrong of the gradients where the port does none of this, wherever it runs these lines."""
        spots = {how: {spot for each in told if each.how == how for spot in each.spots} for how in HOW}

        def right(key: Key) -> np.ndarray | None:
            if not any(_spot(use) in spots["differs"] for use in self.port.uses[key]):
                return None
            wanted = self._wanted(key)
            return wanted[0] if wanted else None

        return self.port.wrong_with(right, spots["through"], spots["stops"], self.limit)

    def _is_last(self, key: Key) -> bool:
        """Whether the gradient of a value is wrong, and of nothing that is made of it."""
        return self._is_wrong(key) and not any(self._is_wrong(each) for each in self._after(key))

    def _is_wrong(self, key: Key) -> bool:
        return bool(self._off(key))

    def _after(self, key: Key) -> Iterator[Key]:
        """What is made of a value, through what the reference does not have."""
        waiting, seen = [key], {key}
        while waiting:
            check(self.limit)
            for made in self.port.made_of(waiting.pop()):
                if made not in seen:
                    seen.add(made)
                    yield made
                    if not self._wanted(made):
                        waiting.append(made)

    def _known(self, key: Key) -> list[tuple[_Theirs, Laid]] | None:
        """The reference's values that are this one, and how their gradients lie in it; None where there are none."""
        if key not in self._matches:
            check(self.limit)
            value = self.port.values.get(key)
            pairs = [] if value is None else self.pairs.of(value)
            self._matches[key] = [(self.theirs[i], laid) for i, laid in pairs]
        return self._matches[key] or None

    def _off(self, key: Key) -> list[np.ndarray]:
        """By how much the gradient of a value is another one than that of each value that is it in the reference; by
        nothing where it is one of these, or where the reference does not have the value."""
        if key not in self._off_by:
            self._off_by[key] = self._differences(key)
        return self._off_by[key]

    def _differences(self, key: Key) -> list[np.ndarray]:
        own = self.port.gradient(key)
        off = [own - wanted for wanted in self._wanted(key)]
        return [] if any(self._are_alike(x, np.zeros_like(x)) for x in off) else off

    def _wanted(self, key: Key) -> list[np.ndarray]:
        """The gradients that a value may have, the likeliest first; none where the reference does not have it, or it is
        one laid otherwise, which has a part of that one's."""
        known = self._known(key)
        if known is None or key not in self._roots.get(self._places(key), ()):
            return []
        taken = [(each, laid(each.gradient)) for each, laid in known if each.gradient is not None]
        if len(self._roots[self._places(key)]) == 1:  # it stands for all of them
            once = [gradient for each, gradient in taken if not each.is_again]
            taken = taken if not once else [(known[0][0], sum(once[1:], once[0]))]
        return _sums([gradient for _, gradient in taken]) or [np.zeros_like(self.port.values[key])]

    @functools.cached_property
    def _roots(self) -> dict[tuple[int, ...], list[Key]]:
        """By the places of the values that they are in the reference, values of the port's that it makes of others."""
        found: dict[tuple[int, ...], list[Key]] = {}
        for key in self.port.inside:
            places = self._places(key)
            if places and places not in map(self._places, self.port.made_from(key)):
                found.setdefault(places, []).append(key)
        return found

    def _places(self, key: Key) -> tuple[int, ...]:
        """Those of the reference's values that a value is."""
        return tuple(each.place for each, _ in self._known(key) or ())

    def _is_all(self, part: np.ndarray, off: list[np.ndarray]) -> bool:
        """Whether a part of a gradient is all that is off; of the same elements in another shape."""
        return any(x.size == part.size and self._are_alike(x, part.reshape(x.shape)) for x in off)

    def _are_alike(self, a: np.ndarray, b: np.ndarray) -> bool:
        with np.errstate(invalid="ignore"):
            return bool((np.abs(a - b) <= self.within + WITHIN * np.abs(b)).all())

    def _laid_otherwise(self, key: Key) -> list[Key]:
        """A value, and what is made of it that is the same one: another shape of it, say."""
        found = [key]
        for each in found:
            made = (one for one in self.port.made_of(each) if self._places(one) == self._places(key))
            found += [one for one in made if one not in found]
        return found

    def _told(self, key: Key, by_use: Mapping[_Use, np.ndarray]) -> _Told:
        off, known = self._off(key), self._known(key) or []
        every = [use for one in self._laid_otherwise(key) for use in self.port.uses[one]]
        uses = [use for use in every if use.operation.source and self.port.is_of_use(use)]
        stops = [use for use in uses if _stops(use.operation) and use in by_use]
        taken = {each.gradient is not None: each.source for each, _ in reversed(known)}
        for use in stops:
            if self._is_all(-by_use[use], off):
                return _Told("stops", (_spot(use),), taken.get(True, ""))
        for use in uses:
            if use in by_use and use not in stops and self._is_all(by_use[use], off):
                return _Told("through", (_spot(use),), taken.get(False, ""))
        own = [use for use in self.port.uses[key] if use in uses and use not in stops]
        others = [_spot(use) for use in own if self.port.is_own(use.operation)]
        return _Told("differs", tuple(dict.fromkeys(others)), taken.get(True, ""))


def _spot(use: _Use) -> _Spot:
    return _Spot(use.operation.source, use.operation.eqn.primitive.name, use.place)


def _sums(gradients: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Of the gradients of values that are one value in a port: each, of any two, and of all."""
    different: list[np.ndarray] = []
    for each in gradients:
        if not any(np.allclose(each, other, rtol=WITHIN, atol=0) for other in different):
            different.append(each)
    pairs = [a + b for i, a in enumerate(different) for b in different[:i]]
    return [*different, *pairs, *([sum(different[1:], different[0])] if len(different) > 2 else [])]


def _reference(look: Look, at: CallId) -> list[_Theirs]:
    """The floating values that the reference has in the counterpart of a call."""
    forced = {look.matches[call] for call in look.run.forced}
    there = look.calls[look.matches[at]]
    replay = Replay(look.judge.module, look.calls, there.id, forced, backward=True)
    made: list[tuple[_Theirs, list[np.ndarray]]] = []

    def note(site: Site) -> None:
        results = site.result if isinstance(site.result, tuple | list) else [site.result]
        for x in results:
            if isinstance(x, torch.Tensor) and x.is_floating_point() and x.numel() <= LARGEST:
                value, reached = as_numpy(x.detach().to_dense().clone()), list[np.ndarray]()
                if x.requires_grad:
                    x.register_hook(functools.partial(_keep, reached))
                given = [each for each in pytree.tree_leaves((site.args, site.kwargs)) if each is not x]
                again = any(isinstance(each, torch.Tensor) and _are_of_same_elements(each, x) for each in given)
                gradient = np.zeros_like(value) if x.requires_grad else None
                made.append((_Theirs(value, gradient, source(site), again), reached))

    evidence = replay.run(Change(), note=note)
    found = [each._replace(gradient=sum(reached[1:], reached[0])) if reached else each for each, reached in made]
    for name, value in there.inputs.items():
        if value.dtype.kind == "f":
            found.append(_Theirs(value, evidence.get(("input_gradient", name))))
    if sum(call.path == there.id.path for call in look.calls) == 1:
        inside = tuple(f"{path}." for path in replay.children)
        own = {name: x for name, x in replay.parameters.items() if not replay.full(name).startswith(inside)}
        for name, parameter in own.items():
            gradient = evidence.get(("parameter_gradient", replay.full(name)))
            found.append(_Theirs(as_numpy(parameter.detach().to_dense()), gradient))
    for child in (look.calls[id] for ids in replay.children.values() for id in ids):
        for name, value in child.outputs.items():
            if value.dtype.kind == "f":
                gradient = evidence.get(("received_cotangent", f"{name} of {child.id}"))
                again = any(np.array_equal(value, each) for each in child.inputs.values())
                found.append(_Theirs(value, gradient, is_again=again))
    return found


@torch.no_grad()
def _are_of_same_elements(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.numel() != b.numel() or not a.is_floating_point():
        return False
    return torch.allclose(a.flatten().sort()[0].to(b), b.flatten().sort()[0], rtol=WITHIN, atol=0)


def _keep(reached: list[np.ndarray], gradient: torch.Tensor) -> None:
    reached.append(as_numpy(gradient.detach().to_dense().clone()))


class _Port:
    """The port when each module has the reference's inputs, outputs and gradients, operation by operation.

    Attributes:
      values: the floating values that a gradient can go through, by what makes them; -1 of the model's own.
      gradients: of those that one reaches.
      uses: by value, what is given it.
      inside: the values that the module uses, and something comes of.
      dead: those of which nothing comes.
      wrong: what is wrong of the gradients.
    """

    def __init__(self, look: Look, at: CallId, limit: Limit):
        self.look, self.at = look, at
        self.values: dict[Key, np.ndarray] = {}
        self.gradients: dict[Key, np.ndarray] = {}
        self.uses: dict[Key, list[_Use]] = defaultdict(list)
        self._others = {call.path for call in look.run.forced if call.path != at.path and is_inside(call.path, at.path)}
        self._seen: dict[Any, Seen] = {}  # at the borders, in the first run
        self._given: dict[int, list[Key]] = defaultdict(list)  # by the number of an operation
        self._made: dict[int, Key] = {}  # by the identity of a value
        self._back = BackwardPass(look.run, look.matches, look.calls)
        with jax.disable_jit(), kept_in_memory():
            self._graph = Graph(look.port, look.question, self._back.through, with_heads=True)

        def made(key: Key, x: Any) -> Any:
            return _tapped(x, functools.partial(_add, self.gradients, key), functools.partial(_set, self.values, key))

        self.wrong = self._run(limit, made, self._note)
        self.dead = self._dead()
        inside = (key for key in self.values if any(self.is_own(use.operation) for use in self.uses[key]))
        self.inside = [key for key in inside if key not in self.dead]

    def _dead(self) -> set[Key]:
        """The values of which nothing comes: no gradient reaches them, and they stop none."""
        dead: set[Key] = set()
        for key in sorted(self.values, reverse=True):
            made = [[each for each in self.made_by(use) if each in self.values] for use in self.uses[key]]
            if key not in self.gradients and all(results and dead.issuperset(results) for results in made):
                dead.add(key)
        return dead

    def is_of_use(self, use: _Use) -> bool:
        made = [key for key in self.made_by(use) if key in self.values]
        return not made or not self.dead.issuperset(made)

    @staticmethod
    def made_by(use: _Use) -> Iterator[Key]:
        return ((use.number, i) for i in range(len(use.operation.eqn.outvars)))

    def gradient(self, key: Key) -> np.ndarray:
        return self.gradients[key] if key in self.gradients else np.zeros_like(self.values[key])

    def is_own(self, operation: Operation) -> bool:
        """Whether it is in the module, and in none inside that hands on what is the reference's."""
        path = operation.module
        if path == BORDER:
            return False
        return is_inside(path, self.at.path) and not any(is_inside(path, other) for other in self._others)

    def made_of(self, key: Key) -> Iterator[Key]:
        """The values that operations of the module make of one, where a gradient goes back through them."""
        for use in self.uses[key]:
            if self.is_own(use.operation) and not _stops(use.operation):
                yield from (each for each in self.made_by(use) if each in self.values)

    def made_from(self, key: Key) -> list[Key]:
        """The values that what makes one is given, but at a border, where it begins anew."""
        return self._given.get(key[0], [])

    def of_uses(self, keys: Sequence[Key], limit: Limit) -> dict[_Use, np.ndarray]:
        """Of the gradients of these values, the part that each of their uses gives; of one that stops the gradient,
        the part that it would give."""
        wanted = {(use.operation.number, use.place): use for key in keys for use in self.uses[key]}
        found: dict[_Use, np.ndarray] = {}

        def used(operation: Operation, place: int, x: Any) -> Any:
            use = wanted.get((operation.number, place))
            if use is None:
                return x
            return _tapped(x, functools.partial(_add, found, use), stops=_stops(operation))

        opened = [use.number for use in wanted.values() if _stops(use.operation)]
        self._run(limit, lambda key, x: x, used, opened)
        return found

    def wrong_with(
        self,
        right: Callable[[Key], np.ndarray | None],
        stopped: Collection[_Spot],
        opened: Collection[_Spot],
        limit: Limit,
    ) -> Wrong:
        """What is wrong of the gradients when some are made right.

        Args:
          right: gives what the gradient of a value becomes; None for itself.
          stopped, opened: where it is stopped, and where it is not, though the port does.
          limit: of this run.
        """
        uses = {(use.number, use.place): _spot(use) for uses in self.uses.values() for use in uses}
        going_on = [number for (number, _), spot in uses.items() if spot in opened]
        reached: list[Any] = []

        def made(key: Key, x: Any) -> Any:
            gradient = right(key) if key in self.values else None
            if gradient is None:
                return x
            reached.append(_replaced(x, gradient))
            return reached[-1]

        def used(operation: Operation, place: int, x: Any) -> Any:
            return jax.lax.stop_gradient(x) if uses.get((operation.number, place)) in stopped else x

        return self._run(limit, made, used, going_on, reached)

    def _note(self, operation: Operation, place: int, x: Any) -> Any:
        key = self._made.get(id(x))
        if key is not None:
            self.uses[key].append(_Use(operation.number, place, operation))
            if operation.module != BORDER:
                self._given[operation.number].append(key)
        return x

    def _run(
        self,
        limit: Limit,
        made: Callable[[Key, Any], Any],
        used: Callable[[Operation, int, Any], Any],
        opened: Collection[int] = (),
        reached: list[Any] | None = None,
    ) -> Wrong:
        """Runs it forward and backward; gives what is wrong of the gradients of the module.

        Args:
          limit: of this run.
          made: gives what stands for a value that has been made.
          used: gives what stands for a value that an operation is given.
          opened: the numbers of the operations that stop no gradient, though they do.
          reached: what the backward pass comes to in any case; it is filled as the port runs.

        Raises:
          LateError: where the time is over before.
        """
        self._made.clear()
        self._back.seen.clear()
        graph, program, side = self._graph, self.look.run.program, self.look.port
        kept: list[Any] = []  # or another could take the identity of one

        def known(key: Key, x: Any) -> Any:
            if not is_floating(x) or x.size > LARGEST:
                return x
            x = made(key, x)
            self._made[id(x)] = key
            kept.append(x)
            return x

        def visit(operation: Operation, given: list[Any], wide: Run) -> list[Any]:
            check(limit)
            taken = [used(operation, i, x) for i, x in enumerate(given)]
            results = taken if operation.number in opened else wide(taken)
            return [known((operation.number, i), x) for i, x in enumerate(results)]

        def forward(trained: list[Any]) -> tuple[list[Any], list[Any]]:
            args = list(graph.args)
            for place, x in zip(places, trained, strict=True):
                args[place] = known((-1, place), x)
            heads = graph.evaluate(visit, opened=True, args=args, whole_rules=True)
            return heads, [jnp.sum(x) for x in reached or ()]

        places = [i for i, x in enumerate(graph.args) if is_floating(x) and not graph.is_state(i)]
        with jax.disable_jit(), side.context(), jax.enable_x64(True):
            (heads, sums), pull = jax.vjp(forward, [jnp.asarray(graph.args[i], jnp.float64) for i in places])
            (found,) = pull((starts(heads, self.look.run.batch.cotangents), [jnp.zeros_like(x) for x in sums]))
            jax.effects_barrier()
            trained, structure = jax.tree.flatten(program.params)
            by_parameters = jax.tree.unflatten(structure, found[: len(trained)])
            by_name = side.named_gradients(self.look.question.mode, by_parameters)
        seen = {named_border(each): each for each in self._back.seen}
        none = (replace(each, port=np.zeros_like(each.port)) for key, each in self._seen.items() if key not in seen)
        wrong = self.look.wrong_gradients(Backward([*self._back.seen, *none], by_name, {}))
        self._seen = self._seen or seen
        return {each for each in wrong if self._is_of_it(*each)}

    def _is_of_it(self, what: str, name: str, place: CallId | None) -> bool:
        return self.look.holder(name) == self.at.path if place is None else place == self.at


def _stops(operation: Operation) -> bool:
    return bool(operation.eqn.primitive.name == STOP)


def _tapped(
    x: Any,
    gradient: Callable[[np.ndarray], None],
    value: Callable[[np.ndarray], None] | None = None,
    *,
    stops: bool = False,
) -> Any:
    """The same, whose value and gradient are told where a gradient goes through it; `stops` hands none on."""

    @jax.custom_vjp
    def tap(x: jax.Array) -> jax.Array:
        return x

    def fwd(x: jax.Array) -> tuple[jax.Array, None]:
        if value is not None:
            value(np.asarray(x))
        return x, None

    def bwd(_: None, reached: jax.Array) -> tuple[jax.Array]:
        gradient(np.asarray(reached))
        return (jnp.zeros_like(reached) if stops else reached,)

    tap.defvjp(fwd, bwd)
    return tap(x)


def _replaced(x: Any, gradient: Any) -> Any:
    """The same with another gradient."""

    @jax.custom_vjp
    def replaced(x: jax.Array) -> jax.Array:
        return x

    replaced.defvjp(lambda x: (x, None), lambda _, reached: (jnp.asarray(gradient, reached.dtype),))
    return replaced(x)


def _add(found: dict[Any, np.ndarray], key: Any, gradient: np.ndarray) -> None:
    found[key] = found[key] + gradient if key in found else gradient


def _set(found: dict[Any, np.ndarray], key: Any, value: np.ndarray) -> None:
    found[key] = value
