"""Modules whose inner values are computed again in the backward pass instead of being kept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
from flax import nnx


@contextmanager
def rematerialised(model: nnx.Module, pattern: str | None) -> Iterator[None]:
    """Within it, the modules whose dotted path matches run under `nnx.remat`, buffers and dropout keys included.

    Where a module and one inside of it match, the outer one counts. The class's `__call__` is another one meanwhile.

    Args:
      model: whose modules are meant.
      pattern: a regular expression, matched from the start of a path to its end: `r"encoder\\.layers\\.\\d+"`. `""` is
        the model itself; None changes nothing.

    Raises:
      TypeError: for a pattern that is no string.
      ValueError: for one that is no regular expression, or matches no module that is called.
    """
    if pattern is None:
        yield
        return
    check_pattern("remat", pattern)
    paths = {".".join(map(str, path)): module for path, module in nnx.iter_modules(model, graph=True)}
    chosen = [module for path, module in paths.items() if re.fullmatch(pattern, path) and callable(module)]
    if not chosen:
        known = ", ".join(repr(path) for path in list(paths)[:8])
        raise ValueError(f"remat is {pattern!r}, which matches the path of no module that is called; there are {known}")
    owners = {next(c for c in type(module).__mro__ if "__call__" in vars(c)) for module in chosen}
    usual = {owner: vars(owner)["__call__"] for owner in owners}
    wanted = {id(module) for module in chosen}
    running: list[int] = []

    def wrapped(original: Any) -> Any:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if id(self) not in wanted or id(self) in running:
                return original(self, *args, **kwargs)

            given, treedef = jax.tree.flatten((args, kwargs), is_leaf=_has_state)
            own = {i: leaf for i, leaf in enumerate(given) if _has_state(leaf)}  # the others need no care of NNX's

            def run(module: Any, own: dict[int, Any]) -> Any:
                running.append(id(module))
                args, kwargs = jax.tree.unflatten(treedef, [own.get(i, leaf) for i, leaf in enumerate(given)])
                try:
                    return original(module, *args, **kwargs)
                finally:
                    running.pop()

            return nnx.remat(run, graph=True, graph_updates=True)(self, own)

        return call

    for owner, original in usual.items():
        owner.__call__ = wrapped(original)
    try:
        yield
    finally:
        for owner, original in usual.items():
            owner.__call__ = original


def check_pattern(name: str, pattern: Any) -> None:
    """Raises `ValueError` or `TypeError` for what is no regular expression."""
    try:
        re.compile(pattern)
    except TypeError:
        raise TypeError(f"{name} is a {type(pattern).__name__}; give a regular expression as a string") from None
    except re.error as error:
        raise ValueError(f"{name} is {pattern!r}, which is no regular expression: {error}") from None


def _has_state(leaf: Any) -> bool:
    """Whether it is a module, a variable or random-number streams, which a call may change."""
    return isinstance(leaf, nnx.Pytree | nnx.Variable)
