"""How fast this machine compiles: what a row is given to get ready follows from it."""

from __future__ import annotations

import functools
import time

import jax
import jax.numpy as jnp

USUAL_S = 0.16
"""What the graph below takes on the machine for which the seconds of `Budget` and `Case.patience` were chosen."""
TIMES = 3
MOST = 4.0


@functools.cache
def slowness() -> float:
    """How many times as long as usual this machine compiles: 1 to 4. Takes a second.

    A machine that others share, or that does something else just now, is a slow one.
    """
    return min(MOST, max(1.0, min(_compiled_in() for _ in range(TIMES)) / USUAL_S))


def _cpu() -> jax.Device | None:
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX_PLATFORMS leaves it out
        return None


def _compiled_in() -> float:
    """Seconds for one small graph: a loop of products, a sort, a softmax, and their gradients."""

    def graph(x: jax.Array, weight: jax.Array) -> jax.Array:
        def step(state: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
            state = jnp.tanh(state @ weight) + jnp.sin(state).sum(axis=1, keepdims=True)
            return state, jnp.sort(state, axis=0)

        last, each = jax.lax.scan(step, x, None, length=5)
        return (jax.nn.softmax(last @ weight) * each.mean(0)).sum()

    x, weight = jax.ShapeDtypeStruct((16, 32), jnp.float32), jax.ShapeDtypeStruct((32, 32), jnp.float32)
    with jax.default_device(_cpu()):  # XLA would tune its kernels on a GPU
        lowered = jax.jit(jax.value_and_grad(graph)).lower(x, weight)
    start = time.perf_counter()
    lowered.compile()
    return time.perf_counter() - start
