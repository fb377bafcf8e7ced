"""What an object keeps of a trace that is over, wherever it keeps it."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator, Mapping
from typing import Any

import jax
from flax import nnx

MOST = 10_000  # objects


def holds_tracers(value: Any) -> bool:
    """Whether a traced array is among what a value holds: in containers, in what a function closes over or has as a
    default, in attributes of plain objects. What variables and modules hold is theirs."""
    waiting, seen = [value], {0: None}
    while waiting and len(seen) < MOST:
        each = waiting.pop()
        if isinstance(each, jax.core.Tracer):
            return True
        if id(each) not in seen and not isinstance(each, nnx.Variable | nnx.Module | type):
            seen[id(each)] = each  # kept, or another could take its identity
            waiting += _held(each)
    return False


def _held(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        yield from value
    elif isinstance(value, functools.partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, types.MethodType):
        yield from (value.__self__, value.__func__)
    elif isinstance(value, types.FunctionType):
        yield from (value.__defaults__ or (), value.__kwdefaults__ or {})
        for cell in value.__closure__ or ():
            if cell != types.CellType():  # an empty one, of what is not bound yet
                yield cell.cell_contents
    elif hasattr(value, "__wrapped__"):  # as what `jax.jit` gives
        yield value.__wrapped__
    elif hasattr(value, "__dict__") and not isinstance(value, types.ModuleType):
        yield from vars(value).values()
