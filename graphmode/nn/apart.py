"""Results that stand in memory, rather than be computed anew by every loop that reads them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import jax
from jax import lax
from jax.experimental.layout import Layout, with_layout_constraint
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

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
    """`apart` for what runs on a CPU alone. What it returns is row by row in memory, as what reads it expects it."""
    called = _called(lambda *arrays, **static: jax.tree.map(_row_by_row.bind, function(*arrays, **static)))

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


def _laid_out(ctx: Any, operand: Any) -> Any:
    """Left to itself, XLA lays out a gathered array with that axis first, and whoever reads it copies it."""
    context = ctx.module_context
    alone = getattr(context.axis_context, "num_devices", None) == 1
    if not alone or getattr(context.lowering_parameters, "for_export", True):
        return [operand]  # JAX exports no such constraint
    rows = Layout(tuple(range(ctx.avals_in[0].ndim)))
    return mlir.lower_fun(lambda x: with_layout_constraint(x, rows), multiple_results=False)(ctx, operand)


_row_by_row = Primitive("graphmode_row_by_row")
_row_by_row.def_impl(lambda x: x)
_row_by_row.def_abstract_eval(lambda x: x)
ad.deflinear2(_row_by_row, lambda cotangent, _: (cotangent,))
batching.defvectorized(_row_by_row)
mlir.register_lowering(_row_by_row, _laid_out)
