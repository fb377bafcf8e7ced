"""The port's way through one wrong call: every value on it, when each module has the reference's own inputs."""

from __future__ import annotations

import functools
import operator
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex
from jax.extend.core import get_opaque_trace_state

from ...trees import is_floating
from ..inside.calls import CallId
from ..inside.hooking import taken_apart, with_theirs
from ..inside.lanes import in_all_lanes
from ..inside.packed import unpacked
from ..yardstick import difference
from .graph import Graph, Operation, Run, Visit
from .limit import LateError, Limit, check
from .values import Lacking, Values

if TYPE_CHECKING:
    from ..inside.layouts import Pair
    from ..inside.localise import Look


STOP = "stop_gradient"
MOST_WRITTEN = 100  # of the port's variables, among which those of wrong buffers are looked for


class Step(NamedTuple):
    """One operation of the port, what it was given, and what it gave."""

    operation: Operation
    given: list[Any]
    results: list[Any]

    def is_of(self, operation: Operation, given: Sequence[Any]) -> bool:
        """Whether it is that operation, given the very same."""
        return self.operation.eqn is operation.eqn and all(map(operator.is_, self.given, given))


class PortWay:
    """The port when each module has the reference's inputs and hands on its outputs.

    Args:
      look: in which the call was seen.
      at: the port's call.
      limit: of its first run.

    Attributes:
      steps: its operations, in the order of their numbers.
      wrong: what is wrong at the borders of this call; what is within a loop's own trace leaves it not, and is not
        asked. With what is wrong in the buffers of its module.
      fixed: what no input and nothing that is trained makes, and from which line; of constants from none.
    """

    def __init__(self, look: Look, at: CallId, limit: Limit):
        self.look, self.at = look, at
        self.steps: list[Step] = []
        self.fixed: list[tuple[str, Any]] = []
        self._fixed: set[int] = set()  # by identity
        self._handed: list[np.ndarray] = []  # what modules were handed on, which the graph has for constants
        self._passed: list[Any] = []  # what modules are given and give, while it is traced
        self._shown: list[Any] = []  # of it, what is at the borders of this call
        self._wanted: list[tuple[Pair, np.ndarray]] = []
        self._home: list[Any] = []
        with jax.disable_jit():
            self._graph = Graph(
                look.port,
                look.question,
                self._through,
                beside=lambda: [*self._passed, *self._shown],
                with_state=True,
            )
        given, state = self._run(functools.partial(self._note, limit))
        found = self._at_borders(given)
        shown = zip(found, self._wanted, strict=True)
        self.wrong = [value for value, (pair, right) in shown if _is_off(pair, np.asarray(value), right)]
        self._written = self._wrong_leaves(state)  # the leaves of the state that are compared beside the borders
        kept = [state[leaf] for leaf in self._written]
        self.wrong += kept
        self._borders = [*found, *kept]

    def gives_the_same(self, lacking: Mapping[int, Sequence[Lacking | None]], limit: Limit) -> bool:
        """Whether nothing changes at the borders where parts of some results, by the numbers of their operations, are
        others."""

        def visit(operation: Operation, given: list[Any], wide: Run) -> list[Any]:
            check(limit)
            before = self._by_number.get(operation.number)
            results = before.results if before is not None and before.is_of(operation, given) else wide(given)
            parts = lacking.get(operation.number, [None] * len(results))
            return [
                x if p is None else jnp.asarray(p.replaced(np.asarray(x))) for x, p in zip(results, parts, strict=True)
            ]

        try:
            with np.errstate(all="ignore"):
                given, state = self._run(visit)
            borders = [*self._at_borders(given), *(state[leaf] for leaf in self._written)]
            return all(map(_are_the_same, borders, self._borders))
        except LateError:
            raise
        except Exception:  # a loop that has no end, a check that fails
            return False

    def with_zeros(self, numbers: Collection[int], limit: Limit) -> dict[int, Any]:
        """Each value, by its identity, as it is where some operations, by their numbers, give zeros."""
        found: dict[int, Any] = {}

        def visit(operation: Operation, given: list[Any], wide: Run) -> list[Any]:
            check(limit)
            results = wide(given)
            if operation.number in numbers:
                results = list(map(jnp.zeros_like, results))
            before = self._by_number.get(operation.number)
            if before is not None and before.operation.eqn is operation.eqn:
                found.update(zip(map(id, before.results), results, strict=True))
            return results

        try:
            with np.errstate(all="ignore"):
                self._run(visit)
        except LateError:
            raise
        except Exception:  # a check that fails
            return {}
        return found

    @functools.cached_property
    def _by_number(self) -> dict[int, Step]:
        return {step.operation.number: step for step in self.steps}

    def reached(self, limit: Limit) -> list[Step]:
        """The operations that a gradient may go back through, the last one first: inputs or what is trained come to
        them, and of what they give more than the state is made.

        Args:
          limit: of this run.

        Raises:
          LateError: where the time is over before.
        """
        moving: list[Step] = []
        kept: list[Any] = []  # or another could take the identity of one
        still = {id(x) for source, x in self.fixed if not source}  # what no gradient goes back through
        used: set[int] = set()

        def visit(operation: Operation, given: list[Any], wide: Run) -> list[Any]:
            check(limit)
            results = wide(given)
            if stops := operation.eqn.primitive.name == STOP:
                results = list(map(jnp.copy, results))  # what is stopped may be used beside it
            kept.extend(results)
            used.update(map(id, given))
            atoms = zip(operation.eqn.invars, given, strict=True)
            if stops or all(isinstance(atom, jex.Literal) or id(x) in still for atom, x in atoms):
                still.update(map(id, results))
            else:
                still.update(id(x) for x in results if not is_floating(x))
                moving.append(Step(operation, given, results))
            return results

        with np.errstate(all="ignore"):
            given, state = self._run(visit)
        unused = set(map(id, kept)) - used - set(map(id, state))  # as what is handed on within another trace
        alive = unused.union(map(id, given))
        reached = []
        for step in reversed(moving):
            if any(id(x) in alive and id(x) not in still for x in step.results):
                alive.update(map(id, step.given))
                reached.append(step)
        return reached

    def _at_borders(self, given: list[Any]) -> list[Any]:
        return given[len(given) - len(self._shown) :]

    def _run(self, visit: Visit) -> tuple[list[Any], list[Any]]:
        """What it gives, with what passes the borders of modules, and the leaves of the state after the call."""
        with jax.disable_jit():
            outputs = self._graph.evaluate(visit, opened=True)
        count = self._graph.state_structure.num_leaves
        return outputs[: len(outputs) - count], outputs[len(outputs) - count :]

    def _wrong_leaves(self, state: list[Any]) -> list[int]:
        """Of the state, those of which the module's wrong buffers are made."""
        look = self.look
        pairs = ((name, look.observed.buffers.get(name), x) for name, x in look.buffers.items())
        off = {name for name, wanted, x in pairs if wanted is not None and not difference(x, wanted).equal}
        off = {name for name in off if look.holders.writer(name) == self.at.path}
        if not off:
            return []
        before = self._named(state)

        def is_of_them(leaf: int) -> bool:
            other = ~np.asarray(state[leaf]) if state[leaf].dtype == bool else np.asarray(state[leaf]) + 1
            after = self._named([*state[:leaf], other, *state[leaf + 1 :]])
            return any(name in after and not np.array_equal(before[name], after[name]) for name in off & before.keys())

        held = set(map(id, self._graph.held))
        changed = ((i, x) for i, x in enumerate(state) if id(x) not in held)
        written = [i for i, x in changed if x.dtype == bool or jnp.issubdtype(x.dtype, jnp.number)]
        return [leaf for leaf in written[:MOST_WRITTEN] if is_of_them(leaf)]

    def _named(self, state: list[Any]) -> dict[str, np.ndarray]:
        tree = jax.tree.unflatten(self._graph.state_structure, state)
        return self.look.port.named_state(self.look.question.mode, tree)

    def _note(self, limit: Limit, operation: Operation, given: list[Any], wide: Run) -> list[Any]:
        check(limit)
        if not self.steps:
            handed = Values(self._handed)
            held = [value for value in self._graph.held if not handed.have_whole(value)]
            self._fixed, self.fixed = set(map(id, held)), [("", value) for value in held]
        results = wide(given)
        self.steps.append(Step(operation, given, results))
        atoms = zip(operation.eqn.invars, given, strict=True)
        if all(isinstance(atom, jex.Literal) or id(value) in self._fixed for atom, value in atoms):
            self._fixed.update(map(id, results))
            self.fixed += [(operation.source, value) for value in results]
        return results

    def _through(self, call: CallId, module: Any, run_it: Any, args: Any, kwargs: Any) -> Any:
        if not self._home:
            self._home.append(get_opaque_trace_state())
        look = self.look
        if call not in look.run.forced:
            return run_it(module, *args, **kwargs)
        borders = look.run.borders(call)
        received, put_in = taken_apart((args, kwargs))
        there = look.calls[look.matches[call]]
        inputs, outputs = (unpacked(each)[0] for each in (there.inputs, there.outputs))
        args, kwargs = put_in(self._handed_on(received, inputs, borders.inputs, borders.around == self.at))
        given, put_out = taken_apart(run_it(module, *args, **kwargs))
        return put_out(self._handed_on(given, outputs, borders.outputs, call == self.at))

    def _handed_on(self, lanes: list[Any], theirs: dict[str, np.ndarray], pairs: list[Pair], noted: bool) -> list[Any]:
        self._handed += [theirs[pair.name] for pair in pairs]

        def change(ours: list[Any]) -> list[Any]:
            if get_opaque_trace_state() == self._home[0]:
                self._passed += [ours[pair.index] for pair in pairs]
                if noted:
                    self._shown += [ours[pair.index] for pair in pairs]
                    self._wanted += [(pair, theirs[pair.name]) for pair in pairs]
            return with_theirs(ours, theirs, pairs)

        return in_all_lanes(lanes, change)


def _are_the_same(a: Any, b: Any) -> bool:
    """But for rounding: what a `logsumexp` takes off and adds again may be any number."""
    a, b = np.asarray(a), np.asarray(b)
    return np.array_equal(a, b, equal_nan=True) or (a.dtype.kind == "f" and difference(a, b).equal)


def _is_off(pair: Pair, value: np.ndarray, right: np.ndarray) -> bool:
    if value.shape != pair.layout.shape:
        return True
    return not difference(pair.layout.to_reference(value), right).equal
