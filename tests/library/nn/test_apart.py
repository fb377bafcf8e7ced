"""`apart`: what the compiled program keeps in memory, and that derivatives and vmap go through it."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiling import AS_FOR_USERS

from graphmode.nn.apart import apart
from graphmode.nn.functional import adaptive_max_pool2d


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


def gathered(x: jax.Array) -> jax.Array:
    return x.at[:, np.array([0, 2, 1])].get(mode="promise_in_bounds")


def test_what_is_gathered_is_laid_out_row_by_row():
    if jax.default_backend() != "cpu":
        pytest.skip("laid out so on a CPU alone")
    step = jax.jit(jax.grad(lambda x: adaptive_max_pool2d(x, 5).sum()))
    text = step.lower(jnp.ones((2, 14, 14, 8))).compile(AS_FOR_USERS)
    layouts = re.findall(r"\{([\d,]+)\} call\(", text.as_text())
    assert layouts
    assert set(layouts) == {"3,2,1,0"}


def test_it_is_exported():
    function = jax.jit(lambda x: jax.vjp(apart(gathered), x)[1](x)[0])
    x = jnp.arange(12.0).reshape(2, 3, 2)
    exported = jax.export.deserialize(jax.export.export(function)(x).serialize())
    np.testing.assert_array_equal(exported.call(x), function(x))
