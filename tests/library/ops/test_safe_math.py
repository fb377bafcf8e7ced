"""Functions with finite gradients against PyTorch, at their singular points and away from them."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from differential import FLOATING, Differential, cases, is_caught, mask_of, run, values_of
from hypothesis import strategies as st

import graphmode as gm

SHAPES = st.fixed_dictionaries({"shape": st.sampled_from([(), (0,), (7,), (3, 4)])})
VECTORS = st.fixed_dictionaries(
    {
        "shape": st.sampled_from([(5,), (4, 3), (2, 3, 4)]),
        "ord": st.sampled_from([0.5, 1, 1.5, 2, 3, math.inf]),
        "axis": st.sampled_from([None, -1]),
        "keepdims": st.booleans(),
    }
)


def with_zeros(rng, config, dtype):
    x = values_of(rng, config.shape, dtype, special=False)
    return {"x": (x * mask_of(rng, config.shape)).astype(x.dtype)}


def pair_with_zeros(rng, config, dtype):
    return {"x": with_zeros(rng, config, dtype)["x"], "y": with_zeros(rng, config, dtype)["x"]}


def in_unit_interval(rng, config, dtype):
    x = np.clip(values_of(rng, config.shape, "float64", special=False), -1, 1)
    return {"x": x.astype(with_zeros(rng, config, dtype)["x"].dtype)}


def apart(singular, fn, value):
    """PyTorch's eager form: the function of the entries where it has a gradient, held values in the others."""

    def eager(c, x, **rest):
        out = value(x, **rest).detach().clone()
        regular = ~singular(x, **rest)
        out[regular] = fn(x[regular], **{name: y[regular] for name, y in rest.items()})
        return out

    return eager


NORM = Differential(
    name="safe_norm",
    configs=VECTORS,
    arrays=with_zeros,
    ours=lambda c, x: gm.safe_norm(x, ord=c.ord, axis=c.axis, keepdims=c.keepdims),
    eager=lambda c, x: torch.linalg.vector_norm(x, ord=c.ord, dim=c.axis, keepdim=c.keepdims),
    dtypes=FLOATING,
    gradients=("x",),
    exact=False,
)
SQRT = Differential(
    name="safe_sqrt",
    configs=SHAPES,
    arrays=lambda rng, c, dtype: {"x": abs(with_zeros(rng, c, dtype)["x"])},
    ours=lambda c, x: gm.safe_sqrt(x),
    eager=apart(lambda x: x == 0, torch.sqrt, torch.sqrt),
    dtypes=FLOATING,
    gradients=("x",),
    exact=False,
)
LOG = Differential(
    name="safe_log",
    configs=SHAPES,
    arrays=lambda rng, c, dtype: {"x": abs(with_zeros(rng, c, dtype)["x"])},
    ours=lambda c, x: gm.safe_log(x),
    eager=apart(lambda x: x == 0, torch.log, torch.log),
    dtypes=FLOATING,
    gradients=("x",),
    exact=False,
)
LOG_OTHERWISE = dataclasses.replace(
    LOG,
    name="safe_log otherwise",
    arrays=with_zeros,
    ours=lambda c, x: gm.safe_log(x, otherwise=-9.0),
    eager=apart(lambda x: x <= 0, torch.log, lambda x: torch.full_like(x, -9.0)),
)
ARCCOS = dataclasses.replace(
    LOG,
    name="safe_arccos",
    arrays=in_unit_interval,
    ours=lambda c, x: gm.safe_arccos(x),
    eager=apart(lambda x: x.abs() == 1, torch.acos, torch.acos),
)
ARCSIN = dataclasses.replace(
    LOG,
    name="safe_arcsin",
    arrays=in_unit_interval,
    ours=lambda c, x: gm.safe_arcsin(x),
    eager=apart(lambda x: x.abs() == 1, torch.asin, torch.asin),
)
DIVIDE = Differential(
    name="safe_divide",
    configs=SHAPES,
    arrays=pair_with_zeros,
    ours=lambda c, x, y: gm.safe_divide(x, y, otherwise=2.0),
    eager=lambda c, x, y: apart(lambda x, y: y == 0, lambda x, y: x / y, lambda x, y: torch.full_like(x, 2.0))(
        c, x, y=y
    ),
    dtypes=FLOATING,
    gradients=("x", "y"),
    exact=False,
)
ARCTAN2 = Differential(
    name="safe_arctan2",
    configs=SHAPES,
    arrays=pair_with_zeros,
    ours=lambda c, x, y: gm.safe_arctan2(x, y),
    eager=lambda c, x, y: torch.atan2(x, y),
    dtypes=FLOATING,
    gradients=("x", "y"),
    exact=False,
)


