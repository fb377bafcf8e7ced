"""Straight-through estimators against `x + (f(x) - x).detach()` and `torch.nn.functional.gumbel_softmax`."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from differential import FLOATING, Differential, cases, is_caught, run, values_of
from hypothesis import strategies as st
from torch.nn import functional

import graphmode as gm

SHAPES = st.fixed_dictionaries({"shape": st.sampled_from([(), (0,), (7,), (3, 4)])})


class Through(torch.autograd.Function):
    """PyTorch's exact form: a value, and the gradient of something else."""

    @staticmethod
    def forward(ctx, through, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def one_array(rng, config, dtype):
    x = values_of(rng, config.shape, dtype)
    return {"x": (x * 2 if rng.random() < 0.5 else x).astype(x.dtype)}


def case(name, ours, eager):
    return Differential(
        name=name,
        configs=SHAPES,
        arrays=one_array,
        ours=lambda c, x: ours(x),
        eager=lambda c, x: eager(x),
        dtypes=FLOATING,
        gradients=("x",),
    )


def eager_sign(x):
    inside = (x.detach().abs() <= 1).to(x.dtype)
    return Through.apply(x * inside, x.detach().sign())


ROUND = case("ste_round", gm.ste_round, lambda x: Through.apply(x, x.detach().round()))
SIGN = case("ste_sign", gm.ste_sign, lambda x: Through.apply(x, x.detach().sign()))
WINDOW = case("ste_sign window", lambda x: gm.ste_sign(x, window=1), eager_sign)
CLAMP = case(
    "straight_through clamp",
    lambda x: gm.straight_through(lambda x: jnp.clip(x, -1, 1), x),
    lambda x: Through.apply(x, x.detach().clamp(-1, 1)),
)
SURROGATE = case(
    "straight_through surrogate",
    lambda x: gm.straight_through(lambda x: jnp.heaviside(x, 0).astype(x.dtype), x, surrogate=jax.nn.sigmoid),
    lambda x: Through.apply(x.sigmoid(), torch.heaviside(x.detach(), torch.zeros_like(x.detach()))),
)

CLASSES = st.fixed_dictionaries(
    {
        "shape": st.sampled_from([(4,), (3, 5), (2, 3, 4)]),
        "axis": st.sampled_from([-1, 0]),
        "tau": st.sampled_from([0.5, 1.0]),
        "hard": st.booleans(),
        "seed": st.integers(0, 3),
    }
)


def logits_and_noise(rng, config, dtype):
    torch.manual_seed(config.seed)
    kind = getattr(torch, dtype)
    noise = -torch.empty(config.shape, dtype=kind).exponential_().log()
    return {"logits": values_of(rng, config.shape, dtype, special=False), "noise": noise.numpy()}


def eager_gumbel(c, logits, noise):
    torch.manual_seed(c.seed)
    return functional.gumbel_softmax(logits, tau=c.tau, hard=c.hard, dim=c.axis)


GUMBEL = Differential(
    name="gumbel_softmax",
    configs=CLASSES,
    arrays=logits_and_noise,
    ours=lambda c, logits, noise: gm.gumbel_softmax(logits, noise, tau=c.tau, hard=c.hard, axis=c.axis),
    eager=eager_gumbel,
    dtypes=("float32", "float64"),
    gradients=("logits",),
    exact=False,
)


def eager_one_hot(c, x):
    index = x.detach().max(c.axis, keepdim=True)[1]
    return Through.apply(x, torch.zeros_like(x).scatter_(c.axis, index, 1.0))


ONE_HOT = Differential(
    name="straight_through_one_hot",
    configs=st.fixed_dictionaries({"shape": st.sampled_from([(4,), (3, 5)]), "axis": st.sampled_from([-1, 0])}),
    arrays=one_array,
    ours=lambda c, x: gm.straight_through_one_hot(x, axis=c.axis),
    eager=eager_one_hot,
    dtypes=FLOATING,
    gradients=("x",),
)
TABLE = [ROUND, SIGN, WINDOW, CLAMP, SURROGATE, GUMBEL, ONE_HOT]


@pytest.mark.parametrize(("one", "dtype", "examples"), cases(TABLE))
def test_agrees_with_eager_pytorch(one, dtype, examples):
    run(one, dtype, examples)


def summed(fn):
    """The usual form, whose sum rounds, and is NaN at infinity."""
    return lambda c, x: x + jax.lax.stop_gradient(fn(x) - x)


FAULTS = [
    (ROUND, summed(jnp.round)),
    (ROUND, lambda c, x: jnp.round(x)),
    (SIGN, summed(jnp.sign)),
    (WINDOW, lambda c, x: gm.ste_sign(x)),
    (ONE_HOT, lambda c, x: gm.straight_through_one_hot(-x, axis=c.axis)),
    (GUMBEL, lambda c, logits, noise: gm.gumbel_softmax(logits, 0 * noise, tau=c.tau, hard=c.hard, axis=c.axis)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("one", "fault"), FAULTS, ids=[one.name for one, _ in FAULTS])
def test_a_planted_fault_is_caught(one, fault):
    assert is_caught(dataclasses.replace(one, ours=fault))


def test_values_to_the_last_bit():
    x = np.array([0.3, 2.5, 3.5, -0.2, np.inf, -np.inf, 16777217.0, 1e30], np.float32)
    found = gm.ste_round(x)
    np.testing.assert_array_equal(found, torch.round(torch.tensor(x)))
    assert np.signbit(found[3])
    assert np.isnan(gm.ste_round(np.float32(np.nan)))


def test_the_sign_of_what_is_no_number_is_pytorchs():
    x = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32)
    for window in (None, 1.0):
        np.testing.assert_array_equal(gm.ste_sign(x, window=window), torch.sign(torch.from_numpy(x)))


def test_forward_mode_higher_derivatives_and_pytrees():
    def fn(x):
        return gm.straight_through(jnp.sign, x, surrogate=jnp.tanh) ** 2

    for derivative in (jax.grad, jax.jacfwd):
        np.testing.assert_allclose(jax.jit(derivative(fn))(0.5), 2 * (1 - np.tanh(0.5) ** 2), rtol=1e-6)
    twice = jax.jit(jax.grad(jax.grad(lambda x: gm.straight_through(jnp.sign, x, surrogate=jnp.tanh))))(0.5)
    np.testing.assert_allclose(twice, jax.grad(jax.grad(jnp.tanh))(0.5), rtol=1e-6)
    tree = {"a": 1.4, "b": np.float32(2.6)}
    rounded = gm.straight_through(lambda t: jax.tree.map(jnp.round, t), tree)
    assert (float(rounded["a"]), float(rounded["b"])) == (1, 3)


def test_a_host_function_behind_a_straight_through():
    def fn(x):
        return gm.straight_through(lambda x: gm.opaque(np.rint, x, result=x), x)

    assert [float(y) for y in jax.jit(jax.value_and_grad(fn))(2.6)] == [3, 1]


def test_the_temperature_may_be_traced():
    traces = []

    @jax.jit
    def sample(logits, tau):
        traces.append(1)
        return gm.gumbel_softmax(logits, jnp.zeros(3), tau=tau)

    for tau in (0.5, 2.0):
        np.testing.assert_allclose(sample(np.arange(3.0), tau), torch.softmax(torch.arange(3.0) / tau, 0), rtol=1e-5)
    assert len(traces) == 1


@pytest.mark.parametrize("wrap", [jax.jit, lambda fn: fn], ids=["jit", "eager"])
@pytest.mark.parametrize(
    ("call", "error", "names"),
    [
        (lambda x: gm.straight_through(3, x), TypeError, "fn is 3"),
        (lambda x: gm.straight_through(jnp.sign, x, surrogate=3), TypeError, "surrogate is 3"),
        (lambda x: gm.straight_through(jnp.sum, x), ValueError, r"fn gives float32\[\], and float32\[3\] was wanted"),
        (lambda x: gm.straight_through(lambda x: x > 0, x), ValueError, "fn gives bool"),
        (lambda x: gm.straight_through(lambda x: (x, x), x), ValueError, "the structure of x"),
        (lambda x: gm.ste_round(x > 0), TypeError, "x is bool"),
        (lambda x: gm.ste_sign(x.astype(jnp.int32)), TypeError, "x is int32"),
        (lambda x: gm.ste_sign(x, window=-1.0), ValueError, "window is -1.0; give a number of at least 0"),
        (lambda x: gm.gumbel_softmax(x, x[:2]), ValueError, r"noise has shape \(2,\), and \(3,\) was wanted"),
        (lambda x: gm.gumbel_softmax(x > 0, x), TypeError, "logits is bool"),
    ],
)
def test_bad_input(wrap, call, error, names):
    with pytest.raises(error, match=names):
        wrap(call)(jnp.ones(3, jnp.float32))
