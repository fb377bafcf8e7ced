"""Distances and similarities beyond PyTorch's own cases: zeros, ties, every norm, dtypes, bad input."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from graphmode import nn
from graphmode.nn import functional as F

RNG = np.random.default_rng(0)
NORMS = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.5, float("inf")]


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def agree(name: str, *arrays: np.ndarray, **kwargs) -> None:
    """Values and gradients by all arrays, compiled, against PyTorch."""
    tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
    original = getattr(torch.nn.functional, name, None) or getattr(torch, name)
    expected = original(*tensors, **kwargs)
    cotangent = RNG.standard_normal(expected.shape)
    expected.backward(torch.tensor(cotangent))

    @jax.jit
    def step(arrays, cotangent):
        y, pull = jax.vjp(lambda *a: getattr(F, name)(*a, **kwargs), *arrays)
        return y, pull(cotangent)

    y, gradients = step(tuple(map(jnp.asarray, arrays)), jnp.asarray(cotangent))
    assert y.shape == expected.shape
    np.testing.assert_allclose(y, expected.detach(), rtol=1e-11, atol=1e-12)
    for ours, theirs in zip(gradients, tensors, strict=True):
        wanted = np.zeros(theirs.shape) if theirs.grad is None else theirs.grad
        np.testing.assert_allclose(ours, wanted, rtol=1e-9, atol=1e-11)


def with_zeros_and_ties(*shape: int) -> np.ndarray:
    array = RNG.integers(-2, 3, shape).astype(float)
    array.reshape(-1, shape[-1])[0] = 0
    return array


@pytest.mark.parametrize("p", [*NORMS, -float("inf"), -1.5])
def test_normalize(p):
    agree("normalize", RNG.standard_normal((3, 4, 2)), p=p)
    if p in NORMS:
        agree("normalize", with_zeros_and_ties(4, 3), p=p, dim=-1)


@pytest.mark.parametrize("dim", [0, -1, (0, 2)])
def test_normalize_along_axes(dim):
    agree("normalize", RNG.standard_normal((3, 4, 2)), dim=dim)


def test_normalize_at_its_least_norm():
    """The derivative at `eps` itself is that of the norm, below it none."""
    agree("normalize", np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]]), eps=5.0)


@pytest.mark.parametrize("p", NORMS)
def test_pairwise_distance(p):
    same = with_zeros_and_ties(4, 3)
    agree("pairwise_distance", same, same.copy(), p=p, eps=0.0)
    agree("pairwise_distance", RNG.standard_normal((4, 3)), RNG.standard_normal(3), p=p, keepdim=True)


@pytest.mark.parametrize("p", NORMS)
def test_all_pairs(p):
    rows = with_zeros_and_ties(5, 3)
    rows[1] = rows[2]
    agree("pdist", rows, p=p)
    agree("cdist", rows, with_zeros_and_ties(4, 3), p=p)


@pytest.mark.parametrize("shape", [(0, 3), (1, 3), (3, 0)])
def test_of_no_rows_and_no_columns(shape):
    """Values only: PyTorch's backward pass crashes on them."""
    x = np.zeros(shape)
    np.testing.assert_array_equal(F.pdist(jnp.asarray(x)), torch.nn.functional.pdist(torch.tensor(x)))
    np.testing.assert_array_equal(F.cdist(*[jnp.asarray(x)] * 2), torch.cdist(*[torch.tensor(x)] * 2))


@pytest.mark.parametrize("mode", ["use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"])
def test_cdist_broadcasts_and_has_no_slope_at_zero(mode):
    x = np.round(RNG.standard_normal((2, 1, 4, 3)) * 4)
    agree("cdist", x, np.concatenate([x[0, 0, :2], x[1, 0, :3]]), compute_mode=mode)


def test_cosine_similarity_where_vectors_are_short():
    x, y = RNG.standard_normal((2, 4, 3))
    x[0], y[1], x[2] = 0, 0, 1e-9
    agree("cosine_similarity", x, y)
    agree("cosine_similarity", x, y, dim=0)
    agree("cosine_similarity", x, y, eps=1.0)
    agree("cosine_similarity", x[:, None], y[None], dim=2)
    agree("cosine_similarity", x, x.copy())


def test_modules():
    x, y = (jnp.asarray(RNG.standard_normal((4, 3))) for _ in range(2))
    for layer, original in (
        (nn.CosineSimilarity(0, 1e-3), torch.nn.CosineSimilarity(0, 1e-3)),
        (nn.CosineSimilarity(), torch.nn.CosineSimilarity()),
        (nn.PairwiseDistance(1.0, 0.5, True), torch.nn.PairwiseDistance(1.0, 0.5, True)),
        (nn.PairwiseDistance(), torch.nn.PairwiseDistance()),
    ):
        expected = original(torch.tensor(np.asarray(x)), torch.tensor(np.asarray(y)))
        np.testing.assert_allclose(layer(x, y), expected, rtol=1e-12)
        np.testing.assert_allclose(jax.vmap(layer)(x[None], y[None])[0], expected, rtol=1e-12)


