"""Results that stand in memory, rather than be computed anew by every loop that reads them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import jax
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata


def apart(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, of which on a CPU XLA fuses nothing with what surrounds it.

    XLA's CPU backend fuses cheap operations into each loop that reads them, and computes them there once for each time
    that they are read. An optimization barrier does not prevent that: it is gone before loops are fused.

    Returns:
      `(*arrays, **static)` -> what `function` returns; `static` are hashable.
    """

    @partial(jax.jit, static_argnums=0)
    def called(static: tuple[tuple[str, Hashable], ...], *arrays: Any) -> Any:
        with set_xla_metadata(inlineable="true"):  # what `function` itself calls
            return function(*arrays, **dict(static))

    def kept(static: tuple[tuple[str, Hashable], ...], *arrays: Any) -> Any:
        with set_xla_metadata(inlineable="false"):
            return called(static, *arrays)

    def run(*arrays: Any, **static: Hashable) -> Any:
        items = tuple(static.items())
        return lax.platform_dependent(*arrays, cpu=partial(kept, items), default=partial(called, items))

    return run
