"""Which thread JAX computes in on a CPU."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def dispatch_inline() -> None:
    """Lets JAX compute on a CPU in the thread that calls, as PyTorch does, rather than hand each call to another one.

    A graph of more than about a thousand operations on numbers is given to a thread that has to be woken, while the
    caller waits for it. On two virtual processors that takes 50 to 100 us a call: the sum of 1,024 numbers took 66 us
    without this and 12 with it, that of 65,536 took 116 and 60. Large graphs gain nothing, and lose nothing but the
    Python that would have run beside them. Graphs still use all processors.

    Call it at the start of a program, before JAX computes anything: later it has no effect, which
    `dispatches_inline` tells. JAX reads no environment variable for it.

    Source: https://docs.jax.dev/en/latest/async_dispatch.html
    """
    jax.config.update("jax_cpu_enable_async_dispatch", False)


def dispatches_inline() -> bool:
    """Whether this process does so: found by computing, which starts the CPU backend and takes a tenth of a second."""
    (cpu, *_) = jax.devices("cpu")
    numbers = jax.device_put(jnp.ones(1 << 20), cpu)
    long = jax.jit(_long)
    long(numbers).block_until_ready()
    return all(long(numbers).is_ready() for _ in range(3))


def _long(numbers: jax.Array) -> jax.Array:
    """Takes tens of milliseconds: on a loaded machine a caller that is put aside for a few of them is back before."""
    for _ in range(8):
        numbers = jnp.cos(numbers)
    return jnp.sum(numbers)