def written_where(c, x, mask):
    out = torch.full_like(x, -1)
    out[mask] = torch.log(x[mask])
    return out


WHERE = Differential(
    name="where_safe",
    configs=SHAPES,
    arrays=lambda rng, c, dtype: {"x": abs(with_zeros(rng, c, dtype)["x"])},
    ours=lambda c, x: gm.where_safe(x > 0, jnp.log, x, otherwise=-1),
    eager=lambda c, x: written_where(c, x, x > 0),
    dtypes=FLOATING,
    gradients=("x",),
    exact=False,
)
ROW_SHAPES = st.fixed_dictionaries({"shape": st.sampled_from([(1, 3), (4, 3)])})


def normalised(c, x):
    out = torch.zeros_like(x)
    kept = x.abs().sum(-1) > 0
    out[kept] = x[kept] / torch.linalg.norm(x[kept], dim=-1, keepdim=True)
    return out


ROWS = dataclasses.replace(
    WHERE,
    name="where_safe of rows",
    configs=ROW_SHAPES,
    ours=lambda c, x: gm.where_safe(
        jnp.abs(x).sum(-1) > 0, lambda x: x / jnp.linalg.norm(x, axis=-1, keepdims=True), x
    ),
    eager=normalised,
)
TABLE = [NORM, SQRT, LOG, LOG_OTHERWISE, ARCCOS, ARCSIN, DIVIDE, ARCTAN2, WHERE, ROWS]


@pytest.mark.parametrize(("one", "dtype", "examples"), cases(TABLE))
def test_agrees_with_eager_pytorch(one, dtype, examples):
    run(one, dtype, examples)


FAULTS = [
    (NORM, lambda c, x: jnp.sum(jnp.abs(x) ** c.ord, c.axis, keepdims=c.keepdims) ** (1 / c.ord)),
    (SQRT, lambda c, x: jnp.sqrt(x)),
    (SQRT, lambda c, x: jnp.where(x > 0, jnp.sqrt(x), 0)),
    (SQRT, lambda c, x: jnp.sqrt(x + 1e-6)),
    (LOG, lambda c, x: jnp.log(x + 1e-3)),
    (WHERE, lambda c, x: jnp.where(x > 0, jnp.log(x), -1)),
    (DIVIDE, lambda c, x, y: jnp.where(y == 0, 2.0, x / y)),
    (ARCTAN2, lambda c, x, y: jnp.arctan2(x, y)),
    (ROWS, lambda c, x: x / jnp.linalg.norm(x, axis=-1, keepdims=True)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("one", "fault"), FAULTS, ids=[one.name for one, _ in FAULTS])
def test_a_planted_fault_is_caught(one, fault):
    assert is_caught(dataclasses.replace(one, ours=fault))


SINGULAR = [
    (gm.safe_norm, np.zeros(3)),
    (lambda x: gm.safe_norm(x, ord=1.5), np.array([0.0, 1.0])),
    (lambda x: gm.safe_norm(x, ord=0.5), np.zeros(3)),
    (lambda x: gm.safe_norm(x, ord=math.inf), np.zeros(3)),
    (lambda x: gm.safe_sqrt(x).sum(), np.zeros(2)),
    (lambda x: gm.safe_log(x, otherwise=0.0).sum(), np.array([0.0, -1.0])),
    (lambda x: gm.safe_divide(1.0, x).sum(), np.zeros(2)),
    (lambda x: gm.safe_arccos(x).sum(), np.array([1.0, -1.0])),
    (lambda x: gm.safe_arcsin(x).sum(), np.array([1.0, -1.0])),
    (lambda x: gm.safe_arctan2(x[0], x[1]), np.zeros(2)),
]


@pytest.mark.parametrize(("fn", "x"), SINGULAR)
def test_first_and_second_derivatives_are_finite_in_both_modes(fn, x):
    lanes = np.stack([x, x])
    for derivative in (jax.grad(fn), jax.jacfwd(fn), jax.hessian(fn), jax.jacrev(jax.grad(fn))):
        assert np.isfinite(jax.jit(derivative)(x)).all()
        assert np.isfinite(jax.jit(jax.vmap(derivative))(lanes)).all()


def test_optax_norm_is_the_same_where_it_is_exact():
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    x[1] = 0
    ours = jax.value_and_grad(lambda x: gm.safe_norm(x, axis=-1).sum())(x)
    theirs = jax.value_and_grad(lambda x: optax.safe_norm(x, 0.0, axis=-1).sum())(x)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), ours, theirs)


