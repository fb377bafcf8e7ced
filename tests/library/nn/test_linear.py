"""Linear layers and products beyond PyTorch's own cases: shapes, dtypes, autocast, bad input, initial values."""

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

from .verdicts import glance_at_function, glance_at_module

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def test_linear_judged_at_every_rank():
    verdict = glance_at_module("Linear", 3)
    assert verdict.agreed == verdict.tried > 0, verdict.failures


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5,), (0, 5), (2, 0, 5), (2, 3, 5)])
def test_linear(shape, bias):
    original = torch.nn.Linear(5, 7, bias)
    layer = nn.Linear(5, 7, bias, rngs=nnx.Rngs(0))
    load(layer, original.state_dict())
    x = normal(*shape)
    expected = original(torch.tensor(x)).detach().numpy()
    assert layer(jnp.asarray(x)).shape == expected.shape
    np.testing.assert_allclose(layer(jnp.asarray(x)), expected, atol=1e-6)
    np.testing.assert_allclose(jax.vmap(layer)(jnp.asarray(x)[None])[0], expected, atol=1e-6)


@pytest.mark.parametrize("sizes", [(0, 3), (3, 0)])
def test_linear_without_features(sizes):
    layer = nn.Linear(*sizes, rngs=nnx.Rngs(0))
    expected = torch.nn.Linear(*sizes)(torch.zeros(2, sizes[0]))
    assert layer(jnp.zeros((2, sizes[0]))).shape == expected.shape
    assert {k: v.shape for k, v in to_state_dict(layer, framework="numpy").items()} == {
        "weight": sizes[::-1],
        "bias": sizes[1:],
    }


def test_linear_function_of_a_single_output():
    x, weight = normal(2, 5), normal(5)
    expected = torch.nn.functional.linear(torch.tensor(x), torch.tensor(weight))
    found = F.linear(jnp.asarray(x), jnp.asarray(weight))
    assert found.shape == expected.shape == (2,)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert F.linear(jnp.asarray(x), jnp.asarray(weight), jnp.ones(())).shape == (2,)


def test_lazy_linear_becomes_linear():
    layer = nn.LazyLinear(4, bias=False, rngs=nnx.Rngs(0))
    with pytest.raises(RuntimeError, match="no parameters yet"):
        jax.jit(lambda x: layer(x))(jnp.ones((2, 3)))
    assert layer(jnp.ones((2, 3))).shape == (2, 4)
    assert type(layer) is nn.Linear
    assert layer.in_features == 3
    original = torch.nn.LazyLinear(4, bias=False)
    original(torch.ones(2, 3))
    load(layer, original.state_dict())
    np.testing.assert_allclose(layer(jnp.ones((2, 3))), original(torch.ones(2, 3)).detach(), atol=1e-6)
    with pytest.raises(ValueError, match="out_features"):
        nn.LazyLinear(-1, rngs=nnx.Rngs(0))


def test_the_weight_of_an_embedding_is_shared_transposed():
    rngs = nnx.Rngs(0)
    embedding, linear = nn.Embedding(7, 4, rngs=rngs), nn.Linear(4, 7, bias=False, rngs=rngs)
    x = embedding(jnp.arange(3))
    ours = F.linear(x, embedding.weight[...].T)
    table = torch.from_numpy(np.asarray(embedding.weight[...]))
    np.testing.assert_allclose(ours, torch.nn.functional.linear(table[:3], table), rtol=1e-5)
    linear.weight = embedding.weight
    with pytest.raises(ValueError, match=r"weight has shape \(7, 4\), and .* = \(4, 7\) was wanted.*Embedding"):
        linear(x)


def test_identity_hands_on_whatever_comes():
    layer = nn.Identity(54, unused_argument1=0.1)
    tree = (jnp.ones(3), {"a": 1})
    assert layer(tree) is tree


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32])
def test_results_keep_the_dtype(dtype):
    x = jnp.ones((2, 3, 3), dtype)
    assert nn.Linear(3, 4, param_dtype=dtype, rngs=nnx.Rngs(0))(x).dtype == dtype
    assert nn.Bilinear(3, 3, 4, param_dtype=dtype, rngs=nnx.Rngs(0))(x, x).dtype == dtype
    for y in (F.matmul(x, x), F.bmm(x, x), F.baddbmm(x, x, x, beta=0.5), F.einsum("bij,bjk->bik", x, x)):
        assert y.dtype == dtype


