"""Dropout: PyTorch's arithmetic on given masks, where masks come from, and what drawn ones are like."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from flax import nnx

import graphmode.nn as ours
import graphmode.nn.functional as f

from .judging import Verdict, judge_equal
from .samples import Sample

ONES = jnp.ones((4, 6))
LAYERS = {
    "Dropout": [(3, 5), (2, 3, 4, 5)],
    "Dropout1d": [(6, 5), (2, 6, 5)],
    "Dropout2d": [(2, 6, 4, 3)],
    "Dropout3d": [(6, 3, 2, 4), (2, 6, 3, 2, 4)],
    "AlphaDropout": [(3, 5), (2, 3, 4, 5)],
    "FeatureAlphaDropout": [(3, 5), (2, 3, 4), (2, 3, 4, 5, 2)],
}
CASES = [(name, shape, p, training) for name, shapes in LAYERS.items() for shape in shapes for p, training in
         [(0.3, True), (0.0, True), (1.0, True), (0.3, False)]]  # fmt: skip


def judge(name, shape, p, training):
    def build():
        return getattr(torch.nn, name)(p).train(training)

    verdict = Verdict(name)
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    judge_equal(Sample(name, 1, training, build, ((p,), {}), None, (x,), {}), verdict)
    return verdict


@pytest.mark.parametrize(("name", "shape", "p", "training"), CASES)
def test_layers_on_pytorchs_masks(name, shape, p, training):
    verdict = judge(name, shape, p, training)
    assert verdict.agreed == verdict.tried > 0, verdict.failures


def test_the_judge_sees_a_wrong_scale_and_a_wrong_channel(monkeypatch):
    right = f.dropout
    monkeypatch.setattr(ours.dropout.functional, "dropout", lambda x, p, *a, **k: right(x, p, *a, **k) * (1 - p))
    assert judge("Dropout", (3, 5), 0.3, True).failures
    features = ours.dropout.functional.dropout1d
    moved = {"channels_last": "channels_first", "channels_first": "channels_last"}
    monkeypatch.setattr(
        ours.dropout.functional,
        "dropout1d",
        lambda x, *a, data_format, **k: features(x, *a, data_format=moved[data_format], **k),
    )
    assert judge("Dropout1d", (2, 6, 5), 0.3, True).failures


@pytest.mark.parametrize("name", ["dropout", "alpha_dropout"])
def test_what_is_not_finite_stays_so_when_dropped(name):
    x = np.array([math.nan, math.inf, -math.inf, 2.0], np.float32)
    given = torch.tensor(x)
    for mask in (np.zeros(4, bool), np.ones(4, bool)):
        noise = torch.tensor(mask, dtype=torch.float32)
        theirs = given * (noise / 0.5)
        if name == "alpha_dropout":
            alpha, p = 1.7580993408473766, 0.5
            a = 1 / math.sqrt((alpha**2 * p + 1) * (1 - p))
            theirs = given * (noise * a) + ((noise - 1) * (alpha * a) + alpha * a * p)
        mine = getattr(f, name)(x, 0.5, True, mask=mask)
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-6)
    for p in (0.0, 1.0):
        np.testing.assert_array_equal(getattr(f, name)(x, p, True), getattr(F, name)(given, p, True).numpy())


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["dropout", "alpha_dropout"])
def test_halves(name, dtype):
    x = jnp.linspace(-2, 2, 40, dtype=dtype)
    mask = jnp.arange(40) % 3 != 0
    y = getattr(f, name)(x, 0.1, True, mask=mask)
    assert y.dtype == dtype
    wide = getattr(f, name)(x.astype(jnp.float32), 0.1, True, mask=mask)
    np.testing.assert_array_equal(y, wide.astype(dtype))
    assert jax.grad(lambda x: getattr(f, name)(x, 0.1, True, mask=mask).sum().astype(float))(x).dtype == dtype


@pytest.mark.parametrize("p", [0.1, 0.5, 0.85])
def test_drawn_masks_keep_at_the_rate_and_independently(p):
    drawn = f.dropout(jnp.ones((400, 500)), p, rngs=jax.random.key(0))
    kept = np.asarray(drawn) != 0
    np.testing.assert_allclose(drawn[kept], 1 / (1 - p), rtol=1e-6)
    spread = math.sqrt(p * (1 - p))
    assert abs(kept.mean() - (1 - p)) < 5 * spread / math.sqrt(kept.size)
    for axis in (0, 1):  # the shares of rows and columns scatter as those of independent draws
        share = kept.mean(axis)
        np.testing.assert_allclose(share.std(), spread / math.sqrt(kept.shape[axis]), rtol=0.2)
        neighbours = np.corrcoef(np.moveaxis(kept, axis, 0)[:-1].ravel(), np.moveaxis(kept, axis, 0)[1:].ravel())[0, 1]
        assert abs(neighbours) < 0.012


@pytest.mark.parametrize(
    ("name", "shape", "data_format", "free"),
    [
        ("dropout1d", (300, 4, 200), "NLC", (0, 2)),
        ("dropout1d", (300, 200, 4), "NCL", (0, 1)),
        ("dropout1d", (4, 60000), "NLC", (1,)),
        ("dropout2d", (300, 2, 3, 200), "NHWC", (0, 3)),
        ("dropout2d", (300, 200, 2, 3), "NCHW", (0, 1)),
        ("dropout3d", (60000, 2, 2, 2), "NCDHW", (0,)),
        ("dropout3d", (300, 2, 2, 2, 200), "NDHWC", (0, 4)),
        ("feature_alpha_dropout", (300, 2, 2, 200), "channels_last", (0, 3)),
    ],
)
def test_features_are_dropped_whole_and_each_by_itself(name, shape, data_format, free):
    y = getattr(f, name)(jnp.ones(shape), 0.3, True, data_format=data_format, rngs=jax.random.key(1))
    spatial = tuple(axis for axis in range(len(shape)) if axis not in free)
    kept = np.asarray(y) == np.asarray(y).max()
    assert (kept.all(spatial) == kept.any(spatial)).all()
    kept = kept.all(spatial)
    assert abs(kept.mean() - 0.7) < 5 * math.sqrt(0.21 / kept.size)
    for axis in range(kept.ndim):
        if kept.ndim > 1:
            np.testing.assert_allclose(kept.mean(axis).std(), math.sqrt(0.21 / kept.shape[axis]), rtol=0.2)


def test_alpha_dropout_keeps_mean_and_variance():
    x = jax.random.normal(jax.random.key(0), (200_000,))
    y = f.alpha_dropout(x, 0.4, True, rngs=jax.random.key(1))
    np.testing.assert_allclose([y.mean(), y.std()], [0, 1], atol=0.02)


def test_modes():
    layer = ours.Dropout(0.5, rngs=nnx.Rngs(0))
    assert (layer(ONES) == 0).any()
    assert not np.array_equal(layer(ONES), layer(ONES))
    np.testing.assert_array_equal(layer(ONES, deterministic=True), ONES)
    assert nnx.view(layer, deterministic=True)(ONES).tolist() == ONES.tolist()
    layer.eval()
    np.testing.assert_array_equal(layer(ONES), ONES)
    layer.train()
    key = jax.random.key(5)
    np.testing.assert_array_equal(layer(ONES, rngs=key), layer(ONES, rngs=key))
    twins = [ours.Dropout(0.5, rngs=nnx.Rngs(dropout=3)) for _ in range(2)]
    np.testing.assert_array_equal(twins[0](ONES), twins[1](ONES))
    stream = nnx.Rngs(dropout=3)
    first, second = ours.Dropout(0.5, rngs=stream), ours.Dropout(0.5, rngs=stream)
    assert not np.array_equal(first(ONES), second(ONES))


def test_the_stream_advances_under_jit():
    layer = ours.Dropout(0.5, rngs=nnx.Rngs(0))
    step = nnx.jit(lambda layer, x: layer(x))
    assert not np.array_equal(step(layer, ONES), step(layer, ONES))


def test_without_rngs_it_works_in_evaluation_and_with_masks():
    layer = ours.Dropout(0.5)
    mask = jnp.arange(6) % 2 == 0
    np.testing.assert_array_equal(layer(ONES, mask), ONES * mask * 2)
    np.testing.assert_array_equal(layer(ONES, deterministic=True), ONES)
    np.testing.assert_array_equal(layer(jnp.ones((0, 3))), jnp.ones((0, 3)))
    with pytest.raises(ValueError, match=r"Dropout: dropout \(p=0.5\) is in training and has nothing to draw"):
        layer(ONES)


class Two(nnx.Module):
    def __init__(self):
        self.first, self.second = ours.Dropout(0.5), ours.Dropout2d(0.25)

    def __call__(self, x):
        return self.second(self.first(x)[:, None, None])


def test_masks_of_a_whole_model_in_the_order_of_calls():
    given = [jnp.arange(24).reshape(4, 6) % 2 == 0, jnp.arange(24).reshape(4, 1, 1, 6) % 3 == 0]
    want = (ONES * given[0] * 2)[:, None, None] * given[1] / 0.75
    asked = []

    def source(shape, p):
        asked.append((shape, p))
        return given[len(asked) - 1]

    for masks in (source, given, iter(given)):
        with ours.dropout_masks(masks):
            np.testing.assert_allclose(Two()(ONES), want, rtol=1e-6)
    assert asked == [((4, 6), 0.5), ((4, 1, 1, 6), 0.25)]
    with pytest.raises(ValueError, match="held 1 masks, and a dropout of shape"), ours.dropout_masks(given[:1]):
        Two()(ONES)
    with pytest.raises(ValueError, match="held 3 masks, and 2 were asked for"), ours.dropout_masks([*given, given[0]]):
        Two()(ONES)
    with ours.dropout_masks([]):  # these draw none
        ours.Dropout(0.5)(ONES, deterministic=True)
        ours.Dropout(0.0)(ONES)
        ours.Dropout(1.0)(ONES)
        ours.Dropout(0.5)(ONES, mask=given[0])
        ours.Dropout(0.5)(jnp.ones((0, 3)))
    with ours.dropout_masks(given[:1]):  # the innermost counts
        with ours.dropout_masks([~given[0]]):
            np.testing.assert_array_equal(ours.Dropout(0.5)(ONES), ONES * ~given[0] * 2)
        np.testing.assert_array_equal(ours.Dropout(0.5)(ONES), ONES * given[0] * 2)


def test_masks_as_arguments_of_a_jitted_step():
    traces = []

    @jax.jit
    def step(x, masks):
        traces.append(None)
        with ours.dropout_masks(masks):
            return jax.grad(lambda x: f.dropout(f.dropout(x, 0.5), 0.2).sum())(x)

    for seed in range(3):
        masks = [jax.random.bernoulli(jax.random.key(2 * seed + i), 0.5, ONES.shape) for i in range(2)]
        np.testing.assert_allclose(step(ONES, masks), masks[0] * masks[1] * 2.5, rtol=1e-6)
    assert len(traces) == 1


def test_what_was_compiled_before_is_traced_again_inside():
    layer = jax.jit(lambda x, key: f.dropout(x, 0.5, rngs=key))
    key = jax.random.key(0)
    drawn = layer(ONES, key)
    for mask in (jnp.zeros((4, 6), bool), jnp.ones((4, 6), bool)):
        with ours.dropout_masks([mask]):
            np.testing.assert_array_equal(layer(ONES, key), 2.0 * mask)
    np.testing.assert_array_equal(layer(ONES, key), drawn)


@pytest.mark.parametrize("shape", [(4, 3), (5, 4, 3), (2, 3, 4, 5, 6, 7)], ids=str)
def test_deprecated_ranks_of_dropout3d_are_pytorchs(shape):
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    with pytest.warns(UserWarning, match="dropout3d"):
        y = F.dropout3d(x, 0.4)
    (noise,) = torch.autograd.grad(y.sum(), x)
    mask = (noise != 0).numpy()
    mask = mask.all(tuple(range(1, x.ndim)), keepdims=True)
    with pytest.warns(UserWarning, match="dropout3d") as caught:
        mine = f.dropout3d(jnp.array(x.detach().numpy()), 0.4, data_format="NCDHW", mask=mask)
    assert caught[0].filename == __file__
    np.testing.assert_allclose(mine, y.detach().numpy(), rtol=1e-5)


def test_dropout2d_takes_three_axes_for_a_batch_of_sequences():
    mask = jnp.array([[[True, False, True]], [[False, False, True]]])
    with pytest.warns(UserWarning, match="taken for the batch"):
        y = ours.Dropout2d(0.5)(jnp.ones((2, 4, 3)), mask=mask)
    np.testing.assert_array_equal(y, jnp.broadcast_to(2.0 * mask, (2, 4, 3)))


BAD = [
    (lambda: f.dropout(ONES, 1.5), "p is 1.5"),
    (lambda: f.alpha_dropout(ONES, -0.1), "p is -0.1"),
    (lambda: f.dropout(ONES, math.nan), "p is nan"),
    (lambda: ours.Dropout(2), "p is 2"),
    (lambda: ours.Dropout2d(0.5, data_format="NLC"), "data_format is 'NLC'"),
    (lambda: f.dropout(ONES, mask=jnp.ones((6, 4), bool)), "mask has shape"),
    (lambda: f.dropout(ONES, mask=jnp.ones((1, 4, 6), bool)), "mask has shape"),
    (lambda: f.dropout1d(jnp.ones((2, 4, 6)), mask=jnp.ones((2, 4, 6), bool)), r"broadcasts to \(2, 1, 6\)"),
    (lambda: f.dropout1d(jnp.ones((1, 2, 4, 6))), "2 or 3 axes"),
    (lambda: f.feature_alpha_dropout(jnp.ones(3), training=True, rngs=jax.random.key(0)), "feature_alpha_dropout"),
]
BAD_TYPES = [
    (lambda: f.dropout(jnp.arange(3)), "int32"),
    (lambda: f.dropout(ONES, mask=jnp.ones((4, 6))), "mask is float32, and bool"),
    (lambda: f.dropout(ONES, rngs=3), "rngs is 3"),
    (lambda: ours.Dropout(rngs=jax.random.key(0)), "rngs is"),
]


@pytest.mark.parametrize(("call", "told"), BAD)
def test_bad_arguments(call, told):
    with pytest.raises(ValueError, match=told):
        call()


@pytest.mark.parametrize(("call", "told"), BAD_TYPES)
def test_bad_types(call, told):
    with pytest.raises(TypeError, match=told):
        call()
