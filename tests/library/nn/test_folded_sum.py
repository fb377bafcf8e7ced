"""`folded_sum` and the losses that it sums: large arrays against float64, derivatives, vmap, and what is kept of it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import graphmode.nn.functional as ours
from graphmode.nn import folded_sum as module
from graphmode.nn.folded_sum import (
    COLUMNS,
    FOLDS,
    LEAST,
    MOST,
    PIECES,
    added_up,
    folded_rows,
    folded_sum,
    joint_row_sums,
    sum_and_count,
)

SIZE = LEAST + 3  # with a rest beside the folds


def bent(x: jax.Array, y: jax.Array, scale: float) -> jax.Array:
    return jnp.minimum(jnp.abs(x - y), 1) * scale * x


def drawn(*shape: int, count: int = 2) -> list[jax.Array]:
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.standard_normal(shape), jnp.float32) for _ in range(count)]


def total(x: jax.Array, y: jax.Array) -> jax.Array:
    return folded_sum(bent, x, y, scale=1.5)


def plain(x: jax.Array, y: jax.Array) -> jax.Array:
    return bent(x, y, 1.5).sum()


TRANSFORMED = {
    "itself": lambda f: f,
    "jit": jax.jit,
    "grad": lambda f: jax.grad(f, (0, 1)),
    "jvp": lambda f: lambda x, y: jax.jvp(f, (x, y), (y, x)),
    "second derivative": lambda f: jax.grad(lambda x, y: (jax.grad(f)(x, y) * y).sum()),
    "vmap": lambda f: lambda x, y: jax.vmap(f, (0, None))(jnp.stack([x, y]), y),
    "gradients of lanes": lambda f: lambda x, y: jax.vmap(jax.grad(f), (None, 0))(x, jnp.stack([x + 1, y])),
}


@pytest.mark.parametrize("name", TRANSFORMED)
@pytest.mark.parametrize("shape", [(SIZE,), (FOLDS, LEAST // FOLDS), (3, 5)])
def test_it_is_the_sum_and_so_are_its_derivatives(name, shape):
    x, y = drawn(*shape)
    found, wanted = (TRANSFORMED[name](f)(x, y) for f in (total, plain))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-4), found, wanted)


@pytest.mark.parametrize("name", TRANSFORMED)
@pytest.mark.parametrize("shape", [(LEAST // 100, 10 * PIECES), (2, LEAST // 1000, 500), (3, 5)])
def test_rows_are_summed_and_so_are_their_derivatives(name, shape):
    x, y = drawn(*shape)

    def weighted(rows):
        return lambda x, y: (rows(x, y[..., :1]) * jnp.cos(y[..., 1])).sum()

    forms = (lambda x, y: folded_rows(bent, x, y, scale=1.5), lambda x, y: bent(x, y, 1.5).sum(-1))
    found, wanted = (TRANSFORMED[name](weighted(f))(x, y) for f in forms)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-3), found, wanted)
    if name == "itself":
        np.testing.assert_allclose(*(f(x, y[..., :1]) for f in forms), rtol=2e-5, atol=1e-4)


def test_nothing_is_written_out_between_value_and_gradient():
    x, y = drawn(LEAST)

    def step(f):
        return jax.jit(jax.value_and_grad(lambda x, y: f(x, y) ** 2)).lower(x, y).compile().memory_analysis()

    if jax.default_backend() != "cpu":
        pytest.skip("folds are a CPU's")
    assert step(total).temp_size_in_bytes <= LEAST * 4 // FOLDS + 4096
    if jax.__version_info__ < (0, 12):  # whose XLA writes nothing out of the plain sum either
        assert step(plain).temp_size_in_bytes > LEAST * 4 // FOLDS + 4096, "the plain sum is as good: fold no more"


def test_eager_calls_compile_once():
    x, y = drawn(LEAST)
    traced = []

    def counted(x, y):
        traced.append(x.shape)
        return x * y

    for _ in range(3):
        folded_sum(counted, x, y)
    assert len(traced) <= 2 * (FOLDS + 1), "each call traces the folds again"


def signs(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0, 1.0, -1.0).to(x)


LOSSES = {
    "l1_loss": ({}, lambda x, y: (x, y)),
    "mse_loss": ({}, lambda x, y: (x, y)),
    "smooth_l1_loss": ({"beta": 0.7}, lambda x, y: (x, y)),
    "huber_loss": ({"delta": 1.3}, lambda x, y: (x, y)),
    "kl_div": ({"reduction": "batchmean"}, lambda x, y: (x, y.abs())),
    "poisson_nll_loss": ({"full": True}, lambda x, y: (x, y.abs() * 3)),
    "hinge_embedding_loss": ({"margin": 0.8}, lambda x, y: (x, signs(y))),
    "margin_ranking_loss": ({"margin": 0.1}, lambda x, y: (x, y, signs(x + y))),
}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_large_arrays_are_pytorchs(name, masked):
    static, inputs = LOSSES[name]
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(261, 257, generator=generator, dtype=torch.float64) for _ in range(2))
    assert x.numel() > LEAST
    mask = torch.rand(261, 257, generator=generator) < 0.6 if masked else torch.ones(261, 257, dtype=torch.bool)
    x.requires_grad_()
    arrays = inputs(x, y)
    loss = getattr(torch.nn.functional, name)(*arrays, **{**static, "reduction": "none"})[mask]
    rows = 261 if "batchmean" in static.values() else loss.numel()
    wanted = loss.sum() / rows
    (slope,) = torch.autograd.grad(wanted, [x])
    given = [jnp.asarray(a.detach().numpy(), jnp.float32) for a in arrays]
    # What is not counted may be anything.
    given[0] = jnp.where(mask.numpy(), given[0], jnp.nan)

    def ported(first):
        arguments = (jnp.where(mask.numpy(), first, jnp.nan), *given[1:])
        return getattr(ours, name)(*arguments, **static, mask=jnp.asarray(mask.numpy()) if masked else None)

    value, gradient = jax.jit(jax.value_and_grad(ported))(jnp.nan_to_num(given[0]))
    np.testing.assert_allclose(value, wanted.detach(), rtol=2e-6)
    np.testing.assert_allclose(gradient, slope, rtol=2e-5, atol=2e-6 * float(slope.abs().max()))


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("masked", [False, True])
def test_margins_of_many_classes_are_pytorchs(p, masked):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(261, 257, generator=generator, dtype=torch.float64, requires_grad=True)
    target = torch.randint(257, (261,), generator=generator)
    weight = torch.rand(257, generator=generator, dtype=torch.float64)
    assert x.numel() > LEAST
    mask = torch.rand(261, generator=generator) < 0.6 if masked else torch.ones(261, dtype=torch.bool)
    each = torch.nn.functional.multi_margin_loss(x, target, p=p, margin=0.7, weight=weight, reduction="none")
    wanted = each[mask].mean()
    (slope,) = torch.autograd.grad(wanted, [x])
    given = [jnp.asarray(a.detach().numpy(), kind) for a, kind in ((target, jnp.int32), (weight, jnp.float32))]

    def ported(x):
        counted = jnp.asarray(mask.numpy()) if masked else None
        return ours.multi_margin_loss(x, given[0], p=p, margin=0.7, weight=given[1], mask=counted)

    value, gradient = jax.jit(jax.value_and_grad(ported))(jnp.asarray(x.detach().numpy(), jnp.float32))
    np.testing.assert_allclose(value, wanted.detach(), rtol=2e-6)
    np.testing.assert_allclose(gradient, slope, rtol=2e-5, atol=2e-6 * float(slope.abs().max()))


def test_a_fold_that_is_lost_is_seen(monkeypatch):
    x, y = drawn(SIZE)
    monkeypatch.setattr(module, "reduce", lambda add, parts: module.lax.add(parts[0], parts[1]))
    assert abs(folded_sum(lambda x, y: x * x + y, x, y) - (x * x + y).sum()) > 1000


@pytest.mark.parametrize("margin", ["wide", None, [1.0, 2.0]])
def test_what_is_no_number_is_refused_by_name(margin):
    x = jnp.ones(3)
    with pytest.raises(TypeError, match=r"margin is .*; give a number"):
        ours.hinge_embedding_loss(x, x, margin=margin)


def test_a_number_of_the_graph_is_refused_by_name():
    x = jnp.ones(3)
    with pytest.raises(TypeError, match=r"margin is .*known when the graph is traced"):
        jax.jit(lambda margin: ours.margin_ranking_loss(x, x, x, margin=margin))(1.0)
    assert ours.margin_ranking_loss(x, x, x, margin=np.float32(0.5)) == 0.5


SHAPES = [(LEAST // 100, 112), (2, LEAST // 1000, 501), (LEAST // 256, 256), (70, 999), (3, 5)]


def products(x: jax.Array, y: jax.Array, scale: float) -> tuple[jax.Array, jax.Array, jax.Array]:
    return x * y * scale, jnp.square(x), jnp.sin(y)


@pytest.mark.parametrize("name", TRANSFORMED)
@pytest.mark.parametrize("shape", SHAPES)
def test_sums_of_the_same_rows_and_their_derivatives(name, shape):
    x, y = drawn(*shape)

    def weighted(sums):
        return lambda x, y: sum((one * jnp.cos(y[..., 1]) * (i + 1)).sum() for i, one in enumerate(sums(x, y)))

    def joint(x, y):
        return joint_row_sums(products, x, y, scale=1.5)

    def one_by_one(x, y):
        return tuple(one.sum(-1) for one in products(x, y, 1.5))

    found, wanted = (TRANSFORMED[name](weighted(f))(x, y) for f in (joint, one_by_one))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-3), found, wanted)


@pytest.mark.parametrize("size", [COLUMNS, 37, MOST, MOST + COLUMNS, 0])
def test_a_sum_and_how_many_count(size):
    (x,) = drawn(size, count=1)
    counts = jnp.asarray(np.random.default_rng(1).random(size) < 0.7)
    (total, count), slope = jax.vjp(lambda x: jax.jit(sum_and_count)(x, counts), x)
    assert count.dtype == x.dtype
    assert int(count) == int(counts.sum())
    np.testing.assert_allclose(total, np.asarray(x, np.float64).sum(), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(slope((jnp.float32(2), jnp.float32(3)))[0], np.full(size, 2))


def test_pieces_of_an_axis_are_added():
    x = jnp.arange(24.0).reshape(2, 6, 2)
    found = added_up((x, 2 * x), 1, 3)
    for one, factor in zip(found, (1, 2), strict=True):
        np.testing.assert_array_equal(one, factor * sum(x[:, 2 * i : 2 * i + 2] for i in range(3)))
