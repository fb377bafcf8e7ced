"""`jvp_of_lanes`: the `jax.jvp` of a rule's function, which a `vmap` around maps before it is differentiated.

The rule of a `jax.custom_jvp` differentiates first and is mapped then, and JAX cannot map the derivative of a
`jax.custom_vjp`, since it has no forward mode. Mapped first, there is none: the rule of a `custom_vmap` sees the lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from .lanes import zeros_of

Arrays = Sequence[Any]
# arrays -> arrays
Flat = Callable[..., Sequence[Any]]


def jvp_of_lanes(
    fn: Flat, undifferentiated: Flat, primals: Arrays, moved: Sequence[int], tangents: Arrays
) -> tuple[list[Any], list[Any]]:
    """`fn(*primals)` and its tangents, for the rule of a `custom_jvp`.

    Args:
      fn: what is differentiated; closes over nothing that is mapped.
      undifferentiated: what the `custom_jvp` runs otherwise, which tells JAX which of its outputs are mapped.
      primals: its arguments.
      moved: positions of those that have a tangent.
      tangents: theirs.

    Raises:
      TypeError: JAX's, where a `custom_vjp` is differentiated in forward mode.
    """

    def of_moved(*own: Any) -> list[Any]:
        arrays = list(primals)
        for i, array in zip(moved, own, strict=True):
            arrays[i] = array
        return list(fn(*arrays))

    try:
        return jax.jvp(of_moved, [primals[i] for i in moved], list(tangents))
    except TypeError as error:
        found = _mapped_first(fn, undifferentiated, primals, moved, tangents) if "custom_vjp" in str(error) else None
        if found is None:
            raise
        return found


def _mapped_first(
    fn: Flat, undifferentiated: Flat, primals: Arrays, moved: Sequence[int], tangents: Arrays
) -> tuple[list[Any], list[Any]] | None:
    """None where no `vmap` is around."""
    avals = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in jax.eval_shape(fn, *primals)]
    smooth = [i for i, aval in enumerate(avals) if jnp.issubdtype(aval.dtype, jnp.inexact)]
    sizes: list[int] = []

    @custom_vmap
    def pair(primals: Arrays, tangents: Arrays) -> tuple[list[Any], list[Any]]:
        return [zeros_of(aval) for aval in avals], [zeros_of(avals[i]) for i in smooth]

    @pair.def_vmap
    def _pair_mapped(size: int, batched: Any, primals: Arrays, tangents: Arrays) -> Any:
        sizes.append(size)
        of_primals, of_tangents = (list(flags) for flags in batched)
        primals, tangents = list(primals), list(tangents)
        for k, i in enumerate(moved):
            if of_tangents[k] and not of_primals[i]:
                primals[i], of_primals[i] = _for_each(size, primals[i]), True
            if of_primals[i] and not of_tangents[k]:
                tangents[k] = _for_each(size, tangents[k])
        axes = tuple(0 if flag else None for flag in of_primals)
        every, otherwise = (jax.vmap(f, axes, axis_size=size) for f in (fn, undifferentiated))
        outs, moves = jvp_of_lanes(every, otherwise, primals, moved, tangents)
        differ = _mapped_outputs(undifferentiated, axes, size, primals)
        outs, moves = (
            [x if differs else x[0] for x, differs in zip(some, differ, strict=True)] for some in (outs, moves)
        )
        return (outs, [moves[i] for i in smooth]), (differ, [differ[i] for i in smooth])

    outs, moves = pair(list(primals), list(tangents))
    if not sizes:
        return None
    of_smooth = dict(zip(smooth, moves, strict=True))
    return outs, [of_smooth[i] if i in of_smooth else _no_tangent(aval) for i, aval in enumerate(avals)]


def _for_each(size: int, x: jax.Array) -> jax.Array:
    return jnp.broadcast_to(x, (size, *x.shape))


def _no_tangent(aval: Any) -> np.ndarray:
    return np.zeros(aval.shape, jax.dtypes.float0)


def _mapped_outputs(fn: Flat, axes: tuple[int | None, ...], size: int, arrays: Arrays) -> list[bool]:
    """Which outputs of `fn` under this `vmap` differ from lane to lane, as far as JAX knows."""
    found: dict[int, bool] = {}

    def noted(i: int, x: jax.Array) -> jax.Array:
        found[i] = False

        def rule(size: int, batched: list[bool], x: jax.Array) -> tuple[jax.Array, bool]:
            found[i] = batched[0]
            return x, batched[0]

        note = custom_vmap(lambda x: x)
        note.def_vmap(rule)
        return note(x)

    def all_noted(*arrays: Any) -> list[Any]:
        return [noted(i, x) for i, x in enumerate(fn(*arrays))]

    jax.eval_shape(jax.vmap(all_noted, axes, axis_size=size), *arrays)
    return [found[i] for i in sorted(found)]
