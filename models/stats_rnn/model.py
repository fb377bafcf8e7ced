"""A recurrent network that prints statistics of its state as it runs, from inside the graph.

The obstacle is the loop over time with a `print` in it: Python leaves the device to format a number, at steps that
Python counts. The loop becomes a `lax.scan`, which keeps only what needs the step before; the products before and after
it run once for all steps. `jax.debug.print` prints from the graph, and `lax.cond` keeps it, and the statistics that it
wants, out of the other nine steps.

Every way out of the graph costs ten times what a step does, on a CPU too. `CollectedStatsRNN` goes it once: the states
are stacked anyway, so the statistics of every tenth are computed and printed together when the loop has ended. Whoever
wants to watch a long loop, or to know how far it came, takes `StatsRNN`.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

EVERY = 10  # steps


class StatsRNN(nnx.Module):
    """`x [T, B, I]` -> `(y [T, B, O], h [B, H])`, printing mean and variance of `h` every tenth step.

    h = tanh(x[t] @ w_h + h @ u_h + b_h)
    y[t] = tanh(h @ w_y + b_y)
    """

    def __init__(self, rngs: nnx.Rngs, in_features: int = 12, hidden: int = 24, out_features: int = 10):
        lecun = nnx.initializers.lecun_normal()
        self.w_h = nnx.Param(lecun(rngs.params(), (in_features, hidden)))
        self.u_h = nnx.Param(lecun(rngs.params(), (hidden, hidden)))
        self.b_h = nnx.Param(jnp.zeros(hidden))
        self.w_y = nnx.Param(lecun(rngs.params(), (hidden, out_features)))
        self.b_y = nnx.Param(jnp.zeros(out_features))

    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        def step(h, inputs):
            t, projected = inputs
            h = jnp.tanh(projected + h @ self.u_h[...])
            self.after_step(t, h)
            return h, h

        steps = jnp.arange(x.shape[0])
        projected = x @ self.w_h[...] + self.b_h[...]  # [T, B, H]
        h = jnp.zeros_like(projected, shape=projected.shape[1:])
        h, states = lax.scan(step, h, (steps, projected))
        self.after_loop(states)
        return jnp.tanh(states @ self.w_y[...] + self.b_y[...]), h

    def after_step(self, t: jax.Array, h: jax.Array) -> None:
        lax.cond((t + 1) % EVERY == 0, report, lambda t, h: None, t, h)

    def after_loop(self, states: jax.Array) -> None: ...


class CollectedStatsRNN(StatsRNN):
    """`StatsRNN` that prints its lines together, after the last step."""

    def after_step(self, t: jax.Array, h: jax.Array) -> None: ...

    def after_loop(self, states: jax.Array) -> None:
        printed = states[EVERY - 1 :: EVERY]  # [T // 10, B, H]
        if printed.shape[0]:
            jax.debug.callback(report_all, printed.mean((1, 2)), printed.var((1, 2), ddof=1))


def report(t: jax.Array, h: jax.Array) -> None:
    """Prints what the original prints; the variance divides by n - 1, as `Tensor.var` does."""
    jax.debug.print("step {} mean {} variance {}", t + 1, h.mean(), h.var(ddof=1))


def report_all(means: jax.Array, variances: jax.Array) -> None:
    """The same lines, of `[T // 10]` each."""
    for i, (mean, variance) in enumerate(zip(means.tolist(), variances.tolist(), strict=True), start=1):
        print("step", EVERY * i, "mean", mean, "variance", variance)
