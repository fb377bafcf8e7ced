"""Attention and the Transformer's layers against eager PyTorch, where its own cases do not look."""

from __future__ import annotations

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

import graphmode.nn as ours
from graphmode.nn import functional
from graphmode.weights import load, to_state_dict

from .judging import Verdict, judge_equal
from .samples import Sample

N, H, L, S, E = 2, 2, 3, 5, 4
INF = float("inf")
RNG = np.random.default_rng(0)
SOME = torch.tensor(RNG.random((L, S)) < 0.6)
SOME[:, 0] = True
NONE_IN_ONE_ROW = SOME.clone()
NONE_IN_ONE_ROW[1] = False


def drawn(*shape: int) -> torch.Tensor:
    return torch.tensor(RNG.standard_normal(shape)).requires_grad_()


def added(mask: torch.Tensor) -> torch.Tensor:
    """A mask of True where attention is allowed, as one to add."""
    return torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, -INF)


def agrees(sample: Sample, *, compiled: bool = True) -> None:
    verdict = Verdict(sample.subject)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        judge_equal(sample, verdict, compiled=compiled)
    assert not verdict.failures, "\n".join(verdict.failures)
    assert verdict.agreed == 1


def rows(table: dict, *quick: str) -> list:
    """All names of a table, those that are not quick to judge marked as slow."""
    assert set(quick) <= set(table)
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in table]


def of_function(name: str, *args, **kwargs) -> Sample:
    return Sample(name, 0, False, None, ((), {}), getattr(torch.nn.functional, name), args, kwargs)


def of_module(name: str, constructor: dict, *args, training: bool = True, **kwargs) -> Sample:
    def build():
        torch.manual_seed(0)
        module = getattr(torch.nn, name)(**constructor).double().train(training)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter += 0.1 * torch.randn(parameter.shape, dtype=torch.float64)
        return module

    return Sample(name, 0, training, build, ((), constructor), None, args, kwargs)


QKV = (N, H, L, E), (N, H, S, E), (N, H, S, E)
PRODUCTS = {
    "boolean mask": (QKV, {"attn_mask": SOME}),
    "boolean mask of heads": (QKV, {"attn_mask": SOME.expand(N, 1, L, S)}),
    "mask to add": (QKV, {"attn_mask": drawn(H, L, S)}),
    "mask with one key axis": (QKV, {"attn_mask": torch.tensor([[True], [False], [True]])}),
    "a row that attends to nothing": (QKV, {"attn_mask": NONE_IN_ONE_ROW}),
    "such a row, added": (QKV, {"attn_mask": added(NONE_IN_ONE_ROW)}),
    "fewer queries, causal": (QKV, {"is_causal": True}),
    "more queries, causal": (((N, H, S, E), (N, H, L, E), (N, H, L, E)), {"is_causal": True}),
    "scale": (QKV, {"scale": -0.3}),
    "scale 0": (QKV, {"scale": 0.0}),
    "another width of values": (((L, E), (S, E), (S, 7)), {"attn_mask": SOME[0]}),
    "groups": (((N, 6, L, E), (N, 2, S, E), (N, 2, S, E)), {"enable_gqa": True, "attn_mask": SOME}),
    "groups, three axes": (((6, L, E), (1, S, E), (1, S, E)), {"enable_gqa": True, "is_causal": True}),
    "other groups of values": (((N, 6, L, E), (N, 2, S, E), (N, 3, S, E)), {"enable_gqa": True}),
    "leading axes broadcast": (((H, L, E), (N, H, S, E), (1, H, S, E)), {}),
    "no keys": (((N, H, L, E), (N, H, 0, E), (N, H, 0, E)), {}),
    "no batch entries": (((0, H, L, E), (0, H, S, E), (0, H, S, E)), {"attn_mask": SOME}),
    "everything dropped": (QKV, {"dropout_p": 1.0}),
}


@pytest.mark.parametrize(
    "name",
    rows(
        PRODUCTS,
        "mask to add",
        "a row that attends to nothing",
        "more queries, causal",
        "another width of values",
        "groups",
        "no keys",
    ),
)
def test_products(name):
    shapes, kwargs = PRODUCTS[name]
    agrees(of_function("scaled_dot_product_attention", *(drawn(*shape) for shape in shapes), **kwargs))


def test_infinite_scores_and_nan():
    query, key, value = (torch.ones(shape, dtype=torch.float64) for shape in QKV)
    query[0, 0, 0] = INF  # against a negative key: all scores -inf with no mask
    key[0] = -1
    query[1, 1, 1] = torch.nan
    mine = functional.scaled_dot_product_attention(*(jnp.asarray(x.numpy(), jnp.float32) for x in (query, key, value)))
    # not its fused kernel for CPUs, which gives 0 for a query of NaN
    theirs, _ = torch.ops.aten._scaled_dot_product_attention_math(query, key, value)
    np.testing.assert_allclose(mine, theirs, rtol=1e-6)
    assert not bool(mine[0, 0, 0].any())
    assert bool(jnp.isnan(mine[1, 1, 1]).all())


