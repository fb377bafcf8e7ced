"""Embeddings beyond PyTorch's own cases: padding, renormalised rows, frequencies, bags, indices out of range."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from graphmode import nn
from graphmode.nn import functional as F
from graphmode.weights import load, to_state_dict

RNG = np.random.default_rng(0)
TABLE = 2 * RNG.standard_normal((6, 3))


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def agree(name: str, indices: list, *rest, table: np.ndarray = TABLE, extra: str = "", **kwargs) -> None:
    """Values and gradients by the table (and by `extra`), compiled, against PyTorch."""
    weight = torch.tensor(table, requires_grad=True)
    leaf = {extra: torch.tensor(kwargs.pop(extra), requires_grad=True)} if extra else {}
    original = getattr(torch.nn.functional, name)
    # The clone is renormalised in place; gradients go through it as they are.
    starts = {"offsets": torch.tensor(kwargs["offsets"])} if "offsets" in kwargs else {}
    expected = original(torch.tensor(indices), weight.clone(), *map(torch.tensor, rest), **{**kwargs, **starts}, **leaf)
    cotangent = RNG.standard_normal(expected.shape)
    expected.backward(torch.tensor(cotangent))

    def ours(weight, leaf, indices, rest):
        return getattr(F, name)(indices, weight, *rest, **kwargs, **leaf)

    def step(weight, leaf, indices, rest, cotangent):
        y, pull = jax.vjp(lambda w, at: ours(w, at, indices, rest), weight, leaf)
        return y, pull(cotangent)

    leaves = {key: jnp.asarray(value.detach().numpy()) for key, value in leaf.items()}
    given = (jnp.asarray(table), leaves, jnp.asarray(indices), tuple(map(jnp.asarray, rest)), jnp.asarray(cotangent))
    y, (by_weight, by_leaf) = jax.jit(step)(*given)
    np.testing.assert_allclose(y, expected.detach(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(by_weight, weight.grad.to_dense(), rtol=1e-12, atol=1e-12)
    if extra:
        np.testing.assert_allclose(by_leaf[extra], leaf[extra].grad, rtol=1e-12, atol=1e-12)


LOOKUPS = {
    "plain": {},
    "padding": {"padding_idx": 2},
    "padding from the end": {"padding_idx": -6},
    "max_norm": {"max_norm": 1.0},
    "max_norm by the largest": {"max_norm": 1.0, "norm_type": float("inf")},
    "max_norm by half a power": {"max_norm": 1.0, "norm_type": 0.5},
    "max_norm by count": {"max_norm": 1.0, "norm_type": 0.0},
    "frequency": {"scale_grad_by_freq": True},
    "all": {"scale_grad_by_freq": True, "max_norm": 0.5, "padding_idx": 1},
    "sparse": {"sparse": True},
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_embedding(name):
    agree("embedding", [[1, 1, 2], [0, 5, 1]], **LOOKUPS[name])


def test_embedding_of_one_index_and_of_none():
    agree("embedding", 3)
    agree("embedding", np.zeros((0, 2), np.int64))


BAGS = {
    "padding": {"padding_idx": 1},
    "padding from the end": {"padding_idx": -1},
    "max_norm": {"max_norm": 1.0, "norm_type": 1.0},
}


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("name", BAGS)
def test_embedding_bag(name, mode):
    agree("embedding_bag", [[1, 1, 2], [1, 5, 5], [1, 1, 1]], mode=mode, **BAGS[name])
    agree("embedding_bag", [1, 1, 2, 5, 5, 1, 0], mode=mode, offsets=np.array([0, 0, 3, 5, 6, 7]), **BAGS[name])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_the_end_of_the_last_bag(mode):
    agree("embedding_bag", [1, 1, 2, 5, 5], mode=mode, offsets=np.array([0, 2, 5]), include_last_offset=True)
    early = F.embedding_bag(
        jnp.asarray([1, 2, 3, 4]), jnp.asarray(TABLE), jnp.asarray([0, 2, 3]), mode=mode, include_last_offset=True
    )
    np.testing.assert_allclose(early[1], TABLE[3])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_without_entries(mode):
    agree("embedding_bag", np.zeros(0, np.int64), mode=mode, offsets=np.array([0, 0]))
    agree("embedding_bag", np.zeros((0, 3), np.int64), mode=mode)
    assert F.embedding_bag(jnp.asarray([1]), jnp.asarray(TABLE), jnp.zeros(0, int), mode=mode).shape == (0, 3)


def test_weights_of_samples():
    factors = RNG.standard_normal((2, 3))
    for padding_idx in (None, 1):
        agree(
            "embedding_bag",
            [[1, 1, 2], [0, 5, 1]],
            mode="sum",
            extra="per_sample_weights",
            per_sample_weights=factors,
            padding_idx=padding_idx,
        )


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_divide_a_gradient_by_the_frequency_of_its_own_row(mode):
    """PyTorch's CPU kernel divides by the count of another row unless all rows occur equally often."""
    agree("embedding_bag", [[1, 1, 2], [2, 5, 5]], mode=mode, scale_grad_by_freq=True)
    indices = jnp.asarray([[1, 1, 2], [2, 1, 5]])
    bags = lambda table, by: F.embedding_bag(indices, table, mode=mode, scale_grad_by_freq=by).sum()  # noqa: E731
    plain, scaled = (jax.grad(bags)(jnp.asarray(TABLE), by) for by in (False, True))
    np.testing.assert_allclose(scaled, plain / np.array([1, 3, 2, 1, 1, 1])[:, None])


