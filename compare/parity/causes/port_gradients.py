"""The port's way through a call, with all gradients: which each value has, which part of it each use gives, and what is
wrong at the borders where some of them are made right."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...port_program import starts
from ...trees import is_floating
from ..inside.borders import Backward, Seen
from ..inside.calls import CallId, is_inside
from ..inside.hooking import BORDER, kept_in_memory
from ..inside.localise import named_border
from ..inside.port_backward import BackwardPass
from .first_line import MOVING
from .graph import Graph, Operation, Run
from .limit import Limit, check
from .port_way import STOP
from .values import LARGEST

if TYPE_CHECKING:
    from ..inside.localise import Look

Wrong = set[tuple[str, str, CallId | None]]
Key = tuple[int, int]  # the number of an operation, and which of its results


@dataclass(frozen=True)
class Use:
    """What is given to the operation of this number, in this place."""

    number: int
    place: int
    operation: Operation = field(compare=False)


class Spot(NamedTuple):
    """A line of the port, an operation there, and in which place that is given a value."""

    source: str
    name: str
    place: int

    def __str__(self) -> str:
        return self.source if self.name in (STOP, *MOVING) else f"{self.source} ({self.name})"


class PortGradients:
    """The port when each module has the reference's inputs, outputs and gradients, operation by operation.

    Args:
      look: in which a module goes wrong backward alone.
      at: the port's call of it.
      limit: of the first run.

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
        self.uses: dict[Key, list[Use]] = defaultdict(list)
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

    def is_of_use(self, use: Use) -> bool:
        made = [key for key in self.made_by(use) if key in self.values]
        return not made or not self.dead.issuperset(made)

    @staticmethod
    def made_by(use: Use) -> Iterator[Key]:
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
            if self.is_own(use.operation) and not stops(use.operation):
                yield from (each for each in self.made_by(use) if each in self.values)

    def made_from(self, key: Key) -> list[Key]:
        """The values that what makes one is given, but at a border, where it begins anew."""
        return self._given.get(key[0], [])

    def of_uses(self, keys: Sequence[Key], limit: Limit) -> dict[Use, np.ndarray]:
        """Of the gradients of these values, the part that each of their uses gives; of one that stops the gradient,
        the part that it would give."""
        wanted = {(use.operation.number, use.place): use for key in keys for use in self.uses[key]}
        found: dict[Use, np.ndarray] = {}

        def used(operation: Operation, place: int, x: Any) -> Any:
            use = wanted.get((operation.number, place))
            if use is None:
                return x
            return _tapped(x, functools.partial(_add, found, use), ends=stops(operation))

        opened = [use.number for use in wanted.values() if stops(use.operation)]
        self._run(limit, lambda key, x: x, used, opened)
        return found

    def wrong_with(
        self,
        right: Callable[[Key], np.ndarray | None],
        stopped: Collection[Spot],
        opened: Collection[Spot],
        limit: Limit,
    ) -> Wrong:
        """What is wrong of the gradients when some are made right.

        Args:
          right: gives what the gradient of a value becomes; None for itself.
          stopped, opened: where it is stopped, and where it is not, though the port does.
          limit: of this run.
        """
        uses = {(use.number, use.place): spot_of(use) for uses in self.uses.values() for use in uses}
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
            self.uses[key].append(Use(operation.number, place, operation))
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
        return self.look.holders.path(name) == self.at.path if place is None else place == self.at


def spot_of(use: Use) -> Spot:
    """Where the operation of a use stands."""
    return Spot(use.operation.source, use.operation.eqn.primitive.name, use.place)


def stops(operation: Operation) -> bool:
    """Whether no gradient goes back through it."""
    return bool(operation.eqn.primitive.name == STOP)


def _tapped(
    x: Any,
    gradient: Callable[[np.ndarray], None],
    value: Callable[[np.ndarray], None] | None = None,
    *,
    ends: bool = False,
) -> Any:
    """The same, whose value and gradient are told where a gradient goes through it; `ends` hands none on."""

    @jax.custom_vjp
    def tap(x: jax.Array) -> jax.Array:
        return x

    def fwd(x: jax.Array) -> tuple[jax.Array, None]:
        if value is not None:
            value(np.asarray(x))
        return x, None

    def bwd(_: None, reached: jax.Array) -> tuple[jax.Array]:
        gradient(np.asarray(reached))
        return (jnp.zeros_like(reached) if ends else reached,)

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
