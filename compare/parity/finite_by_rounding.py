"""Gradients that are finite by a compiled graph's rounding alone: operation by operation, they are NaN.

The distance of a point to itself is zero, and the derivative of its root infinite; `jnp.where` leaves out the one and
not the other. Where XLA fuses a product and a sum to one operation, that distance may be a rounding apart from zero:
on this machine, with this jaxlib, and in this graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ..quick_compile import QUICKLY
from ..report.records import Tensor
from .away_from_zero import singular
from .causes.graph import INLINED, Graph, Operation, Run
from .differences import as_tensor
from .yardstick import difference

if TYPE_CHECKING:
    from ..jax_side import PortSide
    from .judge import Truth

NEAR = 1e-13  # of the largest beside it, that what would be zero without rounding is at most
NOTE = "operation by operation it is NaN: that it is finite as a compiled graph is by its rounding alone"


def finite_by_rounding(port: PortSide, truth: Truth) -> list[Tensor]:
    """The gradients of which that is so; none mostly.

    Args:
      port: in float64; equal as far as it was asked.
      truth: forward and backward.
    """
    if not port.compiled:
        return []
    graph = Graph(port, truth.question)
    with port.context(), jax.enable_x64(True):
        suspects = {id(eqn) for eqn in singular(graph.closed, INLINED)}
        if not suspects:
            return []
        compiled = jax.jit(lambda args: _sizes(graph, suspects, args), compiler_options=QUICKLY)(graph.args)
        if all(least > NEAR * largest for least, largest in compiled):
            return []
        if all(least > 0 for least, _ in _sizes(graph, suspects, graph.args)):  # by operations, which takes longer
            return []
    return list(_not_finite(port, truth))


def _sizes(graph: Graph, suspects: set[int], args: Sequence[Any]) -> list[tuple[jax.Array, jax.Array]]:
    """The least and the largest size of what each of these operations is given."""
    found = []

    def note(operation: Operation, given: list[Any], run: Run) -> list[Any]:
        if id(operation.eqn) in suspects and not operation.has_rule and given[0].size:
            size = jnp.abs(given[0])
            found.append((size.min(), size.max()))
        return run(given)

    graph.evaluate(note, args=args)
    return found


def _not_finite(port: PortSide, truth: Truth) -> Iterator[Tensor]:
    question = truth.question
    given = port.by_operations().run(question.inputs, question.mode, question.cotangents)
    for kind, name, wanted in truth.reference.tensors():
        ours = given.find((kind, name))
        if not kind.endswith("gradient") or ours is None or ours.shape != wanted.shape:
            continue
        if (np.isnan(ours) & np.isfinite(wanted)).any():
            apart = replace(difference(ours, wanted), note=NOTE)
            yield as_tensor(question.mode, question.label, (kind, name), apart, precise=False)
