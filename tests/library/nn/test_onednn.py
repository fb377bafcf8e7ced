"""Convolutions by oneDNN against XLA's own in float64, with all derivatives; where they are used, and where not."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import AxisType, PartitionSpec

import graphmode.nn as nn
from graphmode.nn import functional as F
from graphmode.nn.conv import onednn, onednn_gradients, onednn_products
from graphmode.nn.conv.geometry import Geometry
from graphmode.nn.norm import onednn_layer_norm
from graphmode.nn.norm.standardize import standardize
from graphmode.nn.onednn import SWITCH, is_there

CLOSE = 2e-5  # of the largest element: sums of thousands of float32 products
SEEDS = [*range(12), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 40))]


@pytest.fixture(autouse=True)
def wanted(monkeypatch):
    """On in spite of the compilation cache of the tests, and all that was traced without it forgotten."""
    monkeypatch.setenv(SWITCH, "1")
    with no_cache():
        if not is_there():
            pytest.skip("this jaxlib's oneDNN is not one that was tried")
        yield


@pytest.fixture
def however_small(monkeypatch):
    """Small ones too, and the gradients of small ones."""
    monkeypatch.setattr(onednn, "LEAST_WORK", 0)


@contextlib.contextmanager
def no_cache():
    folder = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    jax.clear_caches()
    try:
        yield
    finally:
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.clear_caches()


def drawn(seed):
    """Operands and geometry of every kind: strides, dilations, groups, unequal and negative paddings."""
    rng = np.random.default_rng(seed)
    while True:
        spatial = 1 + seed % 3
        groups, channels = (int(rng.choice([8, 32])), 1) if seed % 4 == 3 else (1 + seed % 2, int(rng.integers(1, 18)))
        batch, out = int(rng.choice([1, 2, 9])), int(rng.integers(1, 18))

        def axes(low, high, count=spatial):
            return tuple(int(n) for n in rng.integers(low, high, count))

        kernel, size = axes(1, 5), axes(1, 8 if spatial == 3 else 14)
        paddings = tuple(zip(axes(-1, 4), axes(-1, 4), strict=True))
        geometry = Geometry(axes(1, 4), paddings, axes(1, 4), groups)
        cut = [n + min(low, 0) + min(high, 0) for n, (low, high) in zip(size, paddings, strict=True)]
        if min(*geometry.output(size, kernel), *cut) > 0:
            break
    x = rng.standard_normal((batch, *size, channels * groups))
    w = rng.standard_normal((*kernel, channels, out * groups))
    return x, w, rng.standard_normal(out * groups) if seed % 2 else None, geometry


def singly(*arrays):
    return [jnp.asarray(a, jnp.float32) for a in arrays]


def close(ours, theirs):
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=CLOSE * max(np.abs(theirs).max(initial=0), 1e-3))


@pytest.mark.usefixtures("however_small")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("most_columns", [0, onednn_gradients.MOST_COLUMNS])
def test_values_and_gradients(seed, most_columns, monkeypatch):
    monkeypatch.setattr(onednn_gradients, "MOST_COLUMNS", most_columns)
    x, w, b, geometry = drawn(seed)
    bias = None if b is None else singly(b)[0]
    y, pull = jax.vjp(lambda x, w: onednn.convolve(x, w, bias, geometry), *singly(x, w))
    c = np.random.default_rng(seed).standard_normal(y.shape)
    with jax.enable_x64(True):
        biases = () if b is None else (jnp.asarray(b),)
        expected, pull_expected = jax.vjp(lambda x, w: onednn.by_xla(x, w, *biases, geometry=geometry), x, w)
        gradients = pull_expected(jnp.asarray(c))
    for ours, theirs in zip((y, *pull(*singly(c))), (expected, *gradients), strict=True):
        close(ours, theirs)


@pytest.mark.usefixtures("however_small")
@pytest.mark.parametrize("seed", range(6))
def test_by_the_weight_plane_by_plane(seed, monkeypatch):
    monkeypatch.setattr(onednn_gradients, "MOST_COLUMNS", 0)
    rng = np.random.default_rng(seed)
    spatial = 2 + seed % 2
    kernel, dilation, low, high = (
        tuple(map(int, rng.integers(a, b, spatial))) for a, b in ((1, 5), (1, 3), (0, 4), (0, 4))
    )
    stride = tuple(1 if i == spatial - 2 else int(s) for i, s in enumerate(rng.integers(1, 4, spatial)))
    groups, channels = (1, 5) if seed < 4 else (2, onednn_gradients.MANY_GROUPED)
    geometry = Geometry(stride, tuple(zip(low, high, strict=True)), dilation, groups)
    x = rng.standard_normal((3, *rng.integers(9, 12, spatial), channels * groups))
    w = rng.standard_normal((*kernel, channels, 7 * groups))
    y, pull = jax.vjp(lambda w: onednn.convolve(*singly(x), w, None, geometry), *singly(w))
    c = rng.standard_normal(y.shape)
    with jax.enable_x64(True):
        _, pull_expected = jax.vjp(lambda w: onednn.by_xla(jnp.asarray(x), w, geometry=geometry), w)
        (expected,) = pull_expected(jnp.asarray(c))
    close(pull(*singly(c))[0], expected)


@pytest.mark.usefixtures("however_small")
@pytest.mark.parametrize("seed", [0, 1, 3, 5])
def test_forward_mode_and_second_derivatives(seed):
    x, w, b, geometry = drawn(seed)
    b = np.ones(w.shape[-1]) if b is None else b

    def power(convolve):
        return lambda x, w, b: (convolve(x, w, b) ** 3).sum()

    ours = power(lambda x, w, b: onednn.convolve(x, w, b, geometry))
    theirs = power(lambda x, w, b: onednn.by_xla(x, w, b, geometry=geometry))
    tangents = [np.random.default_rng(i).standard_normal(a.shape) for i, a in enumerate((x, w, b))]
    found = jax.jvp(jax.grad(ours, (0, 1, 2)), singly(x, w, b), singly(*tangents))
    with jax.enable_x64(True):
        expected = jax.jvp(jax.grad(theirs, (0, 1, 2)), (x, w, b), tuple(tangents))
    jax.tree.map(close, found, expected)


@pytest.mark.parametrize("size", [1, 7, 64, 513])
@pytest.mark.parametrize("mean", [0.0, 100.0])
def test_layer_norm_with_all_derivatives(size, mean):
    rng = np.random.default_rng(size)
    x, dx = mean + rng.standard_normal((40, size)), rng.standard_normal((40, size))
    w, b, dw, db = rng.standard_normal((4, size))

    def everything(normalized, arrays):
        x, w, b, dx, dw, db = arrays
        y, dy = jax.jvp(normalized, (x, w, b), (dx, dw, db))
        loss = jax.grad(lambda x, w, b: (normalized(x, w, b) ** 3).sum(), (0, 1, 2))
        lanes = jax.vmap(normalized, (0, None, None))(jnp.stack([x, 2 * x]), w, b)
        own = jax.vmap(normalized, (None, 0, None))(x, jnp.stack([w, 2 * w]), b)
        return y, dy, loss(x, w, b), jax.jvp(loss, (x, w, b), (dx, dw, db))[1], lanes, own

    def plain(x, w, b):
        return standardize(x, None, None, (1,), 1e-5)[0] * w + b

    ours = everything(lambda *arrays: onednn_layer_norm.normalized_rows(*arrays, 1e-5), singly(x, w, b, dx, dw, db))
    other = everything(plain, singly(x, w, b, dx, dw, db))
    with jax.enable_x64(True):
        exact = everything(plain, [jnp.asarray(a) for a in (x, w, b, dx, dw, db)])

    def off(found):
        return np.asarray([np.abs(np.asarray(a, np.float64) - e).max() for a, e in zip(found, tree, strict=True)])

    tree = jax.tree.leaves(exact)
    floor = np.asarray([1e-6 * np.abs(e).max(initial=1e-3) for e in tree])
    assert (off(jax.tree.leaves(ours)) <= 5 * off(jax.tree.leaves(other)) + floor).all()


def test_layer_norm_of_rows_with_nan_and_of_several_axes():
    x = np.random.default_rng(0).standard_normal((100, 4, 50)).astype(np.float32)
    x[3, 2, 1], x[5, 0, 0] = np.nan, np.inf
    text = jax.jit(lambda x: F.layer_norm(x, (4, 50))).lower(x).compile().as_text()
    assert onednn_layer_norm.TARGET in text
    y = np.asarray(F.layer_norm(jnp.asarray(x), (4, 50)))
    rows = [i for i in range(100) if i not in (3, 5)]
    assert np.isnan(y[[3, 5]]).all()
    centered = x[rows] - x[rows].mean((1, 2), keepdims=True)
    close(y[rows], centered / np.sqrt(np.square(centered).mean((1, 2), keepdims=True) + 1e-5))


def everything_of_a_product(product, arrays):
    a, b, c, *moved = arrays
    y, pull = jax.vjp(product, a, b)
    lanes = jax.vmap(product, (None, 0))(a, jnp.stack([b, 2 * b]))
    return y, pull(c), jax.jvp(product, (a, b), tuple(moved)), lanes


@pytest.mark.parametrize("shape", [(5, 3, 4), (1, 1, 1), (300, 17, 33), (40, 256, 1), (0, 3, 4), (64, 0, 2)])
def test_products(shape):
    n, k, o = shape
    rng = np.random.default_rng(0)
    x, w, y = (rng.standard_normal(size) for size in ((n, k), (k, o), (n, o)))
    for ours, plain, arrays in (
        (onednn_products.over_rows, lambda a, b: a.T @ b, (x, y, w)),
        (onednn_products.product.bind, lambda a, b: a @ b, (x, w, y)),
    ):
        arrays = *arrays, *(rng.standard_normal(a.shape) for a in arrays[:2])
        with jax.enable_x64(True):
            theirs = everything_of_a_product(plain, [jnp.asarray(a) for a in arrays])
        jax.tree.map(close, everything_of_a_product(ours, singly(*arrays)), theirs)


@pytest.mark.parametrize(
    ("x", "w", "by_onednn"),
    [
        ((2, 2, 2, 512), (1, 1, 512, 512), True),
        ((2, 4, 4, 128), (3, 3, 128, 128), True),
        ((1, 1, 1, 512), (1, 1, 512, 512), False),  # one row
        ((2, 2, 2, 64), (1, 1, 64, 64), False),  # a small weight
    ],
)
def test_few_positions_with_large_weights_are_one_product(x, w, by_onednn):
    arrays = singly(*map(np.random.default_rng(0).standard_normal, (x, w)))
    padding = w[0] // 2
    text = jax.jit(lambda x, w: F.conv2d(x, w, padding=padding)).lower(*arrays).compile().as_text()
    assert (onednn_products.TARGET in text) == by_onednn
    with jax.enable_x64(True):
        exact = F.conv2d(*(jnp.asarray(a, jnp.float64) for a in arrays), padding=padding)
    close(F.conv2d(*arrays, padding=padding), exact)


@pytest.mark.parametrize("seed", [1, 3])
@pytest.mark.parametrize(
    "axes", [(1, None, None), (None, 0, None), (None, None, 0), (0, 0, 0), (0, None, 0), (0, 1, None)]
)
def test_under_vmap(axes, seed):
    x, w, b, geometry = drawn(seed)
    lanes = [a if axis is None else np.stack([a, 2 * a, -a], axis) for a, axis in zip((x, w, b), axes, strict=True)]
    ours = jax.vmap(lambda x, w, b: onednn.convolve(x, w, b, geometry), axes)(*singly(*lanes))
    with jax.enable_x64(True):
        theirs = jax.vmap(lambda x, w, b: onednn.by_xla(x, w, b, geometry=geometry), axes)(*lanes)
    close(ours, theirs)


def test_nan_and_infinity_stay_where_their_kernels_reach():
    x = np.zeros((1, 8, 8, 4), np.float32)
    x[0, 0, 0], x[0, 7, 7] = np.nan, np.inf
    y = onednn.convolve(*singly(x, np.ones((3, 3, 4, 4))), None, Geometry((1, 1), ((1, 1), (1, 1)), (1, 1)))
    assert np.isnan(y[0, :2, :2]).all()
    assert np.isposinf(y[0, 6:, 6:]).all()
    assert np.count_nonzero(np.isfinite(y)) == (64 - 8) * 4


X, W = (4, 28, 28, 32), (3, 3, 32, 32)


def compiled(dtype=jnp.float32, x=X, w=W):
    with jax.enable_x64(True):
        args = jnp.ones(x, dtype), jnp.ones(w, dtype), jnp.ones(w[-1], dtype)
        return jax.jit(lambda x, w, b: F.conv2d(x, w, b, padding=1)).lower(*args).compile().as_text()


def test_where_it_is_used():
    assert onednn.TARGET in compiled()
    assert "BIAS" in compiled()
    for dtype in (jnp.float64, jnp.bfloat16, jnp.float16):
        assert onednn.TARGET not in compiled(dtype)
    assert onednn.TARGET not in compiled(x=(1, 4, 4, 32))


def test_both_gradients_use_it():
    def loss(x, w):
        return (F.conv2d(x, w, stride=2, padding=1) ** 2).sum()

    text = jax.jit(jax.grad(loss, (0, 1))).lower(jnp.ones((16, 56, 56, 32)), jnp.ones(W)).compile().as_text()
    assert text.count(f'custom_call_target="{onednn.TARGET}"') == 3


@pytest.mark.parametrize(
    ("x", "stride", "products"),
    [
        pytest.param((4, 56, 56, 128), 1, 9, id="many channels"),
        pytest.param((1, 28, 28, 32), 1, 1, id="few columns"),
        pytest.param((16, 28, 28, 32), 1, 1, id="a plane"),
        pytest.param((8, 28, 28, 32), 1, 2, id="a plane for each group"),
        pytest.param((16, 56, 56, 32), 2, 0, id="exchanged"),
    ],
)
def test_by_the_weight_products_where_they_serve(x, stride, products):
    groups = products if products == 2 else 1

    def loss(x, w):
        return (F.conv2d(x, w, stride=stride, padding=1, groups=groups) ** 2).sum()

    w = jnp.ones((3, 3, x[-1] // groups, 16))
    text = jax.jit(jax.grad(loss, 1)).lower(jnp.ones(x), w).compile().as_text()
    assert text.count(f'custom_call_target="{onednn_products.TARGET}"') == products


def test_lanes_with_weights_of_their_own_use_it():
    lanes = jnp.ones((3, *X)), jnp.ones((3, *W))
    for axes in ((0, 0), (None, 0), (0, None)):
        args = [a if axis == 0 else a[0] for a, axis in zip(lanes, axes, strict=True)]
        convolve = jax.vmap(lambda x, w: F.conv2d(x, w, padding=1), axes)
        assert onednn.TARGET in jax.jit(convolve).lower(*args).compile().as_text()


def test_it_can_be_left_out(monkeypatch):
    monkeypatch.setenv(SWITCH, "0")
    assert onednn.TARGET not in compiled()


def test_a_switch_that_says_neither_is_refused(monkeypatch):
    monkeypatch.setenv(SWITCH, "off")
    with pytest.raises(ValueError, match="GRAPHMODE_ONEDNN is 'off'"):
        compiled()


def test_a_compilation_cache_goes_before_it(monkeypatch, tmp_path):
    monkeypatch.delenv(SWITCH)
    assert onednn.TARGET in compiled()
    jax.clear_caches()
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    assert onednn.TARGET not in compiled()
    monkeypatch.setenv(SWITCH, "1")
    jax.clear_caches()
    with pytest.raises(ValueError, match="GRAPHMODE_ONEDNN is 1 in the environment and jax_compilation_cache_dir is"):
        compiled()


def test_a_jaxlib_that_was_not_tried_does_without(monkeypatch):
    monkeypatch.setattr("jaxlib.__version__", "0.99.0")
    assert onednn.TARGET not in compiled()


def test_what_is_exported_runs_anywhere():
    conv = nn.Conv2d(32, 32, 3, padding=1, rngs=nnx.Rngs(0))
    x = jnp.ones(X)
    exported = jax.export.export(jax.jit(conv.__call__))(x)
    again = jax.export.deserialize(exported.serialize())
    close(again.call(x), np.asarray(conv(x)))
    assert onednn.TARGET not in str(exported.mlir_module())


ON_EIGHT = """
import jax, jax.numpy as jnp, numpy as np
from graphmode.nn import functional as F
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
x = jax.random.normal(jax.random.key(0), (8, 28, 28, 32))
w = jax.random.normal(jax.random.key(1), (3, 3, 32, 32))
alone = F.conv2d(x, w, padding=1)
split = jax.device_put(x, NamedSharding(mesh, P("data")))
f = jax.jit(lambda x, w: F.conv2d(x, w, padding=1))
text = f.lower(split, w).compile().as_text()
assert "__onednn" not in text and "all-gather" not in text, text
g = jax.shard_map(lambda x, w: F.conv2d(x, w, padding=1), mesh=mesh, in_specs=(P("data"), P()), out_specs=P("data"))
for each in (f(split, w), g(split, w)):
    assert each.sharding.spec[0] == "data"
    np.testing.assert_allclose(each, alone, rtol=0, atol=2e-4)
