"""A loss of an NNX module and its gradient in every mode of NNX; in tree mode `nnx.grad` takes floating state alone."""

from collections.abc import Callable
from typing import Any

import jax
from flax import nnx


def value_and_gradient(loss: Callable[[Any], Any], module: Any, *, jit: bool = False) -> tuple[Any, list[Any]]:
    """The loss, and its gradients with respect to the parameters in their order; `module` ends up as `loss` left it."""
    graphdef, params, rest = nnx.split(module, nnx.Param, ..., graph=True)

    def pure(params: Any, rest: Any) -> Any:
        own = nnx.merge(graphdef, params, rest, copy=True)
        value = loss(own)
        return value, nnx.split(own, graph=True)[1]

    graded = jax.value_and_grad(pure, has_aux=True)
    (value, state), gradient = (jax.jit(graded) if jit else graded)(params, rest)
    nnx.update(module, state)
    return value, jax.tree.leaves(gradient)