@pytest.mark.parametrize("indices", [[0, 1, 2, 1], [2, 1, 0], [3, 0], [0, 3], [4, 3], [3, 3], [5, 4]])
def test_maxima_at_ties_nan_and_infinity(indices):
    table = np.array([[1.0, 1], [1, 1], [0, 2], [np.nan, 1], [-np.inf, np.nan], [-np.inf, -np.inf]])
    agree("embedding_bag", indices, table=table, mode="max", offsets=np.array([0]))
    agree("embedding_bag", [indices], table=table, mode="max")


@pytest.mark.parametrize("of", ["Embedding", "EmbeddingBag"])
def test_modules_write_renormalised_rows(of):
    original = getattr(torch.nn, of)(6, 3, max_norm=1.0, padding_idx=-2).double()
    layer = getattr(nn, of)(6, 3, max_norm=1.0, padding_idx=-2, param_dtype=jnp.float64, rngs=nnx.Rngs(0))
    with torch.no_grad():
        original.weight.copy_(torch.tensor(TABLE))
    load(layer, original.state_dict())
    indices = np.array([[0, 4], [0, 2]])
    cotangent = RNG.standard_normal((2, 2, 3)[: 3 if of == "Embedding" else 1] + (() if of == "Embedding" else (3,)))
    (original(torch.tensor(indices)) * torch.tensor(cotangent)).sum().backward()
    graphdef, state = nnx.split(layer)

    @jax.jit
    def step(state):
        def loss(state):
            module = nnx.merge(graphdef, state)
            return (module(jnp.asarray(indices)) * cotangent).sum(), nnx.state(module)

        return jax.grad(loss, has_aux=True)(state)

    gradient, after = step(state)
    np.testing.assert_allclose(gradient["weight"][...], original.weight.grad, rtol=1e-12)
    np.testing.assert_allclose(after["weight"][...], original.weight.detach(), rtol=1e-12)
    np.testing.assert_array_equal(layer.weight[...], TABLE)
    found = nnx.grad(lambda module: (module(jnp.asarray(indices)) * cotangent).sum())(layer)
    np.testing.assert_allclose(found["weight"][...], original.weight.grad, rtol=1e-12)
    np.testing.assert_allclose(layer.weight[...], original.weight.detach(), rtol=1e-12)