loss = lambda x, w: (g(x, w) ** 2).sum()
expected = jax.grad(lambda x, w: (F.conv2d(x, w, padding=1) ** 2).sum(), 1)(x, w)
np.testing.assert_allclose(jax.jit(jax.grad(loss, 1))(split, w), expected, rtol=0, atol=1e-4 * abs(expected).max())
print("done")
"""


def test_over_several_devices_each_convolves_its_own(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    run = subprocess.run([sys.executable, "-c", ON_EIGHT], capture_output=True, text=True)
    assert run.stdout == "done\n", run.stderr


def test_in_one_part_of_a_mesh_of_one_device():
    mesh = jax.make_mesh((1,), ("data",), axis_types=(AxisType.Auto,))
    x, w = jnp.ones(X), jnp.ones(W)
    f = jax.shard_map(
        lambda x, w: F.conv2d(x, w, padding=1),
        mesh=mesh,
        in_specs=(PartitionSpec("data"), PartitionSpec()),
        out_specs=PartitionSpec("data"),
    )
    close(f(x, w), np.asarray(F.conv2d(x, w, padding=1)))


def test_float64_is_told_by_its_own_dtype(monkeypatch):
    """A parity check calls ports with `jnp.float32` set to float64; oneDNN would end the process."""
    with jax.enable_x64(True):
        x, kernel = jnp.ones((3, 8, 46, 48)), jnp.ones((1, 1, 48, 64))
        monkeypatch.setattr(jnp, "float32", jnp.float64)
        layer = jnp.ones((512, 512))
        assert x.dtype == np.float64
        text = jax.jit(lambda x, k: F.conv2d(x, k)).lower(x, kernel).as_text()
        text += jax.jit(lambda x: F.layer_norm(x, (512,))).lower(layer).as_text()
    assert "onednn" not in text
