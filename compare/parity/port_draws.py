"""Whether a port draws random numbers where both sides are to be deterministic: its outputs follow the seed of its
`nnx.Rngs`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.extend.core import Literal

from ..jax_side import PortSide
from ..port_program import combine
from .judge import Question
from .yardstick import difference


def draws_note(port: PortSide, question: Question) -> str:
    """Runs the port twice, the second time with other keys; what to tell of it, empty where nothing depends on them.

    A port without `nnx.Rngs` in its state is not run, nor one none of whose outputs its keys go into.
    """
    with port.context():
        program = port.program(question.mode)
        moved, count = _other_keys(program.rest)
        if not count or not _keys_go_into_outputs(port, question):
            return ""
    kept = program.rest
    first = port.run(question.inputs, question.mode, question.cotangents)
    program.rest = moved
    try:
        second = port.run(question.inputs, question.mode, question.cotangents)
    finally:
        program.rest = kept
    for name, array in first.outputs.items():
        found = difference(second.outputs[name], array)
        if not found.equal:
            return (
                f"{question.mode}: the port is not deterministic: its output {name} on {question.label!r} is "
                f"{found.reference} at {list(found.index)}, and {found.port} with another seed of its nnx.Rngs. It "
                "draws random numbers although dropout is off in both modes: set `deterministic` where it is read (the "
                "check sets that attribute of every module), or take what is drawn as an input of the case"
            )
    return ""


def _keys_go_into_outputs(port: PortSide, question: Question) -> bool:
    """By the graph, which is traced and not run; true where it cannot be traced."""
    program = port.program(question.mode)
    batch = port.place(question.inputs, question.mode, question.cotangents)

    def outputs(rest: Any) -> Any:
        return program.forward(program.params, rest, *combine(batch.diff, batch.rest))[1][0]

    try:
        graph = jax.make_jaxpr(outputs)(program.rest).jaxpr
    except Exception:  # it runs, or fails, with a better word
        return True
    variables = jax.tree.leaves(program.rest, is_leaf=lambda leaf: isinstance(leaf, nnx.Variable))
    is_key = [isinstance(each, nnx.RngKey) for each in variables for _ in jax.tree.leaves(each)]
    moved = {var for var, key in zip(graph.invars, is_key, strict=True) if key}
    for eqn in graph.eqns:
        if any(not isinstance(var, Literal) and var in moved for var in eqn.invars):
            moved.update(eqn.outvars)
    return any(not isinstance(var, Literal) and var in moved for var in graph.outvars)


def _other_keys(rest: Any) -> tuple[Any, int]:
    """The state with each key of a random stream changed, and how many there are."""
    count = 0

    def move(variable: Any) -> Any:
        nonlocal count
        if not isinstance(variable, nnx.RngKey):
            return variable
        count += 1
        return variable.replace(_moved(variable.get_value()))

    moved = jax.tree.map(move, rest, is_leaf=lambda leaf: isinstance(leaf, nnx.Variable))
    return moved, count


def _moved(key: jax.Array) -> jax.Array:
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return key ^ jnp.asarray(0x9E3779B9, key.dtype)
    data = jax.random.key_data(key)
    return jax.random.wrap_key_data(data ^ jnp.asarray(0x9E3779B9, data.dtype), impl=jax.random.key_impl(key))
