"""Casts inside a port: where a run in float64 loses digits, and whether that is all that is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...report.records import Cause
from ...trees import named_leaves, to_arrays
from ..yardstick import difference
from .graph import Graph, Operation

if TYPE_CHECKING:
    from ...jax_side import PortSide
    from ...observation import Observation
    from ..judge import Question


@dataclass(frozen=True)
class Cast:
    """A conversion to fewer digits.

    Attributes:
      module: the path of the module that does it, in the port.
      before, after: the dtypes.
      source: `file:line`; empty where it is not known.
    """

    module: str
    before: str
    after: str
    source: str

    @property
    def says(self) -> str:
        where = f" at {self.source}" if self.source else ""
        return f"casts {self.before} to {self.after}{where} in {self.module or 'the model'}"


FORMATS = {(8, 10): "TF32", (8, 7): "bfloat16", (5, 10): "float16", (8, 23): "float32"}  # by bits of their two parts
HIDDEN_CAST = "hidden-cast"
CAST_FIX = "let the dtype follow the input (x.dtype), or name it as an argument of the port"


def casts(graph: Graph) -> list[Cast]:
    """Every conversion to fewer digits in the graph of a forward pass, each once."""
    return list(dict.fromkeys(cast_of(each) for each in graph.operations() if each.narrows))


def cast_of(operation: Operation) -> Cast:
    """What a conversion does."""
    before, after = (str(v.aval.dtype) for v in (operation.eqn.invars[0], operation.eqn.outvars[0]))
    if operation.eqn.primitive.name == "reduce_precision":
        bits = operation.eqn.params["exponent_bits"], operation.eqn.params["mantissa_bits"]
        after = FORMATS.get(bits, f"{bits[0]} bits of exponent and {bits[1]} of mantissa")
    return Cast(operation.module, before, after, operation.source)


def explain_casts(port: PortSide, question: Question, reference: Observation, known: Sequence[str]) -> dict[str, Cause]:
    """By the path of the module, the cast that is at fault; nothing where casts do not explain all of the error.

    The port's graph is run once more with every cast left out: they explain the error where it then equals the
    reference in every output.

    Args:
      port: in float64.
      question: on which it differs.
      reference: the judge's answer.
      known: paths of the modules that have a counterpart: a cast is the fault of the nearest of them.
    """
    graph = Graph(port, question)
    found = casts(graph)
    if not found:
        return {}
    with port.context():
        named = to_arrays(named_leaves(port.case.to_reference(graph.outputs(graph.evaluate()))))
    left = [difference(named[name], wanted).error for name, wanted in reference.outputs.items() if name in named]
    if not left or max(left) > 1e-10:
        return {}
    causes: dict[str, Cause] = {}
    for cast in found:
        cause = Cause(id=HIDDEN_CAST, says=cast.says, fix=CAST_FIX, residual=max(left))
        causes.setdefault(nearest(cast.module, known), cause)
    return causes


def nearest(path: str, known: Sequence[str]) -> str:
    """The innermost of the known modules around this one, itself among them; the model where there is none."""
    while path and path not in known:
        path = path.rpartition(".")[0]
    return path
