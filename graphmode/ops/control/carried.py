"""The body of a loop as a function of flat arrays: what it carries, what it only reads, and that the two fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from .branches import becomes
from .nnx_operands import Operands, Traced, described, rebuilt, trace


@dataclass(frozen=True)
class Carried:
    """A loop's body, traced.

    Attributes:
      given: the initial state, its arrays of the dtypes that the body keeps.
      body: of the state (and a slice), to the new state and what else each step gives.
      varying: positions in `given.arrays` of what the body changes.
    """

    given: Operands
    body: Traced
    varying: tuple[int, ...]

    @property
    def state(self) -> list[Any]:
        """Initial values of what the body changes."""
        return [self.given.arrays[i] for i in self.varying]

    @property
    def read(self) -> list[Any]:
        """What the body only reads: what it closes over, then the unchanged part of the state."""
        return [*self.body.consts, *(x for i, x in enumerate(self.given.arrays) if i not in self.varying)]

    def whole(self, read: Sequence[Any], state: Sequence[Any]) -> list[Any]:
        """All arrays of the state."""
        fixed, moving = iter(read[len(self.body.consts) :]), dict(zip(self.varying, state, strict=True))
        return [moving[i] if i in moving else next(fixed) for i in range(len(self.given.arrays))]

    def step(self, read: Sequence[Any], state: Sequence[Any], x: Sequence[Any] = ()) -> tuple[list[Any], list[Any]]:
        """The next values of what the body changes, and the other arrays that it returns."""
        outs = self.body(read[: len(self.body.consts)], *self.whole(read, state), *x)
        after = _state_of(outs, self.body, self.given)
        new = [after[i].astype(self.given.arrays[i].dtype) for i in self.varying]
        return new, outs[_plain(self.given) : self.body.results]

    def extra_avals(self) -> list[Any]:
        """Shape and dtype of the other arrays that the body returns."""
        return list(self.body.avals[_plain(self.given) : self.body.results])

    def settled(self, state: Sequence[Any]) -> Any:
        """The final state as the user knows it; NNX objects of the initial one are brought up to date."""
        whole = self.whole(self.read, state)
        self.given.update(whole, [i in self.varying for i in range(len(whole))])
        return rebuilt(self.given.layout, whole[: _plain(self.given)], self.given)[0]


def carried(body: Callable[..., tuple[Any, Any]], init: Any, name: str, *more: Any) -> Carried:
    """Traces `body(state, *more) -> (new state, anything else)`, and checks that the state keeps its form.

    Raises:
      TypeError: where structure, shape or dtype of the state change, naming the leaf.
    """
    given = Operands.of((init,), "init")
    given = dataclasses.replace(given, names=tuple(n.replace("init[0]", "init", 1) for n in given.names))
    if given.statics:
        raise TypeError(f"init holds {given.statics[0]!r}, which is no array; close over it instead of carrying it")
    # A Python number takes the dtype that the body gives it, which may change what the body gives another. Each time
    # round at least one becomes firm, so this ends.
    while True:
        traced = trace(body, given, name, *more)
        _check_structure(traced, given, name)
        after = _state_of(traced.avals, traced, given)
        firm = []
        for where, before, aval in zip(given.names, given.arrays, after, strict=True):
            old = jax.typeof(before)
            if old.shape != aval.shape or not (becomes(aval, old.dtype) or becomes(old, aval.dtype)):
                raise TypeError(
                    f"{name} changes {where} from {described(old)} to {described(aval)}; a loop carries one shape and "
                    f"dtype: cast or reshape it in {name}, or start with {described(aval)}"
                )
            strong = old.weak_type and not (aval.weak_type and aval.dtype == old.dtype)
            firm.append(jnp.array(before, aval.dtype) if strong else before)
        if all(new is old for new, old in zip(firm, given.arrays, strict=True)):
            break
        given = dataclasses.replace(given, arrays=tuple(firm))
    indices = [*range(_plain(given)), *range(traced.results, len(traced.avals))]
    varying = tuple(i for i, out in enumerate(indices) if not traced.passes(out, i))
    return Carried(given, traced, varying)


def _plain(given: Operands) -> int:
    return given.layout.kinds.count("array")


def _state_of(outs: Sequence[Any], traced: Traced, given: Operands) -> list[Any]:
    return [*outs[: _plain(given)], *outs[traced.results :]]


def _check_structure(traced: Traced, given: Operands, name: str) -> None:
    wanted, kinds = given.layout.tree.children()[0], given.layout.kinds
    got = traced.layout.tree.children()[0]
    if got != wanted:
        raise TypeError(f"{name} returns another structure than init has: init is {wanted}, and {name} returns {got}")
    if traced.layout.kinds[: len(kinds)] != kinds:
        raise TypeError(
            f"{name} returns another NNX object than it was given, or an array in place of one; change the given one "
            f"in place, as with nnx.update, and return it, or carry the state that nnx.split gives"
        )
    if any(kind != "array" for kind in traced.layout.kinds[len(kinds) :]):
        raise TypeError(f"{name} returns an NNX object outside the state; return arrays there")