def test_special_values_stay_those_of_the_plain_function():
    x = np.array([-0.0, 0.0, np.nan, np.inf, -1.0], np.float32)
    for ours, plain in ((gm.safe_sqrt, np.sqrt), (gm.safe_log, np.log), (gm.safe_arccos, np.arccos)):
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(ours(x), plain(x))
    assert np.signbit(gm.safe_sqrt(x)[0])
    zeros = np.array([0.0, -0.0])
    with np.errstate(all="ignore"):
        found, wanted = gm.safe_arctan2(zeros[:, None], zeros), np.arctan2(zeros[:, None], zeros)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))
    assert np.isnan(gm.safe_divide(1.0, np.nan))
    assert np.isnan(gm.safe_norm(np.array([np.nan, 0])))


@pytest.mark.parametrize("ord", [1, math.inf])
@pytest.mark.parametrize("x", [[np.nan, 1.0], [1.0, np.nan, np.nan], [-np.nan, 0.0], [np.nan]], ids=str)
def test_the_gradient_of_a_norm_at_nan_is_pytorchs(ord, x):
    tensor = torch.tensor(x, requires_grad=True)
    torch.linalg.vector_norm(tensor, ord).backward()
    value, gradient = jax.value_and_grad(lambda x: gm.safe_norm(x, ord=ord))(np.float32(x))
    assert np.isnan(value)
    np.testing.assert_array_equal(gradient, tensor.grad)


def test_low_precision_norm_does_not_overflow():
    x = np.full(4, 300, np.float16)
    assert gm.safe_norm(x).dtype == jnp.float16
    assert float(gm.safe_norm(x)) == float(torch.linalg.vector_norm(torch.from_numpy(x))) == 600


def test_dtypes_and_weak_types():
    x = jnp.ones(3, jnp.bfloat16)
    assert gm.safe_divide(x, 2.0).dtype == jnp.bfloat16
    assert gm.safe_divide(1.0, x).dtype == jnp.bfloat16
    assert gm.safe_divide(np.int32(3), np.int32(2)).dtype == jnp.float32
    assert gm.where_safe(x > 0, jnp.log, x).dtype == jnp.bfloat16