def test_autocast_takes_products_in_its_dtype():
    x = jnp.ones((2, 3, 3))
    with nn.autocast(jnp.bfloat16):
        found = [
            nn.Linear(3, 4, rngs=nnx.Rngs(0))(x),
            F.matmul(x, x.astype(jnp.bfloat16)),
            F.bmm(x, x),
            F.baddbmm(x, x, x),
            F.einsum("bij,bjk->bik", x, x),
        ]
        assert F.bilinear(x, x.astype(jnp.bfloat16), jnp.ones((4, 3, 3))).dtype == jnp.float32
    assert {y.dtype for y in found} == {jnp.dtype(jnp.bfloat16)}


def test_precision_reaches_the_product():
    x, eye = jnp.ones((2, 3)), jnp.ones((3, 3))
    sequences, built = jnp.ones((2, 5, 4)), {"precision": "highest", "rngs": nnx.Rngs(0)}
    attention = nn.MultiheadAttention(4, 2, batch_first=True, **built)
    queries, keys = attention.project_query(sequences), attention.project_key_value(sequences)
    encoder = nn.TransformerEncoderLayer(4, 2, 8, dropout=0, **built)
    decoder = nn.TransformerDecoderLayer(4, 2, 8, dropout=0, **built)
    adaptive = nn.AdaptiveLogSoftmaxWithLoss(3, 6, [2, 4], div_value=1, **built)
    calls = {
        "MultiheadAttention": lambda: attention(sequences, sequences, sequences),
        "MultiheadAttention.attend": lambda: attention.attend(queries, *keys),
        "TransformerEncoderLayer": lambda: encoder(sequences),
        "TransformerDecoderLayer": lambda: decoder(sequences, sequences),
        "AdaptiveLogSoftmaxWithLoss": lambda: adaptive(x, jnp.array([0, 5])),
        "linear": lambda: F.linear(x, eye, precision="highest"),
        "Linear": lambda: nn.Linear(3, 3, precision="highest", rngs=nnx.Rngs(0))(x),
        "bilinear": lambda: F.bilinear(x, x, jnp.ones((4, 3, 3)), precision="highest"),
        "matmul": lambda: F.matmul(x, eye, precision="highest"),
        "bmm": lambda: F.bmm(x[None], eye[None], precision="highest"),
        "baddbmm": lambda: F.baddbmm(x[None], x[None], eye[None], precision="highest"),
        "einsum": lambda: F.einsum("ij,jk", x, eye, precision="highest"),
        "cdist": lambda: F.cdist(x, eye, compute_mode="use_mm_for_euclid_dist", precision="highest"),
    }
    for name, call in calls.items():
        text = str(jax.make_jaxpr(call)())
        assert text.count("HIGHEST") >= text.count("dot_general") > 0, name


@pytest.mark.parametrize(
    ("equation", "shapes"),
    {
        "ii->i": [(3, 3)],
        "...ii->...i": [(2, 3, 3)],
        "bA,Ab": [(2, 3), (3, 2)],
        "ba": [(2, 3)],
        "Ba": [(2, 3)],
        "...a,...b": [(4, 2), (4, 3)],
        " i j , j k -> i k ": [(2, 3), (3, 4)],
        "ij,jk": [(2, 1), (3, 4)],
        "bn,anm,bm->ba": [(2, 5), (3, 5, 4), (2, 4)],
        "a...b->b...": [(2, 3, 4)],
        "iij->j": [(2, 2, 3)],
    }.items(),
)
def test_einsum_reads_an_equation_as_torch_does(equation, shapes):
    arrays = [normal(*shape) for shape in shapes]
    tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
    expected = torch.einsum(equation, *tensors)
    cotangent = normal(*expected.shape)
    expected.backward(torch.tensor(cotangent))
    found, pull = jax.vjp(lambda *a: F.einsum(equation, *a), *map(jnp.asarray, arrays))
    np.testing.assert_allclose(found, expected.detach(), atol=1e-5)
    for ours, theirs in zip(pull(jnp.asarray(cotangent)), tensors, strict=True):
        np.testing.assert_allclose(ours, theirs.grad, atol=1e-5)


def test_baddbmm_with_beta_zero_leaves_nan_out():
    one = jnp.ones((1, 2, 2))
    assert not jnp.isnan(F.baddbmm(jnp.full((1, 2, 2), jnp.nan), one, one, beta=0)).any()
    assert jnp.isnan(F.baddbmm(jnp.full((1, 2, 2), jnp.nan), one, one)).all()