def test_a_float32_mask_in_float64():
    with jax.enable_x64(True):
        q, k, v = (jnp.asarray(drawn(*shape).detach().numpy()) for shape in QKV)
        mask = jnp.asarray(RNG.standard_normal((L, S)), jnp.float32)
        y = functional.scaled_dot_product_attention(q, k, v, mask)
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(torch.tensor(np.asarray(x)) for x in (q, k, v)), torch.tensor(np.asarray(mask))
    )
    assert y.dtype == np.float64
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precisions_are_as_precise_as_pytorch(dtype):
    arrays = [RNG.standard_normal(shape).astype(np.float32) for shape in ((4, 2, 16, 8), (4, 2, 24, 8), (4, 2, 24, 8))]
    halves = [torch.tensor(a).to(getattr(torch, dtype)).requires_grad_() for a in arrays]
    exact = [h.detach().double().requires_grad_() for h in halves]
    cotangent = RNG.standard_normal((4, 2, 16, 8))

    def theirs(inputs):
        out = torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=True)
        gradients = torch.autograd.grad(out, inputs, torch.tensor(cotangent).to(out.dtype))
        return [x.detach().double().numpy() for x in (out, *gradients)]

    mine, pull = jax.vjp(
        functools.partial(functional.scaled_dot_product_attention, is_causal=True),
        *(jnp.asarray(h.detach().float().numpy(), dtype) for h in halves),
    )
    port = [mine, *pull(jnp.asarray(cotangent, dtype))]
    for name, a, b, truth in zip(("out", "q", "k", "v"), port, theirs(halves), theirs(exact), strict=True):
        assert a.dtype == dtype, name
        error, usual = (np.sqrt(np.mean((np.asarray(x, np.float64) - truth) ** 2)) for x in (a, b))
        assert error <= 5 * usual, (name, error, usual)


def test_dropout_takes_a_mask():
    query, key, value = (drawn(*shape) for shape in QKV)
    kept = torch.tensor(RNG.random((N, H, L, S)) < 0.7)
    theirs, _ = torch.ops.aten._scaled_dot_product_attention_math(query, key, value, added(SOME), 0.3, False, kept)
    with jax.enable_x64(True):
        arrays = [jnp.asarray(x.detach().numpy()) for x in (query, key, value, SOME)]
        mine = functional.scaled_dot_product_attention(*arrays, dropout_p=0.3, dropout_mask=jnp.asarray(kept.numpy()))
    np.testing.assert_allclose(mine, theirs.detach(), rtol=0, atol=1e-14)


def test_dropout_draws_anew_under_autocast_too():
    q = jnp.ones((1, 64, 4))
    v = jnp.broadcast_to(jnp.eye(64), (1, 64, 64))
    rngs = nnx.Rngs(0)
    with ours.autocast(jnp.bfloat16):
        one, two = (functional.scaled_dot_product_attention(q, q, v, dropout_p=0.5, rngs=rngs) for _ in range(2))
    assert one.dtype == jnp.bfloat16
    assert bool((one != two).any())
    assert 0.4 < float(jnp.mean(one != 0)) < 0.6


