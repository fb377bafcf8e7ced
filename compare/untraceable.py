"""What JAX refuses in a port as it makes a graph of it: the line that asks for it, and what to write instead."""

from __future__ import annotations

import re

import jax

from .errors import describe, describe_with_line, line_of

# what asks for a value, what to write instead, and the part of docs/graphable.md; the first class that fits counts
_REFUSED: tuple[tuple[type[Exception], str, str, str], ...] = (
    (
        jax.errors.TracerBoolConversionError,
        "a Python if, while, and, or or not",
        "jnp.where, lax.cond or gm.cond for if, gm.while_loop for while, & and | for and and or",
        "Control flow",
    ),
    (jax.errors.TracerArrayConversionError, "numpy", "jnp in place of np", "Host"),
    (jax.errors.TracerIntegerConversionError, "an index, size or range", "jnp.take, gm.switch or gm.fori", "Host"),
    (jax.errors.NonConcreteBooleanIndexError, "x[mask]", "jnp.where, gm.compact or gm.masked_fill", "Shapes"),
    (  # the base of most
        jax.errors.ConcretizationTypeError,
        "float(), int(), .item() or a size",
        "an array of rank 0 in place of the number, and what is fixed as an argument of __init__",
        "Host",
    ),
)
_LEAKED = r"Computation compiled for \d+ inputs but called with \d+"  # a constant of it is one of no graph any more
_OF_JAX = r"Tracer\b|\bArrayImpl\b|jax"


def port_failure(error: Exception, where: str) -> str:
    """What follows `the port`: that it fails, with the line of its author first where JAX refuses that line.

    Args:
      error: that the port raised.
      where: on which input, and in which mode.
    """
    if kind := re.search(r"a value of type <class '([\w.]+)'>.*not a valid JAX type", str(error)):
        return (
            f"gives {kind.group(1)} {where}, which cannot be compared; let __call__ return arrays: one, or a tuple, "
            "dict or dataclass of them"
        )
    line = line_of(error).strip(" ()")
    for refused, asks, instead, part in _REFUSED:
        if line and isinstance(error, refused):
            return (
                f"fails at {line} {where}: {type(error).__name__}: {asks} asks for values, which a graph has only when "
                f"it runs; write {instead}: docs/graphable.md, {part}"
            )
    if isinstance(error, TypeError) and re.search(r"\bTensors?\b", str(error)) and re.search(_OF_JAX, str(error)):
        at = f" at {line}" if line else ""
        return (
            f"fails{at} {where}: {describe(error)}: PyTorch is given an array of JAX, or the other way round; write "
            "what is named there in JAX too"
        )
    if isinstance(error, jax.errors.UnexpectedTracerError) or re.search(_LEAKED, str(error)):
        at = f" at {line}" if line else ""
        return (
            f"fails{at} {where}: it takes an array that JAX traced in another graph, as functools.cache, a global or "
            "an attribute keeps one that a function made while it was traced; make it with numpy, or in __init__ "
            f"({type(error).__name__})"
        )
    return f"fails {where}: {describe_with_line(error)}"