def test_pretrained_rows():
    frozen = nn.Embedding.from_pretrained(TABLE, padding_idx=0)
    assert not isinstance(frozen.weight, nnx.Param)
    np.testing.assert_array_equal(frozen(jnp.asarray([0, 3])), TABLE[[0, 3]])
    assert list(to_state_dict(frozen, framework="numpy")) == ["weight"]
    assert isinstance(nn.Embedding.from_pretrained(TABLE, freeze=False).weight, nnx.Param)
    bags = nn.EmbeddingBag.from_pretrained(jnp.asarray(TABLE), mode="sum", include_last_offset=True)
    assert not isinstance(bags.weight, nnx.Param)
    np.testing.assert_allclose(bags(jnp.asarray([0, 3]), jnp.asarray([0, 2]))[0], TABLE[[0, 3]].sum(0))
    assert isinstance(nn.EmbeddingBag.from_pretrained(TABLE, False).weight, nnx.Param)


def test_indices_out_of_range():
    table = jnp.asarray(TABLE)
    for bad in (6, -1):
        with pytest.raises(IndexError, match="input goes from"):
            F.embedding(jnp.asarray([0, bad]), table)
        rows = jax.jit(F.embedding)(jnp.asarray([0, bad]), table)
        assert jnp.isnan(rows[1]).all()
        assert not jnp.isnan(rows[0]).any()
        for mode in ("sum", "mean", "max"):
            with pytest.raises(IndexError, match="input goes from"):
                F.embedding_bag(jnp.asarray([[0, bad]]), table, mode=mode)
            bags = jax.jit(lambda i, mode=mode: F.embedding_bag(i, table, mode=mode))(jnp.asarray([[0, bad], [1, 2]]))
            assert jnp.isnan(bags[0]).all()
            assert not jnp.isnan(bags[1]).any()
        gradient = jax.jit(jax.grad(lambda w, bad=bad: jnp.nansum(F.embedding(jnp.asarray([0, bad]), w))))
        np.testing.assert_array_equal(np.asarray(gradient(table)).sum(1), [3, 0, 0, 0, 0, 0])


def test_one_hot():
    classes = jnp.asarray([[0, 3], [1, 1]])
    expected = torch.nn.functional.one_hot(torch.tensor(np.asarray(classes)))
    found = F.one_hot(classes)
    assert found.dtype == jnp.int64
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(jax.jit(lambda i: F.one_hot(i, 3))(jnp.asarray([0, 3, -1])).sum(-1), [1, 0, 0])
    assert F.one_hot(jnp.zeros((0, 2), int), 4).shape == (0, 2, 4)
    with pytest.raises(ValueError, match="not known in a graph"):
        jax.jit(F.one_hot)(classes)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precisions_are_kept_and_summed_in_float32(dtype):
    table = jnp.full((2, 3), 1.0, dtype)
    many = jnp.zeros((1, 5000), int)
    assert F.embedding(many, table).dtype == dtype
    for mode, value in (("sum", 5000), ("mean", 1), ("max", 1)):
        found = F.embedding_bag(many, table, mode=mode)
        assert found.dtype == dtype
        np.testing.assert_allclose(np.asarray(found, float), value, rtol=1e-2)


def test_vmap_over_tables():
    tables, indices = jnp.asarray(RNG.standard_normal((4, 6, 3))), jnp.asarray([[1, 2], [5, 0]])
    np.testing.assert_array_equal(jax.vmap(lambda t: F.embedding(indices, t))(tables)[2], tables[2][indices])
    bags = jax.vmap(lambda t: F.embedding_bag(indices.ravel(), t, jnp.asarray([0, 2]), mode="max"))(tables)
    np.testing.assert_array_equal(bags[2], tables[2][indices].max(1))