MASK_2D = torch.tensor(RNG.random((L, S)) < 0.4)
MASK_2D[:, 0] = False
MASK_3D = torch.tensor(RNG.random((N * H, L, S)) < 0.4)
MASK_3D[..., 1] = False
PADDING = torch.tensor([[False, False, False, True, True], [False, True, False, False, True]])
EMPTY_ROW = MASK_2D.clone()
EMPTY_ROW[2] = True
CROSS = ((L, N, E), (S, N, E), (S, N, E))
FIRST = ((N, L, E), (N, S, E), (N, S, E))
SQUARE = ((N, S, E),) * 3
CAUSAL = torch.nn.Transformer.generate_square_subsequent_mask(S, dtype=torch.float64)
HEADS = {
    "2D mask": ({}, CROSS, {"attn_mask": MASK_2D}),
    "2D mask, no weights": ({}, CROSS, {"attn_mask": MASK_2D, "need_weights": False}),
    "3D mask, weights of heads": ({}, CROSS, {"attn_mask": MASK_3D, "average_attn_weights": False}),
    "3D mask, no weights": ({}, CROSS, {"attn_mask": MASK_3D, "need_weights": False}),
    "mask to add": ({"batch_first": True}, FIRST, {"attn_mask": drawn(L, S)}),
    "padding": ({"batch_first": True}, FIRST, {"key_padding_mask": PADDING}),
    "padding to add": ({"batch_first": True}, FIRST, {"key_padding_mask": drawn(N, S), "need_weights": False}),
    "both masks": ({}, CROSS, {"key_padding_mask": PADDING, "attn_mask": MASK_3D, "need_weights": False}),
    "both masks, mixed": ({}, CROSS, {"key_padding_mask": PADDING, "attn_mask": drawn(L, S)}),
    "a row that attends to nothing": ({}, CROSS, {"attn_mask": EMPTY_ROW}),
    "such a row, no weights": ({}, CROSS, {"attn_mask": EMPTY_ROW, "need_weights": False}),
    "all padded": ({}, CROSS, {"key_padding_mask": torch.ones(N, S, dtype=torch.bool), "need_weights": False}),
    "causal hint": ({"batch_first": True}, SQUARE, {"attn_mask": CAUSAL, "is_causal": True, "need_weights": False}),
    "wrong causal hint": (
        {"batch_first": True},
        SQUARE,
        {"attn_mask": torch.zeros(S, S), "is_causal": True, "need_weights": False},
    ),
    "causal hint, weights": ({"batch_first": True}, SQUARE, {"attn_mask": CAUSAL, "is_causal": True}),
    "causal hint, padding": (
        {"batch_first": True, "add_bias_kv": True},
        SQUARE,
        {"attn_mask": CAUSAL, "is_causal": True, "key_padding_mask": PADDING, "need_weights": False},
    ),
    "other widths": ({"kdim": 3, "vdim": 6}, ((L, N, E), (S, N, 3), (S, N, 6)), {}),
    "other widths, no bias": (
        {"kdim": 3, "vdim": 6, "bias": False, "batch_first": True},
        ((N, L, E), (N, S, 3), (N, S, 6)),
        {"need_weights": False, "key_padding_mask": PADDING},
    ),
    "appended keys": (
        {"add_bias_kv": True, "add_zero_attn": True},
        CROSS,
        {"key_padding_mask": PADDING, "attn_mask": MASK_2D, "need_weights": False},
    ),
    "no batch": ({}, ((L, E), (S, E), (S, E)), {"attn_mask": MASK_3D[:H], "key_padding_mask": PADDING[0]}),
    "no batch, no weights": ({"batch_first": True}, ((L, E), (S, E), (S, E)), {"need_weights": False}),
    "empty batch": ({"batch_first": True}, ((0, L, E), (0, S, E), (0, S, E)), {}),
    "no keys": ({"batch_first": True}, ((N, L, E), (N, 0, E), (N, 0, E)), {"need_weights": False}),
}


