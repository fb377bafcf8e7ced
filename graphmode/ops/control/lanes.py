"""Questions to all lanes of a `vmap` at once: what keeps a branch a branch where every lane agrees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap


@custom_vmap
def any_lane(holds: jax.Array) -> jax.Array:
    """Whether `holds`, 0-d bool, is true in any lane of every `vmap` around; one answer for all lanes.

    A `lax.cond` on the answer stays a `cond` under `vmap`, so that what no lane wants is not run.
    """
    return holds


@any_lane.def_vmap
def _any_lane_mapped(size: int, batched: list[bool], holds: jax.Array) -> tuple[jax.Array, bool]:
    return any_lane(jnp.any(holds, axis=0)), False


@custom_vmap
def _donated(holds: jax.Array, x: jax.Array) -> jax.Array:
    return x


@_donated.def_vmap
def _donated_mapped(size: int, batched: list[bool], holds: jax.Array, x: jax.Array) -> tuple[jax.Array, bool]:
    holds_mapped, x_mapped = batched
    if not x_mapped:
        # One value for all lanes: some lane may use it as it is, so all may.
        return x, False
    if not holds_mapped:
        return _donated(holds, x), True
    some = jnp.any(holds)
    lanes = holds.reshape(size, *[1] * (x.ndim - 1))
    own = jnp.where(lanes | ~some, x, x[jnp.argmax(holds)])
    # An outer vmap may have a lane in which none of these holds.
    return _donated(some, own), True


@custom_vmap
def _own(holds: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.ones((1,) * x.ndim, bool)


@_own.def_vmap
def _own_mapped(size: int, batched: list[bool], holds: jax.Array, x: jax.Array) -> tuple[jax.Array, bool]:
    holds_mapped, x_mapped = batched
    if not x_mapped:
        return _own(jnp.any(holds, axis=0), x), False
    if not holds_mapped:
        return _own(holds, x)[0], False
    return holds.reshape(size, *[1] * (x.ndim - 1)) & _own(jnp.any(holds), x), True


def shielded(holds: jax.Array, arrays: Sequence[jax.Array]) -> list[jax.Array]:
    """`arrays` where `holds`; elsewhere those of a lane where it does, and no gradient.

    What is computed from them is then as finite in lanes that do not count as in one that does, so that no NaN of an
    unwanted lane comes back through a gradient. An array that is the same for all lanes stays one array. For a place
    that runs only where some lane holds; without `vmap` nothing changes, and XLA removes it.
    """

    def one(x: jax.Array) -> jax.Array:
        value = lax.stop_gradient(x)
        return jnp.where(_own(holds, value), x, lax.stop_gradient(_donated(holds, value)))

    return [one(x) for x in arrays]


def lane_select(holds: jax.Array, wanted: jax.Array, other: jax.Array) -> jax.Array:
    """`wanted` where `holds`, else `other`; for a place that runs only where some lane holds.

    The mask compares a lane with all lanes: without `vmap` that is `x == x`, and XLA removes the selection.
    """
    return jnp.where(holds == any_lane(holds), wanted, other)


def zeros_of(aval: Any) -> jax.Array:
    """An array that fills a place; of any dtype, keys among them."""
    if not jnp.issubdtype(aval.dtype, jax.dtypes.prng_key):
        return jnp.zeros(aval.shape, aval.dtype)
    impl = []

    def look(key: jax.Array) -> jax.Array:
        impl.append(jax.random.key_impl(key))
        return jax.random.key_data(key)

    data = jax.eval_shape(look, jax.ShapeDtypeStruct(aval.shape, aval.dtype))
    return jax.random.wrap_key_data(jnp.zeros(data.shape, data.dtype), impl=impl[0])


def branch_of_lanes(
    index: jax.Array,
    branches: Sequence[Callable[..., list[jax.Array]]],
    avals: Sequence[Any],
    arrays: Sequence[jax.Array],
) -> list[jax.Array]:
    """`branches[index](*arrays)`, each branch run once for all lanes, and only where some lane takes it.

    Args:
      index: 0-d int32, in range; it may differ from lane to lane.
      branches: functions of arrays that close over nothing that is mapped.
      avals: of what each returns.
      arrays: for the branches.
    """
    outs = []
    for i, branch in enumerate(branches):
        mine = index == i

        def run(mine: jax.Array, arrays: Sequence[jax.Array], branch: Any = branch) -> list[jax.Array]:
            return list(branch(*shielded(mine, arrays)))

        def skip(mine: jax.Array, arrays: Sequence[jax.Array]) -> list[jax.Array]:
            return [zeros_of(aval) for aval in avals]

        outs.append(lax.cond(any_lane(mine), run, skip, mine, list(arrays)))
    settled = outs[0]
    for i, out in enumerate(outs[1:], 1):
        settled = [jnp.where(index == i, new, old) for new, old in zip(out, settled, strict=True)]
    return settled
