"""The gradients of a training step, and which there are not: PyTorch's `grad` of what a loss never uses is None.

JAX makes up zeros for these, with which an optimizer would let the parameter decay and its moments fade.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend import core as jex

from ..optim.naming import by_name
from .loss import Loss
from .loss_scaling import Scale
from .objective import Objective


class Gradients(NamedTuple):
    """What one pass gives.

    Attributes:
      found: the loss.
      params, rest: the model's variables after it.
      grads: like `params`.
      without: the names of the parameters that the loss does not use, or through `stop_gradient` alone.
    """

    found: Loss
    params: Any
    rest: Any
    grads: Any
    without: list[str]


def gradients(objective: Objective, params: Any, rest: Any, batch: Any, scale: Scale | None) -> Gradients:
    """Those of one batch, or of one part of it, within a graph."""
    told = _Told()

    def gradient(*given: Any) -> Any:
        grads, (found, params, rest) = jax.grad(objective, has_aux=True)(*given)
        return grads, found._replace(present=told.taken_out(found.present)), params, rest

    given = params, rest, batch, scale
    graph, shapes = jax.make_jaxpr(gradient, return_shape=True)(*given)
    results = jex.jaxpr_as_fun(graph)(*jax.tree.leaves(given))
    grads, found, params, rest = jax.tree.unflatten(jax.tree.structure(shapes), results)
    names = [name for name, _ in by_name(grads)]
    without = [name for name, is_none in zip(names, _are_made_up(graph.jaxpr, len(names)), strict=True) if is_none]
    return Gradients(found._replace(present=told.put_back(found.present)), params, rest, grads, without)


class _Told:
    """What a loss says of which gradients there are: what is traced goes through the graph, Python's bools do not."""

    def taken_out(self, present: Any) -> list[Any]:
        self._leaves, self._tree = jax.tree.flatten(present)
        return [leaf for leaf in self._leaves if isinstance(leaf, jax.core.Tracer)]

    def put_back(self, traced: Sequence[Any]) -> Any:
        further = iter(traced)
        leaves = [next(further) if isinstance(leaf, jax.core.Tracer) else leaf for leaf in self._leaves]
        return jax.tree.unflatten(self._tree, leaves)


def _are_made_up(graph: Any, count: int) -> list[bool]:
    """Which of the first results are a plain zero, or one broadcast: a zero that is computed is another operation's."""
    makers = {var: eqn for eqn in graph.eqns for var in eqn.outvars}

    def is_zero(atom: Any) -> bool:
        return isinstance(atom, jex.Literal) and not np.any(atom.val)

    def is_made_up(atom: Any) -> bool:
        if isinstance(atom, jex.Literal):
            return is_zero(atom)
        maker = makers.get(atom)
        return maker is not None and maker.primitive.name == "broadcast_in_dim" and is_zero(maker.invars[0])

    return list(map(is_made_up, graph.outvars[:count]))
