"""One recurrent layer over time in one direction, as one graph with its backward written out.

The obstacle is the loop: eager code launches a dozen kernels a step, and a tracer that unrolls it makes a graph as long
as the sequence. `lax.scan` makes one body of it. Two things are then left to gain:

- What does not need the step before leaves the inner loop: the input's products, and in the backward pass the
  gradients of the input and of all weights. Each runs once for a block of steps, not once for all of them: on a CPU a
  block stays in cache, and all at once is a third slower for the memory it takes.
- Differentiating a scan adds the weight gradients up in its carry, a read and a write of a whole matrix at every step.
  `jax.custom_vjp` lets one product over the block do it.

On a GPU the scan still launches its kernels step by step; cuDNN's recurrent kernels are not used.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..compiled_once import compiled_once
from .steps import Step

BLOCK = 10  # steps; 5 to 25 measure alike
FEWEST, MOST = 5, 20  # steps in a block that divides the sequence, taken rather than BLOCK and a remainder

Array = jax.Array


class State(NamedTuple):
    """`hidden [B, P]` and `cell [B, H]`, or None where there is none; P is H, or less where hidden is projected."""

    hidden: Array
    cell: Array | None


class Weights(NamedTuple):
    """Of one layer in one direction; G is the number of gates times H.

    Attributes:
      ih, hh: `[I, G]` and `[P, G]`.
      bias_ih, bias_hh: `[G]`, or None.
      hr: `[H, P]`, which projects the hidden state, or None.
    """

    ih: Array
    hh: Array
    bias_ih: Array | None = None
    bias_hh: Array | None = None
    hr: Array | None = None


@dataclass(frozen=True)
class Way:
    """How a layer is run: which cell, from which end, with which matmul precision."""

    step: Step
    reverse: bool = False
    precision: Any = None

    def dot(self, a: Array, b: Array) -> Array:
        return jnp.dot(a, b, precision=self.precision)

    def from_hidden(self, hidden: Array, weights: Weights) -> Array:
        product = self.dot(hidden, weights.hh)
        if weights.bias_ih is None or weights.bias_hh is None:
            return product
        # Their sum goes here rather than to the input's product: within a step it joins a loop that runs anyway.
        return product + (weights.bias_ih + weights.bias_hh if self.step.sums_biases else weights.bias_hh)

    def from_input(self, x: Array, weights: Weights) -> Array | tuple[Array, ...]:
        product = self.dot(x, weights.ih)
        if not self.step.sums_biases and weights.bias_ih is not None:
            product += weights.bias_ih
        return tuple(jnp.split(product, self.step.gates, axis=-1)) if self.step.splits_input else product


class _History(NamedTuple):
    """Of every step: the state after it, and what its transpose wants: `kept`, and hidden before it was projected."""

    hidden: Array
    cell: Array | None = None
    kept: tuple[Array, ...] | None = None
    unprojected: Array | None = None


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def over_time(way: Way, x: Array, weights: Weights, state: State, valid: Array | None = None) -> tuple[Array, State]:
    """The hidden state after every step, and the last state.

    It can be differentiated in reverse as often as wanted, and forward over reverse; not forward first.

    Args:
      way: which cell.
      x: `[T, B, I]`, T at least 1; finite where `valid` is False.
      weights: of the layer.
      state: before the first step.
      valid: `[T, B, 1]` bool; a step where it is False leaves the state of its sequence alone. None for all.

    Returns:
      `[T, B, P]` and the state after the last step (the first in time, where it runs in reverse).
    """
    state, history = _scan(way, x, weights, state, valid, keep=False)
    return history.hidden, state


@compiled_once("way", "keep")
def _scan(
    way: Way, x: Array, weights: Weights, state: State, valid: Array | None, *, keep: bool
) -> tuple[State, _History]:
    def step(state: State, inputs: tuple[Array | tuple[Array, ...], Array | None]):
        from_input, valid = inputs
        hidden, cell, kept = way.step.push(from_input, way.from_hidden(state.hidden, weights), *state)
        unprojected = None
        if weights.hr is not None:
            unprojected, hidden = hidden, way.dot(hidden, weights.hr)
        state = _where(valid, State(hidden, cell), state)
        return state, _History(*state, kept, unprojected) if keep else _History(state.hidden)

    def block(state: State, inputs: tuple[Array, Array | None]):
        x, valid = inputs
        return lax.scan(step, state, (way.from_input(x, weights), valid), reverse=way.reverse)

    return _by_blocks(block, state, (x, valid), reverse=way.reverse)


def _forward(way: Way, x: Array, weights: Weights, state: State, valid: Array | None):
    last, history = _scan(way, x, weights, state, valid, keep=True)
    return (history.hidden, last), (x, weights, state, valid, history)


@compiled_once("way")
def _backward(way: Way, saved: tuple, gradients: tuple[Array, State]):
    x, weights, first, valid, history = saved
    d_output, d_last = gradients
    transposed = jax.tree.map(jnp.transpose, weights)
    wide = jnp.promote_types(x.dtype, jnp.float32)  # sums over time of half precisions

    def step(d_state: State, inputs):
        d_output, valid, before, after, kept = inputs
        d_hidden, d_cell = d_state.hidden + d_output, d_state.cell
        d_after = d_hidden if weights.hr is None else way.dot(d_hidden, transposed.hr)
        pulled = way.step.pull(d_after, d_cell, kept, before, after)
        same = pulled.from_hidden is pulled.from_input
        from_input = _zero_unless(valid, pulled.from_input)
        from_hidden = from_input if same else _zero_unless(valid, pulled.from_hidden)
        d_before = way.dot(from_hidden, transposed.hh)
        if pulled.hidden is not None or valid is not None:
            direct = jnp.zeros_like(d_hidden) if pulled.hidden is None else pulled.hidden
            d_before += direct if valid is None else jnp.where(valid, direct, d_hidden)
        d_state = State(d_before, _where(valid, pulled.cell, d_cell))
        projected = None if weights.hr is None else _zero_unless(valid, d_hidden)
        return d_state, (from_input, None if same else from_hidden, projected)

    def block(carry: tuple[State, Weights], inputs):
        d_state, sums = carry
        x, unprojected, rest = inputs
        d_state, (from_input, from_hidden, projected) = lax.scan(step, d_state, rest, reverse=not way.reverse)
        _, _, before, _, _ = rest
        from_hidden = from_input if from_hidden is None else from_hidden

        def outer(a: Array, b: Array) -> Array:
            return jnp.einsum("kba,kbg->ag", a, b, precision=way.precision, preferred_element_type=wide)

        def total(a: Array) -> Array:
            return jnp.sum(a, (0, 1), dtype=wide)

        found = Weights(
            outer(x, from_input),
            outer(before.hidden, from_hidden),
            None if weights.bias_ih is None else total(from_input),
            None if weights.bias_hh is None else total(from_hidden),
            None if weights.hr is None else outer(unprojected, projected),
        )
        return (d_state, jax.tree.map(jnp.add, sums, found)), way.dot(from_input, transposed.ih)

    states = State(history.hidden, history.cell)
    before = jax.tree.map(lambda one, all: _one_step_later(one, all, way.reverse), first, states)
    sums = jax.tree.map(lambda w: jnp.zeros_like(w, dtype=wide), weights)
    inputs = x, history.unprojected, (d_output, valid, before, states, history.kept)
    (d_first, sums), dx = _by_blocks(block, (d_last, sums), inputs, reverse=not way.reverse)
    return dx, jax.tree.map(lambda s, w: s.astype(w.dtype), sums, weights), d_first, None


over_time.defvjp(_forward, _backward)


def _where(valid: Array | None, new: Any, old: Any) -> Any:
    return new if valid is None else jax.tree.map(lambda new, old: jnp.where(valid, new, old), new, old)


def _zero_unless(valid: Array | None, a: Array) -> Array:
    return a if valid is None else jnp.where(valid, a, 0)


def _one_step_later(first: Array, all: Array, reverse: bool) -> Array:
    return jnp.concatenate([all[1:], first[None]] if reverse else [first[None], all[:-1]])


def _by_blocks(
    block: Callable[[Any, Any], tuple[Any, Any]], carry: Any, inputs: Any, *, reverse: bool
) -> tuple[Any, Any]:
    """`lax.scan(block, carry, inputs)`, where a block has some steps and the last in time may have fewer."""
    steps = len(jax.tree.leaves(inputs)[0])
    size = _block_size(steps)
    if steps == size:
        return block(carry, inputs)
    whole = steps // size * size

    def run(carry: Any) -> tuple[Any, Any]:
        blocks = jax.tree.map(lambda a: a[:whole].reshape(whole // size, size, *a.shape[1:]), inputs)
        carry, found = lax.scan(block, carry, blocks, reverse=reverse)
        return carry, jax.tree.map(lambda a: a.reshape(whole, *a.shape[2:]), found)

    if whole == steps:
        return run(carry)
    rest = jax.tree.map(lambda a: a[whole:], inputs)
    if reverse:
        carry, late = block(carry, rest)
        carry, early = run(carry)
    else:
        carry, early = run(carry)
        carry, late = block(carry, rest)
    return carry, jax.tree.map(lambda *parts: jnp.concatenate(parts), early, late)


def _block_size(steps: int) -> int:
    """That divides `steps`, if there is one of a good size; otherwise `BLOCK`."""
    if steps <= MOST:
        return steps
    dividing = [size for size in range(FEWEST, MOST + 1) if steps % size == 0]
    return min(dividing, key=lambda size: abs(size - BLOCK), default=BLOCK)
