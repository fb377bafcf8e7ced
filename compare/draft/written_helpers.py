"""Functions that a draft has a copy of, where it needs them."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

from flax import nnx


def taking(kind: Any, rngs: nnx.Rngs) -> Any:
    """What makes a module, given `rngs` where it takes them."""
    makes = kind
    while isinstance(makes, partial):
        makes = makes.func
    is_class = isinstance(makes, type)
    parameters = inspect.signature(makes.__init__ if is_class else makes).parameters
    return partial(kind, rngs=rngs) if "rngs" in parameters else kind


def named_children(module: nnx.Module) -> list[tuple[str, nnx.Module]]:
    """The modules that a module holds, by name, in the order they came in."""
    return [(name, each) for name, each in vars(module).items() if isinstance(each, nnx.Module)]


def children(module: nnx.Module) -> list[nnx.Module]:
    """The modules that a module holds, in the order they came in."""
    return [each for each in vars(module).values() if isinstance(each, nnx.Module)]
