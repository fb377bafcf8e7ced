"""Binary search on each platform."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from graphmode.ops.bisection import _searched, bisected

TABLE = jnp.array([-3, 0, 0, 2, 7, 7, 7, 9], jnp.int32)
X = jnp.array([-9, -3, 0, 1, 7, 8, 9, 10], jnp.int32)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("method", ["scan", "scan_unrolled"])  # of a CPU, and of all others
def test_finds_what_numpy_finds(side, method):
    wanted = np.searchsorted(TABLE, X, side=side)
    np.testing.assert_array_equal(_searched(TABLE, X, side=side, method=method), wanted)
    np.testing.assert_array_equal(jax.jit(bisected, static_argnames="side")(TABLE, X, side=side), wanted)


def test_on_a_gpu_no_loop_is_left_to_the_host():
    def loops(platform):
        return jax.jit(bisected).trace(TABLE, X).lower(lowering_platforms=(platform,)).as_text().count("while")

    assert loops("cpu")
    assert not loops("cuda")