@pytest.mark.parametrize("p", [1.5, 2.0])
def test_second_derivatives_and_forward_mode(p):
    x = RNG.standard_normal((2, 3))
    cube = lambda x: (F.normalize(x, p) ** 3).sum()  # noqa: E731
    tensor = torch.tensor(x, requires_grad=True)
    loss = (torch.nn.functional.normalize(tensor, p) ** 3).sum()
    (gradient,) = torch.autograd.grad(loss, tensor, create_graph=True)
    (gradient**2).sum().backward()
    second = jax.jit(jax.grad(lambda x: (jax.grad(cube)(x) ** 2).sum()))(jnp.asarray(x))
    np.testing.assert_allclose(second, tensor.grad, rtol=1e-9)
    forward = jax.jit(jax.jacfwd(cube))(jnp.asarray(x))
    np.testing.assert_allclose(forward, gradient.detach(), rtol=1e-9)


def test_nan_stays():
    x = jnp.asarray([[jnp.nan, 1.0], [3.0, 4.0]])
    for y in (F.normalize(x), F.pairwise_distance(x, x), F.cosine_similarity(x, x), F.cdist(x, x)):
        assert jnp.isnan(y[0]).all()
    for y, wanted in (
        (F.cdist(x, x, 0.0), torch.cdist(*[torch.tensor(np.asarray(x))] * 2, 0.0)),
        (F.pdist(x, 0.0), torch.nn.functional.pdist(torch.tensor(np.asarray(x)), 0.0)),
    ):
        np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precisions_are_kept_and_summed_in_float32(dtype):
    x = jnp.ones((2, 3000), dtype)
    for y in (F.normalize(x), F.pairwise_distance(x, 2 * x), F.cosine_similarity(x, x), F.pdist(x), F.cdist(x, x)):
        assert y.dtype == dtype
    np.testing.assert_allclose(float(F.pairwise_distance(x, 2 * x)[0]), 3000**0.5, rtol=1e-2)
    assert F.cosine_similarity(x, x.astype(jnp.float32)).dtype == jnp.float32


REFUSED = {
    "dim is 2": lambda: F.cosine_similarity(jnp.ones((2, 3)), jnp.ones((2, 3)), dim=2),
    "dim is -3": lambda: F.normalize(jnp.ones((2, 3)), dim=-3),
    "do not broadcast": lambda: F.cosine_similarity(jnp.ones((2, 3)), jnp.ones((2, 4))),
    "which do not": lambda: F.pairwise_distance(jnp.ones((2, 3)), jnp.ones((2, 4))),
    "no axes": lambda: F.pairwise_distance(jnp.ones(()), jnp.ones(())),
    "p is -1": lambda: F.pdist(jnp.ones((2, 3)), p=-1),
    r"\[N, D\]": lambda: F.pdist(jnp.ones((2, 3, 4))),
    "P, D": lambda: F.cdist(jnp.ones((2, 3)), jnp.ones((2, 4))),
    "axes before the last two": lambda: F.cdist(jnp.ones((2, 2, 3)), jnp.ones((3, 2, 3))),
    "compute_mode is": lambda: F.cdist(jnp.ones((2, 3)), jnp.ones((2, 3)), compute_mode="quick"),
}


@pytest.mark.parametrize(("message", "call"), REFUSED.items(), ids=REFUSED)
def test_what_is_refused_names_the_argument(message, call):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("name", ["cosine_similarity", "pairwise_distance", "cdist", "pdist", "normalize"])
def test_integers_are_refused(name):
    x = jnp.ones((2, 3), jnp.int32)
    with pytest.raises(TypeError, match="floating"):
        getattr(F, name)(*([x] if name in ("pdist", "normalize") else [x, x]))


def test_a_planted_fault_is_seen(monkeypatch):
    """JAX's own norm has the derivative NaN at zero, PyTorch's 0."""
    wrong = lambda x1, x2, p, eps: jnp.linalg.norm(x1 - x2, axis=-1)  # noqa: E731
    monkeypatch.setattr(F, "pairwise_distance", wrong)
    same = with_zeros_and_ties(4, 3)
    with pytest.raises(AssertionError):
        agree("pairwise_distance", same, same.copy(), p=2.0, eps=0.0)
