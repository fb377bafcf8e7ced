"""Results that stand in memory, rather than be computed anew by every loop that reads them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import jax
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata

Static = tuple[tuple[str, Hashable], ...]


def apart(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, of which on a CPU XLA fuses nothing with what surrounds it.

    XLA's CPU backend fuses cheap operations into each loop that reads them, and computes them there once for each time
    that they are read. An optimization barrier does not prevent that: it is gone before loops are fused.

    Returns:
      `(*arrays, **static)` -> what `function` returns; `static` are hashable.
    """
    kept, called = kept_apart(function), _called(function)

    def run(*arrays: Any, **static: Hashable) -> Any:
        return lax.platform_dependent(*arrays, cpu=partial(kept, **static), default=partial(called, _items(static)))

    return run


def kept_apart(function: Callable[..., Any]) -> Callable[..., Any]:
    """`apart` for what runs on a CPU alone."""
    called = _called(function)

    def kept(*arrays: Any, **static: Hashable) -> Any:
        with set_xla_metadata(inlineable="false"):
            return called(_items(static), *arrays)

    return kept


def _called(function: Callable[..., Any]) -> Callable[..., Any]:
    @partial(jax.jit, static_argnums=0)
    def called(static: Static, *arrays: Any) -> Any:
        with set_xla_metadata(inlineable="true"):  # what `function` itself calls
            return function(*arrays, **dict(static))

    return called


def _items(static: dict[str, Hashable]) -> Static:
    return tuple(static.items())
