"""Numbers that a call is handed as arguments, such as a time or a scale: Python's, or arrays of no axis."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from ..yardstick import difference
from .borders import Forward, Seen, going_wrong
from .calls import Call, CallId

MOST = 4  # arguments of one module, one by one


def numbers_of(function: Callable[..., Any], args: Any, kwargs: Any) -> dict[str, float]:
    """By the names of its parameters, the floats that a function is given."""
    return {name: float(value) for name, value in _bound(function, args, kwargs).items() if _is_number(value)}


class HandedNumbers:
    """Numbers of one name that the port and the reference hand to a module and its counterpart."""

    def __init__(self) -> None:
        self._others: dict[str, set[str]] = {}  # by module, names of those that are not the reference's
        self._right: dict[str, set[str]] = {}  # of these, where the module is right with the reference's

    def settled(self, found: Forward, run: Callable[[], Forward]) -> Forward:
        """A run with the reference's numbers in place of others where a module that goes wrong is right with those:
        with all of them, or with one. A number of one name may mean something else.

        Args:
          found: the run with the port's own.
          run: makes it anew.
        """
        wrong = going_wrong(found[0])
        choices = {
            path: [names, *({name} for name in sorted(names)[:MOST] if len(names) > 1)]
            for path, names in self._others.items()
            if path in wrong
        }
        right: dict[str, set[str]] = {}
        for number in range(max(map(len, choices.values()), default=0)):
            tried = {path: each[number] for path, each in choices.items() if path not in right and number < len(each)}
            self._right = {**right, **tried}
            found = run()
            wrong = going_wrong(found[0])
            right.update({path: names for path, names in tried.items() if path not in wrong})
            if right.keys() == choices.keys():
                break
        if self._right != right:
            self._right = right
            found = run()
        return found

    def apart(
        self, call: Call, module: nnx.Module, at: CallId, around: CallId | None, args: Any, kwargs: Any
    ) -> Iterator[Seen]:
        """Notes those that are not the reference's; gives them where the module is right with the reference's."""
        ours = numbers_of(module.__call__, args, kwargs) if call.numbers else {}
        for name, wanted in call.numbers.items():
            if name in ours and not difference(np.asarray(ours[name]), np.asarray(wanted)).equal:
                self._others.setdefault(at.path, set()).add(name)
                if name in self._right.get(at.path, ()):
                    yield Seen(at, around, "received", name, np.asarray(ours[name]), np.asarray(wanted))

    def given(self, call: Call, module: nnx.Module, at: CallId, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The arguments, with the reference's numbers where the module is right with those alone."""
        if at.path not in self._right:
            return args, kwargs
        names = self._right[at.path] & numbers_of(module.__call__, args, kwargs).keys()
        return _with_numbers(module.__call__, args, kwargs, {name: call.numbers[name] for name in names})


def _with_numbers(
    function: Callable[..., Any], args: Any, kwargs: Any, numbers: Mapping[str, float]
) -> tuple[Any, Any]:
    """The arguments with these floats in the places of the function's own."""
    bound = inspect.signature(function).bind(*args, **kwargs)
    for name, value in numbers.items():
        usual = bound.arguments[name]
        bound.arguments[name] = value if isinstance(usual, float) else jnp.asarray(value, usual.dtype)
    return bound.args, bound.kwargs


def _bound(function: Callable[..., Any], args: Any, kwargs: Any) -> dict[str, Any]:
    try:
        return dict(inspect.signature(function).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):  # a built-in, or what takes its arguments in a way of its own
        return {}


def _is_number(value: Any) -> bool:
    if isinstance(value, jax.core.Tracer):
        return False
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return value.ndim == 0 and value.dtype.kind == "f"
    return isinstance(value, float)