REFUSED = {
    "in_features is -1": lambda: nn.Linear(-1, 4, rngs=nnx.Rngs(0)),
    "out_features is -4": lambda: nn.Linear(1, -4, rngs=nnx.Rngs(0)),
    "in1_features is 0": lambda: nn.Bilinear(0, 3, 4, rngs=nnx.Rngs(0)),
    "in_features = 3": lambda: nn.Linear(3, 4, rngs=nnx.Rngs(0))(jnp.zeros((2, 4))),
    "input has shape .., and": lambda: nn.Linear(3, 4, rngs=nnx.Rngs(0))(jnp.zeros(())),
    "weight has shape": lambda: F.linear(jnp.zeros((2, 3)), jnp.zeros((3, 4, 5))),
    "bias has shape": lambda: F.linear(jnp.zeros((2, 3)), jnp.zeros((3, 4)), jnp.zeros(3)),
    "in2_features = 4": lambda: nn.Bilinear(3, 4, 5, rngs=nnx.Rngs(0))(jnp.zeros((2, 3)), jnp.zeros((2, 3))),
    "all axes but the last": lambda: nn.Bilinear(3, 4, 5, rngs=nnx.Rngs(0))(jnp.zeros((2, 3)), jnp.zeros((3, 4))),
    "has no axes": lambda: F.matmul(jnp.zeros(()), jnp.zeros(3)),
    "last axis of input": lambda: F.matmul(jnp.zeros((2, 3)), jnp.zeros((2, 3))),
    "do not broadcast": lambda: F.matmul(jnp.zeros((2, 1, 3)), jnp.zeros((3, 3, 1))),
    "3 axes": lambda: F.bmm(jnp.zeros((2, 3)), jnp.zeros((3, 2))),
    r"\[B, n, m\]": lambda: F.bmm(jnp.zeros((2, 3, 4)), jnp.zeros((1, 4, 3))),
    "does not broadcast": lambda: F.baddbmm(jnp.zeros((3, 3)), jnp.zeros((2, 3, 4)), jnp.zeros((2, 4, 1))),
    "operands is empty": lambda: F.einsum("ij"),
}


@pytest.mark.parametrize(("message", "call"), REFUSED.items(), ids=REFUSED)
def test_what_is_refused_names_the_argument(message, call):
    with pytest.raises(ValueError, match=message):
        call()


MIXED = {
    "Linear": lambda x, y: nn.Linear(3, 3, rngs=nnx.Rngs(0))(y),
    "Bilinear": lambda x, y: nn.Bilinear(3, 3, 3, rngs=nnx.Rngs(0))(x, y),
    "matmul": lambda x, y: F.matmul(x, y),
    "bmm": lambda x, y: F.bmm(x[None], y[None]),
    "baddbmm": lambda x, y: F.baddbmm(y, x[None], x[None]),
    "einsum": lambda x, y: F.einsum("ij,jk", x, y),
    "einsum without an equation": lambda x, y: F.einsum(x, [0, 1]),
    "fractions of integers": lambda x, y: F.baddbmm(*[jnp.ones((1, 1, 1), jnp.int32)] * 3, beta=0.5),
}


@pytest.mark.parametrize("call", MIXED.values(), ids=MIXED)
def test_mixed_dtypes_are_refused(call):
    with pytest.raises(TypeError, match=r"and (input|weight|other|mat2|batch1|operands)|give"):
        call(jnp.ones((3, 3)), jnp.ones((3, 3), jnp.bfloat16))


def test_a_planted_fault_is_seen(monkeypatch):
    wrong = lambda input, other, precision=None: jnp.dot(input, other).astype(jnp.float32)  # noqa: E731
    monkeypatch.setattr(F, "matmul", wrong)
    assert glance_at_function("matmul", 4).failures


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda r: nn.Linear(30, 500, rngs=r), lambda: torch.nn.Linear(30, 500)),
        (lambda r: nn.Bilinear(30, 10, 60, rngs=r), lambda: torch.nn.Bilinear(30, 10, 60)),
    ],
    ids=["Linear", "Bilinear"],
)
def test_initial_values_are_drawn_as_torch_draws(ours, theirs):
    mine = to_state_dict(ours(nnx.Rngs(0)), framework="numpy")
    torch.manual_seed(0)
    for name, parameter in theirs().named_parameters():
        reference, found = parameter.detach().numpy(), mine[name]
        assert found.shape == reference.shape
        assert found.dtype == np.float32
        bound, error = 1 / np.sqrt(30), 4 / np.sqrt(found.size)
        assert 0.9 * bound < np.abs(found).max() <= bound
        assert abs(found.mean()) < error * bound
        assert abs(found.std() / reference.std() - 1) < 2 * error