@pytest.mark.parametrize(
    "name",
    rows(
        HEADS,
        "3D mask, weights of heads",
        "both masks",
        "a row that attends to nothing",
        "such a row, no weights",
        "wrong causal hint",
        "other widths",
        "appended keys",
    ),
)
def test_heads(name):
    constructor, shapes, kwargs = HEADS[name]
    arrays = (drawn(*shape) for shape in shapes)
    agrees(of_module("MultiheadAttention", {"embed_dim": E, "num_heads": H, **constructor}, *arrays, **kwargs))


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_one_object_is_projected_once(need_weights, batch_first):
    theirs = torch.nn.MultiheadAttention(E, H, batch_first=batch_first).double()
    x, memory = drawn(N, L, E).detach(), drawn(N, L, E).detach()
    with jax.enable_x64(True):
        attention = ours.MultiheadAttention(E, H, batch_first=batch_first, rngs=nnx.Rngs(0))
        load(attention, theirs.state_dict())
        for key, count in ((x, 4), (memory, 5)):
            expected, weights = theirs(x, key, key, need_weights=need_weights)
            port = [jnp.asarray(a.numpy()) for a in (x, memory)]

            def run(x, memory, same=key is x):
                key = x if same else memory
                return attention(x, key, key, need_weights=need_weights)

            y, mine = run(*port)
            np.testing.assert_allclose(y, expected.detach(), rtol=0, atol=1e-14)
            if need_weights:
                np.testing.assert_allclose(mine, weights.detach(), rtol=0, atol=1e-14)
            else:
                assert mine is None
            assert str(jax.make_jaxpr(run)(*port)).count("dot_general[") == count


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("options", [{}, {"bias": False}, {"kdim": 3, "vdim": 4}], ids=str)
def test_in_three_parts_it_is_the_whole(options, batch_first):
    """Queries a few at a time, over keys and values that are projected once."""
    theirs = torch.nn.MultiheadAttention(E, H, batch_first=batch_first, **options).double()
    axis = 1 if batch_first else 0
    shape = (lambda length, size: (N, length, size)) if batch_first else (lambda length, size: (length, N, size))
    x, key = drawn(*shape(L, E)).detach(), drawn(*shape(S, options.get("kdim", E))).detach()
    value = drawn(*shape(S, options["vdim"])).detach() if "vdim" in options else key
    padding = torch.tensor(np.arange(S) >= np.arange(1, N + 1)[:, None])
    expected = theirs(x, key, value, key_padding_mask=padding)[0].detach()
    with jax.enable_x64(True):
        attention = ours.MultiheadAttention(E, H, batch_first=batch_first, rngs=nnx.Rngs(0), **options)
        load(attention, theirs.state_dict())
        seen = ~jnp.asarray(padding.numpy())[:, None, None]
        given = [jnp.asarray(key.numpy())] + ([jnp.asarray(value.numpy())] if value is not key else [])
        keys, values = attention.project_key_value(*given)
        assert keys.shape == values.shape == (N, H, S, E // H)
        parts = [
            attention.attend(attention.project_query(one), keys, values, seen)
            for one in jnp.array_split(jnp.asarray(x.numpy()), L, axis)
        ]
        np.testing.assert_allclose(jnp.concatenate(parts, axis), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("options", [{"add_bias_kv": True}, {"add_zero_attn": True}], ids=str)
def test_parts_of_what_appends_keys_are_refused(options):
    attention = ours.MultiheadAttention(E, H, rngs=nnx.Rngs(0), **options)
    with pytest.raises(ValueError, match="append to the keys"):
        attention.project_key_value(jnp.ones((S, N, E)))


def test_parts_without_a_batch_are_refused():
    with pytest.raises(ValueError, match=r"query has shape .* 3 axes were wanted"):
        ours.MultiheadAttention(E, H, rngs=nnx.Rngs(0)).project_query(jnp.ones((L, E)))


def test_dropout_of_the_heads_takes_a_mask(monkeypatch):
    kept = torch.tensor(RNG.random((N, H, L, S)) < 0.6)
    monkeypatch.setattr(torch.nn.functional, "dropout", lambda x, p: torch.where(kept.view(x.shape), x / (1 - p), 0.0))
    theirs = torch.nn.MultiheadAttention(E, H, dropout=0.4).double()
    query, key = drawn(L, N, E).detach(), drawn(S, N, E).detach()
    expected, weights = theirs(query, key, key)
    with jax.enable_x64(True):
        attention = ours.MultiheadAttention(E, H, dropout=0.4, rngs=nnx.Rngs(0))
        load(attention, theirs.state_dict())
        q, k, mask = (jnp.asarray(a.numpy()) for a in (query, key, kept))
        y, mine = attention(q, k, k, dropout_mask=mask)
        unweighted, _ = attention(q, k, k, need_weights=False, dropout_mask=mask)
        drawn_once, drawn_again = (attention(q, k, k)[0] for _ in range(2))
        attention.eval()
        off = [attention(q, k, k)[0], nnx.view(attention, deterministic=True)(q, k, k)[0]]
    for got in (y, unweighted):
        np.testing.assert_allclose(got, expected.detach(), rtol=0, atol=1e-14)
    np.testing.assert_allclose(mine, weights.detach(), rtol=0, atol=1e-14)
    assert bool((drawn_once != drawn_again).any())
    np.testing.assert_array_equal(*off)


@pytest.mark.skipif(not hasattr(ours, "dropout_masks"), reason="the room of dropout is not there yet")
def test_dropout_of_layers_takes_masks_in_order(monkeypatch):
    masks = []

    def mask(x):
        masks.append(torch.tensor(RNG.random(tuple(x)) < 0.6))
        return masks[-1]

    def dropout(x, p, training, inplace):
        return torch.where(mask(x.shape), x / (1 - p), 0.0)

    def product(q, k, v, attn_mask, p, is_causal):
        kept = mask((*q.shape[:-1], k.shape[-2]))
        return torch.ops.aten._scaled_dot_product_attention_math(q, k, v, attn_mask, p, is_causal, kept)[0]

    monkeypatch.setattr(torch.nn.functional, "dropout", dropout)
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", product)
    small = {"num_encoder_layers": 1, "num_decoder_layers": 1, "dim_feedforward": 6, "dropout": 0.4}
    theirs = torch.nn.Transformer(E, H, batch_first=True, **small).double()
    src, tgt = drawn(N, S, E).detach(), drawn(N, L, E).detach()
    expected = theirs(src, tgt)
    with jax.enable_x64(True):
        mine = ours.Transformer(E, H, batch_first=True, rngs=nnx.Rngs(0), **small)
        load(mine, theirs.state_dict())
        with ours.dropout_masks([jnp.asarray(one.numpy()) for one in masks]):
            got = mine(jnp.asarray(src.numpy()), jnp.asarray(tgt.numpy()))
    assert len(masks) == 4 + 6
    np.testing.assert_allclose(got, expected.detach(), rtol=0, atol=1e-12)


def test_static_keys_and_values():
    theirs = torch.nn.MultiheadAttention(E, H).double()
    q = drawn(L, N, E).detach()
    static_k, static_v = drawn(N * H, S, E // H).detach(), drawn(N * H, S, E // H).detach()
    weights = (theirs.in_proj_weight, theirs.in_proj_bias, None, None, True, 0.0)
    out = (theirs.out_proj.weight, theirs.out_proj.bias)
    static = {"static_k": static_k, "static_v": static_v}
    expected = torch.nn.functional.multi_head_attention_forward(q, q, q, E, H, *weights, *out, **static)
    with jax.enable_x64(True):
        array = lambda t: jnp.asarray(t.detach().numpy())  # noqa: E731
        got = functional.multi_head_attention_forward(
            *(array(q),) * 3, E, H, array(weights[0]).T, array(weights[1]), *weights[2:], array(out[0]).T,
            array(out[1]), **{name: array(value) for name, value in static.items()},
        )  # fmt: skip
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b.detach(), rtol=0, atol=1e-14)


SQUARE_PADDING = torch.tensor([[False] * S, [False] * 3 + [True] * 2])
LAYERS = {
    "encoder layer, gelu by word": (
        "TransformerEncoderLayer",
        {"activation": "gelu", "batch_first": True, "layer_norm_eps": 1e-3},
        ((N, S, E),),
        {"src_mask": CAUSAL, "is_causal": True},
    ),
    "encoder layer, padding": (
        "TransformerEncoderLayer",
        {"activation": "relu", "batch_first": True, "norm_first": True},
        ((N, S, E),),
        {"src_key_padding_mask": SQUARE_PADDING},
    ),
    "decoder layer, memory of another length": (
        "TransformerDecoderLayer",
        {"activation": "gelu"},
        ((S, N, E), (L, N, E)),
        {"tgt_mask": CAUSAL, "tgt_is_causal": True, "memory_mask": MASK_2D.T},
    ),
}


@pytest.mark.parametrize("name", rows(LAYERS, "decoder layer, memory of another length"))
def test_layers(name):
    cls, constructor, shapes, kwargs = LAYERS[name]
    constructor = {"d_model": E, "nhead": H, "dim_feedforward": 6, "dropout": 0.0, **constructor}
    agrees(of_module(cls, constructor, *(drawn(*shape) for shape in shapes), **kwargs))


@pytest.mark.slow
@pytest.mark.parametrize("hint", [None, True])
def test_whole_transformer(hint):
    small = {"num_encoder_layers": 1, "num_decoder_layers": 1, "dim_feedforward": 6, "dropout": 0.0}
    sample = of_module(
        "Transformer",
        {"d_model": E, "nhead": H, "batch_first": True, **small},
        drawn(N, S, E),
        drawn(N, S, E),
        tgt_mask=CAUSAL,
        tgt_is_causal=hint,
        src_key_padding_mask=SQUARE_PADDING,
        memory_key_padding_mask=SQUARE_PADDING,
    )
    agrees(sample)


def test_a_stack_of_decoders():
    words = {"d_model": E, "nhead": H, "dim_feedforward": 6, "dropout": 0.0, "batch_first": True}
    torch.manual_seed(0)
    theirs = torch.nn.TransformerDecoder(torch.nn.TransformerDecoderLayer(**words), 2, torch.nn.LayerNorm(E)).double()
    target, memory = drawn(N, L, E), drawn(N, S, E)
    causal = torch.ones(L, L, dtype=torch.bool).triu(1)
    padded = torch.zeros(N, S, dtype=torch.bool)
    padded[1, 3:] = True
    expected = theirs(target, memory, tgt_mask=causal, memory_key_padding_mask=padded, tgt_is_causal=True)
    gradients = torch.autograd.grad(expected.square().sum(), [target, memory, theirs.layers[1].linear1.bias])
    with jax.enable_x64(True):
        double = {"param_dtype": jnp.float64, "rngs": nnx.Rngs(0)}
        port = ours.TransformerDecoder(
            ours.TransformerDecoderLayer(**words, **double), 2, ours.LayerNorm(E, param_dtype=jnp.float64)
        )
        load(port, theirs.state_dict())

        def total(module, target, memory):
            masks = {"tgt_mask": jnp.asarray(causal), "memory_key_padding_mask": jnp.asarray(padded)}
            output = module(target, memory, **masks, tgt_is_causal=True)
            return jnp.square(output).sum(), output

        arrays = [jnp.asarray(x.detach().numpy()) for x in (target, memory)]
        (_, output), found = nnx.value_and_grad(total, argnums=(0, 1, 2), has_aux=True)(port, *arrays)
    np.testing.assert_allclose(output, expected.detach(), rtol=1e-12, atol=1e-12)
    for mine, gradient in zip([*found[1:], found[0].layers[1].linear1.bias[...]], gradients, strict=True):
        np.testing.assert_allclose(mine, gradient, rtol=1e-11, atol=1e-11)


def pair_of_encoders(*, mask_check=True, nested=True, no_grad=True, norm=True, **layer):
    layer = {"d_model": E, "nhead": H, "dim_feedforward": 6, "batch_first": True, **layer}
    torch.manual_seed(0)
    norms = (torch.nn.LayerNorm(E), ours.attention.encoder.LayerNorm(E)) if norm else (None, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(**layer), 2, norms[0], nested, mask_check)
    theirs = theirs.double().eval()
    one = ours.TransformerEncoderLayer(**layer, rngs=nnx.Rngs(0))
    mine = ours.TransformerEncoder(one, 2, norms[1], nested, mask_check, no_grad=no_grad)
    load(mine, theirs.state_dict())
    mine.eval()
    return theirs, mine


LEFT = SQUARE_PADDING
SCATTERED = torch.tensor([[True, False, False, False, False], [False, True, False, True, False]])
WITHOUT_GRADIENTS = {
    "padded at the end": (LEFT, {}),
    "no norm": (LEFT, {"norm": False}),
    "padded elsewhere": (SCATTERED, {}),
    "padded elsewhere, unchecked": (SCATTERED, {"mask_check": False}),
    "floats": (torch.zeros(N, S, dtype=torch.float64).masked_fill(LEFT, 0.5), {}),
    "a sequence of padding": (torch.tensor([[True] * S, [False] * S]), {}),
    "no nested tensors": (LEFT, {"nested": False}),
    "norm first": (LEFT, {"norm_first": True}),
    "odd heads": (LEFT, {"nhead": 1}),
    "no bias": (LEFT, {"bias": False, "norm": False}),
}


@pytest.mark.parametrize(
    "name", rows(WITHOUT_GRADIENTS, "padded at the end", "padded elsewhere", "padded elsewhere, unchecked")
)
def test_evaluation_without_gradients(name):
    padding, options = WITHOUT_GRADIENTS[name]
    src = drawn(N, S, E).detach()
    with jax.enable_x64(True):
        theirs, mine = pair_of_encoders(**options)
        with torch.no_grad():
            expected = theirs(src, src_key_padding_mask=padding)
        arrays = [jnp.asarray(a.numpy()) for a in (src, padding)]
        np.testing.assert_allclose(mine(arrays[0], src_key_padding_mask=arrays[1]), expected, rtol=0, atol=1e-12)
        plain = nnx.view(mine, no_grad=False)(arrays[0], src_key_padding_mask=arrays[1])
        np.testing.assert_allclose(plain, theirs(src, src_key_padding_mask=padding).detach(), rtol=0, atol=1e-12)


def test_copies_of_a_layer():
    one = ours.TransformerEncoderLayer(E, H, 6, 0.5, rngs=nnx.Rngs(0))
    encoder = ours.TransformerEncoder(one, 2)
    state = to_state_dict(encoder, framework="numpy")
    for name in ("self_attn.in_proj_weight", "linear1.bias"):
        np.testing.assert_array_equal(state[f"layers.0.{name}"], state[f"layers.1.{name}"])
    first, second = encoder.layers
    assert first.linear1.weight is not second.linear1.weight
    buffers = [layer.linear1.weight[...].unsafe_buffer_pointer() for layer in (one, first, second)]
    assert len(set(buffers)) == 3  # a donated one takes no other with it
    x = jnp.ones((S, N, E))
    assert bool((first(x) != second(x)).any())  # masks of its own each
    twice = [encoder(x) for _ in range(2)]
    assert bool((twice[0] != twice[1]).any())


NAMES = {
    "MultiheadAttention": ((E, H), {"add_bias_kv": True}),
    "TransformerEncoderLayer": ((E, H, 6), {}),
    "TransformerDecoderLayer": ((E, H, 6), {"bias": False}),
    "Transformer": ((E, H, 2, 1, 6), {}),
}


@pytest.mark.parametrize("name", NAMES)
def test_names_and_shapes_are_pytorchs(name):
    args, kwargs = NAMES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = getattr(torch.nn, name)(*args, **kwargs).state_dict()
    mine = to_state_dict(getattr(ours, name)(*args, **kwargs, rngs=nnx.Rngs(0)), framework="numpy")
    assert {k: tuple(v.shape) for k, v in mine.items()} == {k: tuple(v.shape) for k, v in theirs.items()}


def test_first_parameters_are_drawn_as_pytorch_draws_them():
    module = ours.MultiheadAttention(64, 2, add_bias_kv=True, rngs=nnx.Rngs(0))
    separate = ours.MultiheadAttention(64, 2, kdim=16, rngs=nnx.Rngs(0))
    whole = ours.Transformer(64, 2, 2, 1, 32, rngs=nnx.Rngs(0))
    uniform = {
        (6 / 256) ** 0.5: module.in_proj_weight,
        64**-0.5: module.out_proj.weight,
        (6 / 80) ** 0.5: separate.k_proj_weight,
        (6 / 128) ** 0.5: whole.encoder.layers[0].self_attn.out_proj.weight,
        (6 / 96) ** 0.5: whole.decoder.layers[0].linear1.weight,
    }
    for bound, weight in uniform.items():
        largest = float(jnp.abs(weight[...]).max())
        assert 0.97 * bound < largest <= bound
    assert 0.1 < float(jnp.std(module.bias_k[...])) < 0.16  # 1/8
    assert not bool(module.out_proj.bias[...].any() | module.in_proj_bias[...].any())
    one, two = (layer.linear1.weight[...] for layer in whole.encoder.layers)
    assert bool((one != two).all())


def test_square_subsequent_mask():
    make, original = (cls.generate_square_subsequent_mask for cls in (ours.Transformer, torch.nn.Transformer))
    for size, dtype in ((0, "float32"), (3, "float32"), (3, "bfloat16"), (2, "bool")):
        mine, theirs = make(size, dtype=jnp.dtype(dtype)), original(size, dtype=getattr(torch, dtype))
        assert mine.dtype == dtype
        np.testing.assert_array_equal(np.asarray(mine, np.float32), theirs.float())


def test_autocast():
    attention = ours.MultiheadAttention(E, H, rngs=nnx.Rngs(0))
    x = jnp.ones((S, N, E))
    theirs = torch.nn.MultiheadAttention(E, H)
    for device, weights in (("cuda", jnp.float32), ("cpu", jnp.bfloat16)):
        with ours.autocast(jnp.bfloat16, device_type=device):
            y, w = attention(x, x, x)
            causal, _ = attention(x, x, x, attn_mask=jnp.zeros((S, S)), need_weights=False)
        assert (y.dtype, w.dtype, causal.dtype) == (jnp.bfloat16, weights, jnp.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        y, w = theirs(*(torch.ones(S, N, E),) * 3)
    assert (y.dtype, w.dtype) == (torch.bfloat16, torch.bfloat16)


def test_half_precision_layers_keep_their_dtype():
    layer = ours.TransformerEncoderLayer(E, H, 6, param_dtype=jnp.bfloat16, rngs=nnx.Rngs(0))
    layer.eval()
    x = jnp.ones((S, N, E), jnp.bfloat16)
    padding = jnp.asarray(SQUARE_PADDING.numpy())
    assert layer(x, src_key_padding_mask=padding).dtype == jnp.bfloat16
    y, weights = layer.self_attn(x, x, x, key_padding_mask=padding)
    assert (y.dtype, weights.dtype) == (jnp.bfloat16, jnp.bfloat16)


def test_vmap_is_a_batch():
    q, k, v = (jnp.asarray(drawn(*shape).detach().numpy(), jnp.float32) for shape in QKV)
    mask = jnp.asarray(SOME.numpy())
    whole = functional.scaled_dot_product_attention(q, k, v, mask)
    mapped = jax.vmap(lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, mask))(q, k, v)
    np.testing.assert_allclose(mapped, whole, rtol=1e-6)


def _sdpa(*shapes, dtype="float32", **kwargs):
    return functional.scaled_dot_product_attention(*(jnp.ones(shape, dtype) for shape in shapes), **kwargs)


def _heads(*shapes, module=None, **kwargs):
    attention = ours.MultiheadAttention(E, H, batch_first=True, rngs=nnx.Rngs(0), **(module or {}))
    return attention(*(jnp.ones(shape) for shape in shapes), **kwargs)


def _built(name, *args, **kwargs):
    return getattr(ours, name)(*args, **kwargs, rngs=nnx.Rngs(0))


def _transformer(src, tgt, **kwargs):
    return _built("Transformer", E, H, 1, 1, 6)(jnp.ones(src), jnp.ones(tgt), **kwargs)


BAD = {
    "one axis": (ValueError, "2 axes", lambda: _sdpa((E,), (E,), (E,))),
    "widths": (ValueError, "last axis", lambda: _sdpa((L, E), (S, 3), (S, 3))),
    "lengths": (ValueError, "length", lambda: _sdpa((L, E), (S, E), (L, E))),
    "heads": (ValueError, "enable_gqa", lambda: _sdpa((6, L, E), (2, S, E), (2, S, E))),
    "groups": (ValueError, "divide", lambda: _sdpa((6, L, E), (4, S, E), (2, S, E), enable_gqa=True)),
    "groups of matrices": (ValueError, "3 axes", lambda: _sdpa((L, E), (S, E), (S, E), enable_gqa=True)),
    "integers": (TypeError, "int32", lambda: _sdpa(*QKV, dtype="int32")),
    "integer mask": (TypeError, "attn_mask", lambda: _sdpa(*QKV, attn_mask=jnp.ones((L, S), int))),
    "half mask": (TypeError, "attn_mask", lambda: _sdpa(*QKV, attn_mask=jnp.ones((L, S), jnp.bfloat16))),
    "larger mask": (ValueError, "broadcast", lambda: _sdpa(*QKV, attn_mask=jnp.ones((3, 1, 1, L, S)))),
    "flat mask": (ValueError, "broadcast", lambda: _sdpa(*QKV, attn_mask=jnp.ones(S))),
    "two masks": (ValueError, "is_causal", lambda: _sdpa(*QKV, attn_mask=jnp.ones((L, S)), is_causal=True)),
    "probability": (ValueError, "1.5", lambda: _sdpa(*QKV, dropout_p=1.5)),
    "no stream": (ValueError, "rngs", lambda: _sdpa(*QKV, dropout_p=0.5)),
    "dtypes": (
        TypeError,
        "bfloat16",
        lambda: functional.scaled_dot_product_attention(jnp.ones((L, E)), *[jnp.ones((S, E), jnp.bfloat16)] * 2),
    ),
    "no features": (ValueError, "embed_dim", lambda: _built("MultiheadAttention", 0, 2)),
    "no heads": (ValueError, "num_heads", lambda: _built("MultiheadAttention", 4, 0)),
    "indivisible": (ValueError, "divide", lambda: _built("MultiheadAttention", 5, 2)),
    "dropout": (ValueError, "dropout", lambda: _built("MultiheadAttention", 4, 2, 1.5)),
    "hint alone": (ValueError, "is_causal", lambda: _heads(*SQUARE, is_causal=True)),
    "features": (ValueError, "embed_dim", lambda: _heads((N, L, 3), (N, S, E), (N, S, E))),
    "ranks": (ValueError, "key has shape", lambda: _heads((N, L, E), (S, E), (N, S, E))),
    "rank of query": (ValueError, "query has shape", lambda: _heads((E,), (E,), (E,))),
    "keys and values": (ValueError, "key and value", lambda: _heads((N, L, E), (N, S, E), (N, L, E))),
    "batches": (ValueError, "batch", lambda: _heads((N, L, E), (1, S, E), (1, S, E))),
    "padding": (ValueError, "key_padding_mask", lambda: _heads(*FIRST, key_padding_mask=jnp.ones((N, L), bool))),
    "padding's rank": (ValueError, "key_padding_mask", lambda: _heads(*FIRST, key_padding_mask=jnp.ones(S, bool))),
    "padding's dtype": (TypeError, "key_padding_mask", lambda: _heads(*FIRST, key_padding_mask=jnp.ones((N, S), int))),
    "mask": (ValueError, "attn_mask", lambda: _heads(*FIRST, attn_mask=jnp.ones((S, L), bool))),
    "mask of one head": (ValueError, "attn_mask", lambda: _heads(*FIRST, attn_mask=jnp.ones((1, L, S), bool))),
    "mask's rank": (ValueError, "attn_mask", lambda: _heads(*FIRST, attn_mask=jnp.ones((N, H, L, S), bool))),
    "mask's dtype": (TypeError, "attn_mask", lambda: _heads(*FIRST, attn_mask=jnp.ones((L, S), int))),
    "activation": (ValueError, "silu", lambda: _built("TransformerEncoderLayer", E, H, activation="silu")),
    "layers": (ValueError, "num_layers", lambda: ours.TransformerEncoder(_built("TransformerEncoderLayer", E, H), 0)),
    "batches of both": (ValueError, "batches", lambda: _transformer((S, 2, E), (S, 3, E))),
    "ranks of both": (ValueError, "3 axes", lambda: _transformer((S, 2, E), (S, E))),
    "d_model": (ValueError, "d_model", lambda: _transformer((S, 2, E), (S, 2, 3))),
    "deep inside": (
        ValueError,
        r"^encoder\.layers\.0\.self_attn \(MultiheadAttention\): attn_mask",
        lambda: _transformer((S, 2, E), (S, 2, E), src_mask=jnp.ones((L, L), bool)),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(name):
    error, words, call = BAD[name]
    with pytest.raises(error, match=words):
        call()


def _inverted(query, key, value, attn_mask=None, *args, **kwargs):
    return functional.attention_itself(query, key, value, ~attn_mask, *args, **kwargs)


def _as_flax_has_it(query, key, value, attn_mask=None, *args, **kwargs):
    """A row that attends to nothing gives the mean of all values."""
    attn_mask = attn_mask | ~attn_mask.any(-1, keepdims=True)
    return functional.attention_itself(query, key, value, attn_mask, *args, **kwargs)


@pytest.mark.parametrize("fault", [_inverted, _as_flax_has_it])
def test_the_judge_sees_a_fault(fault, monkeypatch):
    monkeypatch.setattr(functional, "attention_itself", functional.scaled_dot_product_attention, raising=False)
    monkeypatch.setattr(functional, "scaled_dot_product_attention", fault)
    shapes, kwargs = PRODUCTS["a row that attends to nothing"]
    verdict = Verdict("fault")
    judge_equal(of_function("scaled_dot_product_attention", *(drawn(*shape) for shape in shapes), **kwargs), verdict)
    assert verdict.failures
    assert not verdict.agreed