def test_inverse_of_a_singular_matrix():
    good, bad = np.array([[2.0, 0], [1, 1]], np.float32), np.ones((2, 2), np.float32)

    def inverse(a):
        return gm.attempt(jnp.linalg.inv, a, otherwise=jnp.eye(2))

    def eager(a):
        try:
            return torch.linalg.inv(a)
        except torch.linalg.LinAlgError:
            return torch.eye(2) + 0 * a

    stacked = np.stack([good, bad])
    gradients = jax.jit(jax.vmap(jax.grad(lambda a: inverse(a).sum())))(stacked)
    for i, a in enumerate(stacked):
        tensor = torch.tensor(a, requires_grad=True)
        wanted = eager(tensor)
        np.testing.assert_allclose(jax.jit(inverse)(a), wanted.detach(), rtol=1e-5)
        np.testing.assert_allclose(jax.jit(jax.vmap(inverse))(stacked)[i], wanted.detach(), rtol=1e-5)
        (gradient,) = torch.autograd.grad(wanted.sum(), tensor)
        np.testing.assert_allclose(gradients[i], gradient, rtol=1e-5)
        np.testing.assert_allclose(jax.grad(lambda a: inverse(a).sum())(a), gradient, rtol=1e-5)


def test_attempt_of_a_pytree_with_one_number_otherwise():
    def fn(x, n):
        return {"y": 1 / x, "n": n}

    found = jax.jit(lambda x: gm.attempt(fn, x, 3, otherwise=-1))(np.array([0.0, 1.0]))
    assert found["y"].tolist() == [-1, -1]
    assert int(found["n"]) == -1


def test_softmax_and_logsumexp_of_an_all_masked_row():
    """X03: `where=` of JAX's own functions is the answer; a mask of -inf gives NaN in both worlds."""
    mask = np.array([[True, True, False], [False, False, False]])
    x = np.random.default_rng(0).standard_normal(mask.shape).astype(np.float32)
    weights, pull = jax.vjp(lambda x: jax.nn.softmax(x, where=mask), x)
    np.testing.assert_allclose(weights[0, :2], torch.softmax(torch.tensor(x[0, :2]), 0), rtol=1e-6)
    assert weights[1].tolist() == [0, 0, 0]
    assert pull(weights)[0][1].tolist() == [0, 0, 0]
    total, pull = jax.vjp(lambda x: jax.nn.logsumexp(x, axis=-1, where=mask), x)
    np.testing.assert_allclose(total[0], torch.logsumexp(torch.tensor(x[0, :2]), 0), rtol=1e-6)
    assert total[1] == -np.inf
    assert pull(np.ones(2, np.float32))[0][1].tolist() == [0, 0, 0]
    assert torch.softmax(torch.tensor([-math.inf] * 2), 0).isnan().all()


def test_one_compilation_for_all_values():
    traces = []

    @jax.jit
    def norm(x):
        traces.append(x.shape)
        return gm.safe_norm(x)

    for x in (np.zeros(3), np.ones(3), np.full(3, np.nan)):
        norm(x)
    assert len(traces) == 1


@pytest.mark.parametrize("wrap", [jax.jit, lambda fn: fn], ids=["jit", "eager"])
@pytest.mark.parametrize(
    ("call", "error", "names"),
    [
        (lambda x: gm.safe_norm(x.astype(jnp.int32)), TypeError, "x is int32"),
        (lambda x: gm.safe_norm(x, ord=0), ValueError, "ord is 0"),
        (lambda x: gm.safe_norm(x, ord=-math.inf), ValueError, "ord is -inf"),
        (lambda x: gm.safe_log(x > 0), TypeError, "x is bool"),
        (lambda x: gm.where_safe(x, jnp.log, x), ValueError, "mask has dtype float32"),
        (
            lambda x: gm.where_safe(x[:2] > 0, jnp.log, x),
            ValueError,
            r"mask has shape \(2,\), and an argument has \(3,\)",
        ),
        (lambda x: gm.where_safe(x > 0, jnp.sum, x), ValueError, r"mask has shape \(3,\), and fn gives \(\)"),
        (lambda x: gm.attempt(jnp.log, x, otherwise=jnp.zeros(2)), ValueError, "otherwise|broadcast"),
        (lambda x: gm.attempt(jnp.sum, x, otherwise=jnp.zeros(2)), ValueError, "otherwise has shape"),
    ],
)
def test_bad_input(wrap, call, error, names):
    with pytest.raises(error, match=names):
        wrap(call)(jnp.ones(3, jnp.float32))
