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

        return nnx.remat(again, graph=True, graph_updates=True)(module, own)

    with intercepted(model, through) as modules:
        if not any(re.fullmatch(pattern, path) and callable(module) for path, module in modules.items()):
            known = ", ".join(repr(path) for path in list(modules)[:8])
            raise ValueError(
                f"remat is {pattern!r}, which matches the path of no module that is called; there are {known}"
            )
        yield


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
