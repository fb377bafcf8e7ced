"""Modules whose inner values are computed again in the backward pass instead of being kept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
from flax import nnx

from .intercept import intercepted


@contextmanager
def rematerialised(model: nnx.Module, pattern: str | None) -> Iterator[None]:
    """Within it, the modules whose dotted path matches run under `nnx.remat`, buffers and dropout keys included.

    Args:
      model: whose modules are meant.
      pattern: a regular expression, matched from the start of a path to its end: `r"encoder\\.layers\\.\\d+"`. `""` is
        the model itself; None changes nothing.

    Raises:
      TypeError, ValueError: where it is no regular expression, or no module matches.
    """
    if pattern is None:
        yield
        return
    check_pattern("remat", pattern)

    def through(path: str, module: nnx.Module, run: Any, args: Any, kwargs: Any) -> Any:
        if re.fullmatch(pattern, path) is None:
            return run(module, *args, **kwargs)
        given, treedef = jax.tree.flatten((args, kwargs), is_leaf=_has_state)
        own = {i: leaf for i, leaf in enumerate(given) if _has_state(leaf)}  # the others need no care of NNX's

        def again(module: Any, own: dict[int, Any]) -> Any:
            args, kwargs = jax.tree.unflatten(treedef, [own.get(i, leaf) for i, leaf in enumerate(given)])
            return run(module, *args, **kwargs)

        try:
            return _checkpointed(again, module, own)
        except _OtherStructure:
            return nnx.remat(again, graph=True, graph_updates=True)(module, own)

    with intercepted(model, through) as modules:
        if not any(re.fullmatch(pattern, path) and callable(module) for path, module in modules.items()):
            known = ", ".join(repr(path) for path in list(modules)[:8])
            raise ValueError(
                f"remat is {pattern!r}, which matches the path of no module that is called; there are {known}"
            )
        yield


class _OtherStructure(Exception):
    """A call has made or removed variables, or changed what is static."""


def _checkpointed(again: Any, module: nnx.Module, own: dict[int, Any]) -> Any:
    """`nnx.remat`, which writes to the variables that the call changes alone.

    To write all of them back, as that does, is refused for those of a module that lies outside of a `vmap`, a loop or a
    branch around the call.
    """
    graphdef, state = nnx.split((module, own), graph=True)
    before = nnx.to_flat_state(state)
    changed: list[int] = []

    def pure(values: list[Any]) -> tuple[Any, list[Any]]:
        given = [variable.copy(value) for (_, variable), value in zip(before, values, strict=True)]
        paths = [path for path, _ in before]
        copies = nnx.merge(graphdef, nnx.from_flat_state(zip(paths, given, strict=True)), copy=True)
        out = again(*copies)
        after_def, after_state = nnx.split(copies, graph=True)
        after = nnx.to_flat_state(after_state)
        if after_def != graphdef or [path for path, _ in after] != paths:
            raise _OtherStructure
        now = [variable.get_raw_value() for _, variable in after]
        changed[:] = [i for i, value in enumerate(now) if value is not values[i]]
        return out, [now[i] for i in changed]

    out, now = jax.checkpoint(pure)([variable.get_raw_value() for _, variable in before])
    if changed:
        new = [(before[i][0], before[i][1].copy(value)) for i, value in zip(changed, now, strict=True)]
        nnx.update((module, own), nnx.from_flat_state(new))
    return out


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
