"""Largest and smallest with NaN, where the backend's own reduction of many elements loses it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import graphmode as gm
from graphmode import nn, optim
from graphmode.extremes import largest, smallest

SIZES = [(3, 4), (100, 100), (8, 20, 20, 64)]


@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_as_torch_has_them(shape, dtype):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x.flat[[1, x.size // 2]] = np.nan, np.inf
    ours, theirs = jnp.asarray(x, dtype), torch.from_numpy(x).to(torch.bfloat16 if dtype == jnp.bfloat16 else None)
    for axis in (0, -1, (0, 1), None):
        for ours_of, theirs_of in ((largest, torch.amax), (smallest, torch.amin)):
            for keepdims in (False, True):
                found = jax.jit(lambda x, f=ours_of, a=axis, k=keepdims: f(x, a, keepdims=k))(ours)
                wanted = theirs_of(theirs, tuple(range(len(shape))) if axis is None else axis, keepdim=keepdims)
                np.testing.assert_array_equal(np.asarray(found, np.float32), wanted.float().numpy())


def test_integers_and_an_initial_value():
    assert int(largest(jnp.arange(5000))) == 4999
    assert float(smallest(jnp.zeros((0,)), initial=3.0)) == 3


def with_nan():
    return jnp.zeros((64, 128)).at[3, 5].set(jnp.nan)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: gm.masked_max(x, jnp.ones_like(x, bool)),
        lambda x: gm.masked_min(x, jnp.ones_like(x, bool), axis=(0, 1)),
        lambda x: gm.safe_norm(x, ord=jnp.inf),
        lambda x: nn.functional.pairwise_distance(x, 0 * x, jnp.inf).sum(),
        lambda x: optim.clip_grad_norm({"w": x}, 1.0, jnp.inf)[1],
    ],
    ids=["masked_max", "masked_min", "safe_norm", "pairwise_distance", "grad_norm"],
)
def test_none_of_ours_loses_nan(function):
    assert jnp.isnan(jax.jit(function)(with_nan()))


# XLA computes `chain` in two fusions, and rounds it otherwise in each: `x == max(x)` holds nowhere
def chain(x, scale, shift, other, mask):
    return jax.nn.relu(jnp.where(mask, (x * scale + shift) / 0.6, 0) + other)


def drawn(rows, columns):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape) for shape in ((rows, 1), columns, columns, (rows, columns))]
    return [*(jnp.asarray(array, jnp.float32) for array in arrays), jnp.asarray(rng.random((rows, 1)) < 0.7)]


GROUPS = jnp.arange(64) // 4


@pytest.mark.parametrize(
    "function",
    [
        lambda x, groups: gm.masked_max(x, x > -9, axis=1),
        lambda x, groups: gm.segment_max(x.reshape(64, 8), groups, num_segments=16),
        lambda x, groups: nn.functional.normalize(x, p=jnp.inf, dim=1)[:, 0],
    ],
    ids=["masked_max", "segment_max", "normalize"],
)
def test_a_gradient_is_not_lost_in_a_compiled_graph(function):
    def total(groups, *given):
        found = function(chain(*given).reshape(16, 4, 8), groups)
        return jnp.sum(found * jnp.cos(jnp.arange(found.size)).reshape(found.shape))

    gradient = jax.grad(total, argnums=(1, 2, 3, 4))
    given = drawn(64, 8)
    for found, wanted in zip(jax.jit(gradient)(GROUPS, *given), gradient(GROUPS, *given), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-4)
