"""Casts inside a port: where a run in float64 loses digits, and whether that is all that is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.extend import core as jex

from ...errors import is_of_a_library
from ...report.records import Cause
from ...trees import named_leaves, to_arrays
from ..inside.port_calls import numbered
from ..yardstick import difference

if TYPE_CHECKING:
    from ...jax_side import PortSide
    from ...observation import Observation
    from ..judge import Question

SCOPE = "graphmode:"
INLINED = ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "checkpoint", "remat2", "core_call")
DTYPES = ("new_dtype", "dtype", "preferred_element_type", "accumulation_type", "out_dtype")


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


def casts(port: PortSide, question: Question) -> list[Cast]:
    """Every conversion to fewer digits in the graph of a forward pass, each once."""
    found = _casts(_graph(port, question)[0].jaxpr, "")
    return list(dict.fromkeys(found))


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
    found = casts(port, question)
    if not found:
        return {}
    closed, args, structure = _graph(port, question)
    with port.context():
        flat = _in_float64(closed, args)
        outputs = port.case.to_reference(jax.tree.unflatten(structure, flat))
        named = to_arrays(named_leaves(outputs))
    left = [difference(named[name], wanted).error for name, wanted in reference.outputs.items() if name in named]
    if not left or max(left) > 1e-10:
        return {}
    causes: dict[str, Cause] = {}
    for cast in found:
        path = cast.module
        while path and path not in known:
            path = path.rpartition(".")[0]
        where = f" at {cast.source}" if cast.source else ""
        causes.setdefault(
            path,
            Cause(
                id="hidden-cast",
                says=f"casts {cast.before} to {cast.after}{where} in {cast.module or 'the model'}",
                fix="let the dtype follow the input (x.dtype), or name it as an argument of the port",
                residual=max(left),
            ),
        )
    return causes


def _graph(port: PortSide, question: Question) -> tuple[Any, list[Any], Any]:
    """The forward pass with each module's path in the names of its operations; its arguments, and its outputs' tree."""
    program = port.program(question.mode)
    batch = port.place(question.inputs, question.mode, question.cotangents)

    def note(at: Any, module: nnx.Module, run: Any, args: Any, kwargs: Any) -> Any:
        with jax.named_scope(f"{SCOPE}{at.path}"):
            return run(module, *args, **kwargs)

    def forward(params: Any, rest: Any, args: Any, kwargs: Any) -> Any:
        return program.forward(params, rest, args, kwargs, through=numbered(note))[1][0]

    given = program.params, program.rest, *batch.call
    with port.context():
        closed, shapes = jax.make_jaxpr(forward, return_shape=True)(*given)
    return closed, jax.tree.leaves(given), jax.tree.structure(shapes)


def _casts(jaxpr: Any, around: str) -> Iterator[Cast]:
    for eqn in jaxpr.eqns:
        module = _module(eqn, around)
        if eqn.primitive.name in ("convert_element_type", "reduce_precision"):
            before, after = eqn.invars[0].aval.dtype, eqn.outvars[0].aval.dtype
            if eqn.primitive.name == "reduce_precision" or _narrows(before, after):
                yield Cast(module, str(before), str(after), _source(eqn))
        for inner in _inner(eqn):
            yield from _casts(inner, module)


def _narrows(before: Any, after: Any) -> bool:
    floating = jnp.issubdtype(before, jnp.floating) and jnp.issubdtype(after, jnp.floating)
    return floating and jnp.finfo(after).nmant < jnp.finfo(before).nmant


def _inner(eqn: Any) -> Iterator[Any]:
    for value in eqn.params.values():
        for each in value if isinstance(value, tuple | list) else (value,):
            if isinstance(each, jex.ClosedJaxpr):
                yield each.jaxpr
            elif isinstance(each, jex.Jaxpr):
                yield each


def _module(eqn: Any, around: str) -> str:
    scopes = str(eqn.source_info.name_stack).split(SCOPE)
    return scopes[-1].partition("/")[0].rstrip(")") if len(scopes) > 1 else around


def _source(eqn: Any) -> str:
    """The innermost line that is neither JAX's nor Flax's nor ours."""
    traceback = eqn.source_info.traceback
    for frame in traceback.frames if traceback is not None else ():
        if not is_of_a_library(frame.file_name):
            return f"{Path(frame.file_name).name}:{frame.line_num}"
    return ""


def _in_float64(closed: Any, args: Sequence[Any]) -> list[Any]:
    """What a graph gives when nothing in it is narrower than float64."""
    return _evaluate(closed.jaxpr, closed.consts, [_widened(x) for x in args])


def _evaluate(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    values: dict[Any, Any] = {}

    def read(atom: Any) -> Any:
        return _widened(atom.val) if isinstance(atom, jex.Literal) else values[atom]

    for names, given in ((jaxpr.constvars, consts), (jaxpr.invars, args)):
        values.update(zip(names, map(_widened, given), strict=True))
    for eqn in jaxpr.eqns:
        given = [read(atom) for atom in eqn.invars]
        inner = next(iter(_closed(eqn)), None)
        if eqn.primitive.name in INLINED and inner is not None:
            results = _evaluate(inner.jaxpr, inner.consts, given)
        elif eqn.primitive.name == "reduce_precision":
            results = given
        elif inner is not None:  # a loop or branch keeps its dtypes
            given = [
                x.astype(v.aval.dtype) if hasattr(v.aval, "dtype") else x
                for x, v in zip(given, eqn.invars, strict=True)
            ]
            results = _bound(eqn, given, eqn.params)
        else:
            params = {k: _wide(v) if k in DTYPES else v for k, v in eqn.params.items()}
            results = _bound(eqn, given, params)
        values.update(zip(eqn.outvars, map(_widened, results), strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _bound(eqn: Any, given: list[Any], params: dict[str, Any]) -> list[Any]:
    results = eqn.primitive.bind(*given, **params)
    return list(results) if eqn.primitive.multiple_results else [results]


def _closed(eqn: Any) -> Iterator[Any]:
    for value in eqn.params.values():
        if isinstance(value, jex.ClosedJaxpr):
            yield value


def _wide(dtype: Any) -> Any:
    if dtype is not None and jnp.issubdtype(dtype, jnp.floating):
        return np.dtype(np.float64)
    return dtype


def _widened(x: Any) -> Any:
    if hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.floating) and x.dtype != jnp.float64:
        return jnp.asarray(x, jnp.float64)
    return jnp.asarray(x) if isinstance(x, np.ndarray | np.generic | int | float | bool) else x
