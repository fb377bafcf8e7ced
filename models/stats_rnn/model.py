"""A recurrent network that prints statistics of its state as it runs, from inside the graph.

The obstacle is the loop over time with a `print` in it: Python leaves the device to format a number, at steps that
Python counts. The loop becomes a `lax.scan`, which keeps only what needs the step before; the products before and after
it run once for all steps. `jax.debug.print` prints from the graph, and `lax.cond` keeps it, and the statistics that it
wants, out of the other nine steps.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax


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
            lax.cond((t + 1) % 10 == 0, report, lambda t, h: None, t, h)
            return h, h

        steps = jnp.arange(x.shape[0])
        projected = x @ self.w_h[...] + self.b_h[...]  # [T, B, H]
        h = jnp.zeros_like(projected, shape=projected.shape[1:])
        h, states = lax.scan(step, h, (steps, projected))
        return jnp.tanh(states @ self.w_y[...] + self.b_y[...]), h


def report(t: jax.Array, h: jax.Array) -> None:
    """Prints what the original prints; the variance divides by n - 1, as `Tensor.var` does."""
    jax.debug.print("step {} mean {} variance {}", t + 1, h.mean(), h.var(ddof=1))