REFUSED = {
    "padding_idx is 6": lambda: nn.Embedding(6, 3, padding_idx=6, rngs=nnx.Rngs(0)),
    "padding_idx is -7": lambda: nn.EmbeddingBag(6, 3, padding_idx=-7, rngs=nnx.Rngs(0)),
    "padding_idx is 9": lambda: F.embedding(jnp.asarray([0]), TABLE, padding_idx=9),
    "num_embeddings is -1": lambda: nn.Embedding(-1, 3, rngs=nnx.Rngs(0)),
    "_weight has shape": lambda: nn.Embedding(6, 4, _weight=TABLE),
    "weight has shape": lambda: F.embedding(jnp.asarray([0]), TABLE[0]),
    "mode is 'median'": lambda: nn.EmbeddingBag(6, 3, mode="median", rngs=nnx.Rngs(0)),
    "offsets is None": lambda: F.embedding_bag(jnp.asarray([0]), TABLE),
    "offsets is given": lambda: F.embedding_bag(jnp.asarray([[0]]), TABLE, jnp.asarray([0])),
    "offsets has shape": lambda: F.embedding_bag(jnp.asarray([0]), TABLE, jnp.asarray([[0]])),
    r"offsets is \[1\]": lambda: F.embedding_bag(jnp.asarray([0]), TABLE, jnp.asarray([1])),
    r"offsets is \[0, 7\]": lambda: F.embedding_bag(jnp.asarray([0]), TABLE, jnp.asarray([0, 7])),
    "offsets is empty": lambda: F.embedding_bag(jnp.asarray([0]), TABLE, jnp.zeros(0, int), include_last_offset=True),
    "input has shape .1, 1, 1.": lambda: F.embedding_bag(jnp.asarray([[[0]]]), TABLE),
    "bags without entries": lambda: F.embedding_bag(jnp.zeros((2, 0), int), TABLE),
    "scale_grad_by_freq is not": lambda: F.embedding_bag(
        jnp.asarray([[0]]), TABLE, mode="max", scale_grad_by_freq=True
    ),
    "sparse is not": lambda: F.embedding_bag(jnp.asarray([[0]]), TABLE, mode="max", sparse=True),
    "mode='sum' only": lambda: F.embedding_bag(jnp.asarray([[0]]), TABLE, per_sample_weights=jnp.ones((1, 1))),
    "per_sample_weights has shape": lambda: F.embedding_bag(
        jnp.asarray([[0]]), TABLE, mode="sum", per_sample_weights=jnp.ones(1)
    ),
    "class -1": lambda: F.one_hot(jnp.asarray([-1])),
    "class 3": lambda: F.one_hot(jnp.asarray([3]), 2),
    "input is empty": lambda: F.one_hot(jnp.zeros(0, int)),
}


@pytest.mark.parametrize(("message", "call"), REFUSED.items(), ids=REFUSED)
def test_what_is_refused_names_the_argument(message, call):
    with pytest.raises(ValueError, match=message):
        call()


WRONG_DTYPES = {
    "input is float64": lambda: nn.Embedding(6, 3, rngs=nnx.Rngs(0))(jnp.ones(2)),
    "input is float32": lambda: F.one_hot(jnp.ones(2, jnp.float32)),
    "offsets is float64": lambda: F.embedding_bag(jnp.asarray([0]), TABLE, jnp.zeros(1)),
    "per_sample_weights is float32": lambda: F.embedding_bag(
        jnp.asarray([[0]]), TABLE, mode="sum", per_sample_weights=jnp.ones((1, 1), jnp.float32)
    ),
    "rngs is None": lambda: nn.Embedding(6, 3),
}


@pytest.mark.parametrize(("message", "call"), WRONG_DTYPES.items(), ids=WRONG_DTYPES)
def test_wrong_types_are_refused(message, call):
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize("of", ["Embedding", "EmbeddingBag"])
def test_initial_values_are_drawn_as_torch_draws(of):
    weight = np.asarray(getattr(nn, of)(50, 400, padding_idx=3, rngs=nnx.Rngs(0)).weight[...])
    assert weight.dtype == np.float32
    assert not weight[3].any()
    drawn = np.delete(weight, 3, 0)
    assert abs(drawn.mean()) < 4 / np.sqrt(drawn.size)
    assert abs(drawn.std() - 1) < 4 / np.sqrt(drawn.size)
    assert 3.5 < np.abs(drawn).max() < 6
