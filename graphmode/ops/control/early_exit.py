"""A scan that stops early, at the price of the steps that it takes, with gradients of both modes in bounded memory."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jax.interpreters import ad

from .lanes import any_lane, lane_select, shielded, zeros_of
from .mapped_jvp import jvp_of_lanes

Arrays = Sequence[Any]
# (consts, carry, x) -> (carry, y, whether to go on)
Step = Callable[[Arrays, Arrays, Arrays], tuple[list[Any], list[Any], jax.Array]]

# A level of checkpoints holds this many carries, and costs one forward pass more.
BRANCHING = 32


def early_exit_scan(
    step: Step, consts: Arrays, carry: Arrays, going: jax.Array, xs: Arrays, length: int, y_avals: Sequence[Any]
) -> tuple[list[Any], list[Any], jax.Array]:
    """`step` over `xs` for as long as it says to go on, at most `length` times.

    Where nothing is differentiated, a `lax.while_loop`: no step is wasted. Where something is, scans in scans of up to
    `BRANCHING` steps each, with a checkpoint around each step and scan, and a `cond` that skips what lies after the
    end, so that the gradient holds `BRANCHING` carries a level. A lane of a `vmap` that has ended is frozen, and its
    gradient is safe from what is computed for the others.

    Args:
      step: of flat arrays; closes over nothing that is traced.
      consts: arrays that `step` reads.
      carry: arrays that it passes on, of fixed shape and dtype.
      going: 0-d bool, whether to take the first step.
      xs: arrays `[length, ...]`.
      length: the most steps.
      y_avals: shape and dtype of what each step gives out.

    Returns:
      The carry, what the steps gave `[length, ...]` with zeros where none was taken, and whether it would go on.
    """
    split = len(consts), len(consts) + len(carry)

    def parts(arrays: Arrays) -> tuple[Arrays, Arrays, Any, Arrays]:
        return arrays[: split[0]], arrays[split[0] : split[1]], arrays[split[1]], arrays[split[1] + 1 :]

    def as_while(*arrays: Any) -> list[Any]:
        return _flat(*_as_while(step, *parts(arrays), length, y_avals))

    def as_scans(*arrays: Any) -> list[Any]:
        return _flat(*_as_scans(step, *parts(arrays), length, y_avals))

    def rule(primals: Arrays, tangents: Arrays) -> Any:
        moved = [i for i, tangent in enumerate(tangents) if not isinstance(tangent, SymbolicZero)]
        return jvp_of_lanes(as_scans, as_while, primals, moved, [tangents[i] for i in moved])

    run = jax.custom_jvp(as_while)
    run.defjvp(rule, symbolic_zeros=True)
    going, *arrays = run(*consts, *carry, going, *xs)
    return arrays[: len(carry)], arrays[len(carry) :], going


def _flat(carry: Arrays, ys: Arrays, going: jax.Array) -> list[Any]:
    return [going, *carry, *ys]


def levels(length: int) -> list[int]:
    """Sizes of the nested scans, outermost first, that together take at least `length` steps."""
    depth = 1
    while BRANCHING**depth < length:
        depth += 1
    sizes = []
    left = length
    for level in range(depth, 0, -1):
        size = 1
        while size**level < left:
            size += 1
        sizes.append(size)
        left = -(-left // size)
    return sizes


def _as_while(
    step: Step, consts: Arrays, carry: Arrays, going: jax.Array, xs: Arrays, length: int, y_avals: Sequence[Any]
) -> tuple[Any, ...]:
    room = [zeros_of(jax.ShapeDtypeStruct((length, *aval.shape), aval.dtype)) for aval in y_avals]
    if length == 0:
        return list(carry), room, going

    def more(state: Any) -> jax.Array:
        taken, going, _, _ = state
        return going & (taken < length)

    def body(state: Any) -> Any:
        taken, _, carry, ys = state
        x = [lax.dynamic_index_in_dim(x, taken, keepdims=False) for x in xs]
        carry, y, going = step(consts, carry, x)
        ys = [lax.dynamic_update_index_in_dim(room, new, taken, 0) for room, new in zip(ys, y, strict=True)]
        return taken + 1, going, carry, ys

    _, going, carry, ys = lax.while_loop(more, body, (jnp.int32(0), going, list(carry), room))
    return carry, ys, going


def _as_scans(
    step: Step, consts: Arrays, carry: Arrays, going: jax.Array, xs: Arrays, length: int, y_avals: Sequence[Any]
) -> tuple[Any, ...]:
    if length == 0:
        return _as_while(step, consts, carry, going, xs, length, y_avals)
    sizes = levels(length)
    total = functools.reduce(lambda a, b: a * b, sizes)
    index = jnp.arange(total, dtype=jnp.int32)

    def in_blocks(x: jax.Array) -> jax.Array:
        filling = zeros_of(jax.ShapeDtypeStruct((total - length, *x.shape[1:]), x.dtype))
        return jnp.concatenate([x, filling]).reshape(*sizes, *x.shape[1:])

    def checkpointed(depth: int, consts: Arrays) -> Callable[[Any, Any], Any]:
        # Steps too: a cond gives out what it keeps, so that a scan of bare ones would keep every parameter for each.
        return jax.checkpoint(functools.partial(level, depth, consts), prevent_cse=False)

    def level(depth: int, consts: Arrays, state: Any, block: Any) -> Any:
        """One block of the given depth; of depth `len(sizes)`, one step."""
        index, xs = block
        going, carry = state
        wanted = going & (index.reshape(-1)[0] < length)

        def run(consts: Arrays, wanted: jax.Array, carry: Arrays, xs: Arrays) -> Any:
            if depth == len(sizes):
                own = shielded(wanted, [*consts, *carry, *xs])
                split = len(consts), len(consts) + len(carry)
                new, y, goes_on = step(own[: split[0]], own[split[0] : split[1]], own[split[1] :])
                kept = [lane_select(wanted, a, b) for a, b in zip(new, carry, strict=True)]
                y = [lane_select(wanted, a, zeros_of(aval)) for a, aval in zip(y, y_avals, strict=True)]
                # A lane that has ended is not to start again.
                return (jnp.where(wanted, goes_on, going), kept), y
            return lax.scan(checkpointed(depth + 1, consts), (going, list(carry)), (index, list(xs)))

        def skip(consts: Arrays, wanted: jax.Array, carry: Arrays, xs: Arrays) -> Any:
            around = sizes[depth:]
            ys = [zeros_of(jax.ShapeDtypeStruct((*around, *aval.shape), aval.dtype)) for aval in y_avals]
            return (going, list(carry)), ys

        return lax.cond(any_lane(wanted), run, skip, list(consts), wanted, list(carry), list(xs))

    blocks = index.reshape(sizes), [in_blocks(x) for x in xs]
    (going, carry), ys = lax.scan(checkpointed(1, consts), (going, list(carry)), blocks)
    ys = [y.reshape(total, *y.shape[len(sizes) :])[:length] for y in ys]
    return carry, [_lanes_first(y) for y in ys], going


def _lanes_first(x: jax.Array) -> jax.Array:
    """`x`, with the axis of a `vmap` in front of all others.

    A `scan` leaves it behind the axis of its steps, and a `while_loop` in front. JAX takes it to lie where the function
    of a `custom_jvp` has it, and asks its rule later, in a graph within a gradient, where the two must agree.
    """
    return lax.squeeze(lax.broadcast_in_dim(x, (1, *x.shape), tuple(range(1, 1 + x.ndim))), (0,))


def _no_cotangent(cotangent: Any, x: Any) -> list[Any]:
    return [ad.Zero(x.aval)]


# The rule of `run` differentiates before a `vmap` around it maps. A `cond` whose predicate differs between lanes then
# becomes a selection among tangents, made with `stop_gradient` of those that a branch does not take, which JAX cannot
# transpose: what is not taken has no cotangent. Where a JAX has no such primitive any more, nothing is amiss.
if (stop_gradient_p := getattr(lax, "stop_gradient_p", None)) is not None:
    ad.primitive_transposes.setdefault(stop_gradient_p, _no_cotangent)
