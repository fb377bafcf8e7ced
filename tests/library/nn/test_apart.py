"""`apart`: what the compiled program keeps in memory, and that derivatives and vmap go through it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from graphmode.nn.apart import apart


def cubed(x: jax.Array, scale: int) -> jax.Array:
    return scale * jax.jit(jnp.square)(x) * x


def read_thrice(x: jax.Array) -> jax.Array:
    y = apart(cubed)(x, scale=2)
    return y[2:] + y[1:-1] + y[:-2]


def test_xla_fuses_nothing_of_it_with_its_readers():
    compiled = jax.jit(read_thrice).lower(jnp.ones(100)).compile().as_text()
    entry = compiled[compiled.index("ENTRY") :]
    assert entry.count(" call(") == 1
    assert " multiply(" not in entry
    assert compiled.count(" call(") == 1, "what it calls itself is fused"


def test_derivatives_and_vmap():
    x = jnp.arange(5.0)
    plain = lambda x: (y := cubed(x, 2))[2:] + y[1:-1] + y[:-2]  # noqa: E731
    for transformed in (jax.jacfwd, jax.jacrev, jax.hessian, lambda f: lambda x: jax.vmap(f)(jnp.stack([x, -x]))):
        np.testing.assert_array_equal(transformed(read_thrice)(x), transformed(plain)(x))
