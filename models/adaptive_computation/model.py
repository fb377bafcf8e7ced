"""Adaptive computation time: a loop that each example ends itself is a bounded `while_loop` under `vmap`.

The obstacle is the exit. Eager code runs one example at a time, reads its halting score back to the host and leaves the
loop when the scores reach `1 - epsilon`. The port writes the same loop for one example and maps it over the batch:
`gm.while_loop` runs until the slowest has halted, freezes those that are done, has a gradient because it has a bound,
and says of each example whether the bound is what ended it.

Source: Graves 2016, "Adaptive Computation Time for Recurrent Neural Networks", https://arxiv.org/abs/1603.08983.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

import graphmode as gm
from graphmode import nn


class Pondered(NamedTuple):
    """What `AdaptiveComputation` gives.

    Attributes:
      outputs: `[T, B, O]`, means over the steps, weighted by their scores.
      state: `[B, H]`, the last one, such a mean too.
      steps: `[T, B]` int32, N, how often the cell ran.
      ponder: `[T, B]`, N + R, what training is to keep small; R is what the scores before the last left of 1.
      cut_short: `[T, B]` bool, where the bound ended the loop, and not the scores.
    """

    outputs: jax.Array
    state: jax.Array
    steps: jax.Array
    ponder: jax.Array
    cut_short: jax.Array


class Thought(NamedTuple):
    """One example within a step of time.

    Attributes:
      state: `[H]`, of the cell.
      total: 0-d, the scores of all steps taken.
      steps: 0-d int32.
      output: `[O]`, weighted sum so far.
      mean: `[H]`, weighted sum of states so far.
      remainder: 0-d, R, once the loop has ended.
    """

    state: jax.Array
    total: jax.Array
    steps: jax.Array
    output: jax.Array
    mean: jax.Array
    remainder: jax.Array


class AdaptiveComputation(nnx.Module):
    """A GRU that takes as many steps an input as its halting unit wants.

    Args:
      in_features: I, of each input; the cell reads one more, 1 in the first step and 0 after.
      hidden: H.
      out_features: O.
      max_steps: the bound.
      epsilon: the scores are to reach `1 - epsilon`, so that one step can be enough.
      rngs: `params` is drawn from.

    Example:
      >>> layer = AdaptiveComputation(3, rngs=nnx.Rngs(0))
      >>> found = layer(jnp.ones((1, 3, 3)), jnp.array([[20.0, 0.0, -20.0]]))
      >>> found.outputs.shape, found.steps[0, ::2].tolist(), found.cut_short[0, ::2].tolist()
      ((1, 3, 5), [1, 6], [False, True])
    """

    def __init__(
        self,
        in_features: int = 7,
        hidden: int = 12,
        out_features: int = 5,
        max_steps: int = 6,
        epsilon: float = 0.01,
        *,
        rngs: nnx.Rngs,
    ):
        if max_steps < 1 or not 0 < epsilon < 1:
            raise ValueError(
                f"max_steps is {max_steps} and epsilon {epsilon}; give a step at least, and a number between 0 and 1"
            )
        self.max_steps, self.epsilon = max_steps, epsilon
        self.cell = nn.GRUCell(in_features + 1, hidden, rngs=rngs)
        self.halting = nn.Linear(hidden, 1, rngs=rngs)
        self.output = nn.Linear(hidden, out_features, rngs=rngs)

    def __call__(self, x: jax.Array, urgency: jax.Array) -> Pondered:
        """Runs over time.

        Args:
          x: `[T, B, I]` floating.
          urgency: `[T, B]`, added to the logit of the halting unit: large for one step, far below 0 for all.
        """

        def over_batch(state: jax.Array, at: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, tuple[jax.Array, ...]]:
            thought, cut_short = jax.vmap(self.ponder)(*at, state)
            ponder = thought.steps + thought.remainder
            return thought.mean, (thought.output, thought.steps, ponder, cut_short)

        state = jnp.zeros((x.shape[1], self.cell.hidden_size), x.dtype)
        state, (outputs, steps, ponder, cut_short) = lax.scan(over_batch, state, (x, urgency))
        return Pondered(outputs, state, steps, ponder, cut_short)

    def ponder(self, x: jax.Array, urgency: jax.Array, state: jax.Array) -> tuple[Thought, jax.Array]:
        """One step of time of one example, `[I]`, 0-d and `[H]`; and whether it was cut short."""
        enough = 1 - self.epsilon

        def step(thought: Thought) -> Thought:
            first = jnp.where(thought.steps == 0, 1, 0).astype(x.dtype)[None]
            state = self.cell(jnp.concatenate([x, first]), thought.state)
            score = jax.nn.sigmoid(self.halting(state)[0] + urgency)
            total, steps = thought.total + score, thought.steps + 1
            is_last = (total >= enough) | (steps == self.max_steps)
            remainder = 1 - thought.total
            weight = jnp.where(is_last, remainder, score)
            output, mean = thought.output + weight * self.output(state), thought.mean + weight * state
            return Thought(state, total, steps, output, mean, remainder)

        nothing = jnp.zeros((), x.dtype)
        output = jnp.zeros(self.output.out_features, x.dtype)
        before = Thought(state, nothing, jnp.int32(0), output, jnp.zeros_like(state), nothing)
        return gm.while_loop(lambda thought: thought.total < enough, step, before, max_steps=self.max_steps)
