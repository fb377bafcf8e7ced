"""Clipped gradients beside `torch.nn.utils`."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import graphmode as gm

from .optimizer_cases import in_double

SHAPES = {"weight": (3, 4), "bias": (4,), "scale": ()}


def gradients(absent=()):
    rng = np.random.default_rng(3)
    return {name: None if name in absent else rng.standard_normal(shape) for name, shape in SHAPES.items()}


def parameters(given):
    of = [torch.nn.Parameter(torch.zeros(shape, dtype=torch.float64)) for shape in SHAPES.values()]
    for p, grad in zip(of, given.values(), strict=True):
        p.grad = None if grad is None else torch.tensor(grad)
    return of


def assert_same(ours, theirs):
    for name, p in zip(SHAPES, theirs, strict=True):
        mine = ours[name]
        assert (mine is None) == (p.grad is None)
        if mine is not None:
            np.testing.assert_allclose(mine, p.grad.numpy(), rtol=1e-12)


@pytest.mark.parametrize("absent", [(), ("bias",), ("weight", "bias", "scale")], ids=str)
@pytest.mark.parametrize("max_norm", [0.1, 100.0])
@pytest.mark.parametrize("norm_type", [0.5, 1.0, 2.0, 3.0, math.inf])
def test_norm(norm_type, max_norm, absent):
    given = gradients(absent)
    theirs = parameters(given)
    expected = torch.nn.utils.clip_grad_norm_(theirs, max_norm, norm_type)
    with in_double():
        clipped, norm = jax.jit(lambda g: gm.optim.clip_grad_norm(g, max_norm, norm_type))(given)
    assert float(norm) == pytest.approx(float(expected), rel=1e-12)
    assert_same(clipped, theirs)


@pytest.mark.parametrize("absent", [(), ("bias",)], ids=str)
def test_value(absent):
    given = gradients(absent)
    theirs = parameters(given)
    torch.nn.utils.clip_grad_value_(theirs, 0.5)
    with in_double():
        assert_same(gm.optim.clip_grad_value(given, 0.5), theirs)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_norm_that_is_not_finite_raises_where_asked(bad):
    given = {**gradients(), "bias": np.array([1.0, bad, 0.0, 2.0])}
    with pytest.raises(RuntimeError):
        torch.nn.utils.clip_grad_norm_(parameters(given), 1.0, error_if_nonfinite=True)
    with pytest.raises(Exception, match="the norm of the gradients is"):
        gm.optim.clip_grad_norm(jax.tree.map(jnp.asarray, given), 1.0, error_if_nonfinite=True)


@pytest.mark.parametrize("limit", [0.5, np.float64(0.5), jnp.float32(0.5)], ids=repr)
def test_halves_stay_halves_whatever_dtype_the_limit_has(limit):
    given = {"weight": jnp.array([3.0, -0.25], jnp.bfloat16)}
    clipped = gm.optim.clip_grad_value(given, limit)["weight"]
    assert (clipped.dtype, clipped.tolist()) == (jnp.bfloat16, [0.5, -0.25])
    assert gm.optim.clip_grad_norm(given, limit)[0]["weight"].dtype == jnp.bfloat16


def test_a_norm_may_be_named_as_pytorch_has_it():
    given = {"weight": jnp.array([3.0, -4.0])}
    assert float(gm.optim.clip_grad_norm(given, 1.0, "inf")[1]) == 4.0
    assert float(gm.optim.clip_grad_norm(given, 1.0, jnp.float32(1.0))[1]) == 7.0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda g: gm.optim.clip_grad_norm({"a": g.astype(int)}, 1.0), r"grads\['a'\] is int32, and a floating array"),
        (lambda g: gm.optim.clip_grad_value([g, [1.0]], 1.0), r"grads\[1\]\[0\] is float, and a floating array was"),
        (lambda g: gm.optim.clip_grad_norm(g, 1.0, "two"), "norm_type is 'two', and a number known to the graph"),
        (lambda g: jax.jit(gm.optim.clip_grad_norm)(g, 1.0, 2.0), "norm_type is .*, and a number known to the graph"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(TypeError, match=words):
        call(jnp.array([3.0, -4.0]))
