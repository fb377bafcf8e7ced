"""`hoisted`: a function whose closed-over arrays become an argument, so that it can run when their trace is over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax import lax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun


class Hoisted(NamedTuple):
    """A traced function.

    Attributes:
      call: `(constants, *args)` -> what the function gives.
      constants: the arrays that it closes over, without gradient.
      result: pytree of `jax.ShapeDtypeStruct`, what it gives.
    """

    call: Callable[..., Any]
    constants: list[Any]
    result: Any


def hoisted(fn: Callable[..., Any], *args: Any) -> Hoisted:
    """Traces `fn` for arguments like `args`.

    The backward of a `custom_vjp` runs when the trace of the function around it may be over, in a `scan` for one; what
    it closes over must go there as a residual.
    """
    closed, result = jax.make_jaxpr(fn, return_shape=True)(*args)
    tree = jax.tree.structure(result)

    def call(constants: list[Any], *args: Any) -> Any:
        return jax.tree.unflatten(tree, jaxpr_as_fun(ClosedJaxpr(closed.jaxpr, constants))(*jax.tree.leaves(args)))

    return Hoisted(call, [lax.stop_gradient(constant) for constant in closed.consts], result)
