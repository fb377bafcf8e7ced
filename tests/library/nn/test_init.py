"""Initialisers against PyTorch's: the same distributions for the same shapes, equal values where nothing is drawn."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from graphmode.nn import init
from graphmode.weights import CONV, LINEAR, ConvTransposeKernel, carries

LAYOUTS = {
    "linear": ((40, 60), LINEAR),
    "plain": ((40, 60), None),
    "conv1d": ((24, 10, 5), CONV),
    "conv2d": ((24, 10, 3, 5), CONV),
    "conv3d": ((12, 6, 3, 2, 3), CONV),
    "transposed": ((24, 10, 3, 5), ConvTransposeKernel()),
}


def parameter(shape: tuple[int, ...], transform=None, dtype=jnp.float32) -> nnx.Param:
    """Of this shape in PyTorch's layout."""
    value = np.zeros(shape)
    if transform is None:
        return nnx.Param(jnp.asarray(value, dtype))
    return nnx.Param(jnp.asarray(transform.to_model(value)[0], dtype), **carries(transform))


def in_torch(variable: nnx.Param, transform=None) -> np.ndarray:
    value = np.asarray(variable[...])
    return value if transform is None else transform.to_reference(value)[0]


DRAWN = {
    "uniform": ("uniform_", {"a": -1.0, "b": 3.0}),
    "normal": ("normal_", {"mean": 1.0, "std": 2.0}),
    "truncated": ("trunc_normal_", {}),
    "truncated on one side": ("trunc_normal_", {"mean": 1.0, "std": 2.0, "a": 1.5, "b": 9.0}),
    "truncated in the tail": ("trunc_normal_", {"a": 3.0, "b": 4.0}),
    "xavier uniform": ("xavier_uniform_", {"gain": 1.5}),
    "xavier normal": ("xavier_normal_", {}),
    "kaiming uniform": ("kaiming_uniform_", {"a": 5**0.5}),
    "kaiming uniform, out": ("kaiming_uniform_", {"mode": "fan_out", "nonlinearity": "tanh"}),
    "kaiming normal": ("kaiming_normal_", {"nonlinearity": "relu"}),
    "kaiming normal, out": ("kaiming_normal_", {"mode": "fan_out"}),
}


@pytest.mark.filterwarnings("ignore:mean is more than 2 std")
@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.parametrize("layout", ["linear", "conv2d", "transposed"])
def test_the_distribution_is_that_of_torch(name, layout):
    """Mean, deviation, bounds and the distance of the two cumulative distributions (Kolmogorov and Smirnov's)."""
    function, arguments = DRAWN[name]
    shape, transform = LAYOUTS[layout]
    variable = parameter(shape, transform)
    assert getattr(init, function)(variable, **arguments, rngs=nnx.Rngs(1)) is variable
    torch.manual_seed(0)
    theirs = np.stack([getattr(torch.nn.init, function)(torch.empty(shape), **arguments).numpy() for _ in range(10)])
    ours, theirs = np.sort(np.ravel(variable[...])), np.sort(theirs.ravel())
    assert variable[...].shape == parameter(shape, transform)[...].shape
    assert variable[...].dtype == jnp.float32
    spread, count = theirs.std(), ours.size
    assert abs(ours.mean() - theirs.mean()) < 5 * spread / np.sqrt(count)
    assert abs(ours.std() / spread - 1) < 6 / np.sqrt(count)
    points = np.concatenate([ours, theirs])
    below = [np.searchsorted(side, points, side="right") / side.size for side in (ours, theirs)]
    assert np.abs(below[0] - below[1]).max() < 2.2 / np.sqrt(count)
    if "uniform" in name or "truncated" in name:
        width = theirs[-1] - theirs[0]
        assert theirs[0] - 0.01 * width < ours[0]
        assert ours[-1] < theirs[-1] + 0.01 * width


@pytest.mark.parametrize("mean", [0.0, 0.5, -0.5])
def test_bounds_far_away_are_never_drawn(monkeypatch, mean):
    """The least number that is drawn, as of every 2^23 draws one is, is no outlier of a hundred deviations."""
    least = lambda key, shape, dtype, minval, maxval: jnp.full(shape, minval, dtype)  # noqa: E731
    monkeypatch.setattr(jax.random, "uniform", least)
    variable = init.trunc_normal_(parameter((2, 3)), mean, std=0.02, rngs=nnx.Rngs(0))
    assert np.abs(np.asarray(variable[...]) - mean).max() < 6 * 0.02


@pytest.mark.parametrize("layout", LAYOUTS)
def test_fans_are_counted_in_the_layout_of_torch(layout):
    shape, transform = LAYOUTS[layout]
    found = {}
    for mode in ("fan_in", "fan_out"):
        variable = init.kaiming_uniform_(parameter(shape, transform), 1.0, mode, rngs=nnx.Rngs(0))
        bound = np.abs(variable[...]).max()
        found[mode] = 3 / bound**2
    wanted = torch.nn.init._calculate_fan_in_and_fan_out(torch.empty(shape))
    np.testing.assert_allclose(list(found.values()), wanted, rtol=0.02)


FIXED = [
    ("eye_", {}, "linear"),
    ("eye_", {}, "plain"),
    ("dirac_", {}, "conv1d"),
    ("dirac_", {"groups": 2}, "conv2d"),
    ("dirac_", {"groups": 3}, "conv3d"),
    ("dirac_", {}, "transposed"),
    ("constant_", {"val": 0.3}, "conv2d"),
    ("ones_", {}, "linear"),
    ("zeros_", {}, "linear"),
]


@pytest.mark.parametrize(("function", "arguments", "layout"), FIXED)
def test_what_is_not_drawn_is_equal(function, arguments, layout):
    shape, transform = LAYOUTS[layout]
    variable = getattr(init, function)(parameter(shape, transform), **arguments)
    expected = getattr(torch.nn.init, function)(torch.empty(shape), **arguments)
    np.testing.assert_array_equal(in_torch(variable, transform), expected)


@pytest.mark.parametrize(("layout", "gain"), [("linear", 1.0), ("conv2d", 2.0), ("transposed", 1.0)])
def test_orthogonal(layout, gain):
    shape, transform = LAYOUTS[layout]
    matrix = in_torch(init.orthogonal_(parameter(shape, transform), gain, rngs=nnx.Rngs(0)), transform)
    matrix = matrix.reshape(shape[0], -1)
    product = matrix @ matrix.T if matrix.shape[0] < matrix.shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(product, gain**2 * np.eye(len(product)), atol=1e-5)


def test_orthogonal_matrices_are_drawn_evenly():
    """Over many draws each entry has mean 0 and mean square 1/n, the diagonal's sign as often either."""
    draws = [in_torch(init.orthogonal_(parameter((3, 3)), rngs=nnx.Rngs(i))) for i in range(150)]
    np.testing.assert_allclose(np.mean(draws, 0), 0, atol=0.2)
    np.testing.assert_allclose(np.mean(np.square(draws), 0), 1 / 3, atol=0.12)


def test_sparse():
    shape, transform = LAYOUTS["linear"]
    value = in_torch(init.sparse_(parameter(shape, transform), 0.31, std=2.0, rngs=nnx.Rngs(0)), transform)
    expected = torch.nn.init.sparse_(torch.empty(shape), 0.31, std=2.0).numpy()
    np.testing.assert_array_equal((value == 0).sum(0), (expected == 0).sum(0))
    assert abs(value[value != 0].std() - 2) < 0.2
    assert (value == 0).sum(1).std() > 0


def test_gains():
    for name in ("linear", "conv1d", "conv_transpose3d", "sigmoid", "tanh", "relu", "leaky_relu", "selu"):
        assert init.calculate_gain(name) == torch.nn.init.calculate_gain(name)
    for slope in (0.2, 0, 3):
        assert init.calculate_gain("leaky_relu", slope) == torch.nn.init.calculate_gain("leaky_relu", slope)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precisions_are_kept(dtype):
    variable = init.normal_(parameter((50, 60), dtype=dtype), std=0.02, rngs=nnx.Rngs(0))
    assert variable[...].dtype == dtype
    assert len(np.unique(np.asarray(variable[...], np.float32))) > 200


def test_in_a_graph():
    @jax.jit
    def build(key):
        variable = init.orthogonal_(parameter(*LAYOUTS["conv2d"]), rngs=key)
        return init.trunc_normal_(variable, rngs=nnx.Rngs(key))[...]

    assert build(jax.random.key(0)).shape == (3, 5, 10, 24)


def test_arguments_are_those_of_torch():
    for name in init.__all__:
        ours = list(inspect.signature(getattr(init, name)).parameters.items())
        theirs = list(inspect.signature(getattr(torch.nn.init, name)).parameters.items())
        ours = [(n, p.default) for n, p in ours if n not in ("variable", "rngs")]
        assert ours == [(n, p.default) for n, p in theirs if n not in ("tensor", "generator")], name


def test_empty_parameters_stay():
    for name in ("kaiming_uniform_", "kaiming_normal_", "xavier_normal_", "orthogonal_"):
        assert getattr(init, name)(parameter((0, 3)), rngs=nnx.Rngs(0))[...].shape == (0, 3)


REFUSED = {
    "fans want 2 axes": lambda v: init.xavier_uniform_(nnx.Param(jnp.ones(3)), rngs=nnx.Rngs(0)),
    "mode is 'fan_avg'": lambda v: init.kaiming_normal_(v, mode="fan_avg", rngs=nnx.Rngs(0)),
    "nonlinearity is 'gelu'": lambda v: init.kaiming_normal_(v, nonlinearity="gelu", rngs=nnx.Rngs(0)),
    "param is True": lambda v: init.calculate_gain("leaky_relu", True),
    "a is 2": lambda v: init.uniform_(v, 2, 1, rngs=nnx.Rngs(0)),
    "std is -1": lambda v: init.normal_(v, std=-1, rngs=nnx.Rngs(0)),
    "std is 0": lambda v: init.trunc_normal_(v, std=0, rngs=nnx.Rngs(0)),
    "2 axes were": lambda v: init.eye_(nnx.Param(jnp.ones((2, 2, 2)))),
    "3, 4 or 5 axes": lambda v: init.dirac_(v),
    "groups is 5": lambda v: init.dirac_(nnx.Param(jnp.ones((4, 2, 3))), 5),
    "2 axes or more": lambda v: init.orthogonal_(nnx.Param(jnp.ones(3)), rngs=nnx.Rngs(0)),
    "and 2 axes": lambda v: init.sparse_(nnx.Param(jnp.ones(3)), 0.5, rngs=nnx.Rngs(0)),
}


@pytest.mark.parametrize(("message", "call"), REFUSED.items(), ids=REFUSED)
def test_what_is_refused_names_the_argument(message, call):
    with pytest.raises(ValueError, match=message):
        call(parameter((2, 3)))


@pytest.mark.parametrize(
    "call",
    [
        lambda: init.ones_(jnp.ones(3)),
        lambda: init.normal_(nnx.Param(jnp.ones(3, int)), rngs=nnx.Rngs(0)),
        lambda: init.normal_(nnx.Param(jnp.ones(3)), rngs=0),
    ],
    ids=["no variable", "integers", "no rngs"],
)
def test_wrong_types_are_refused(call):
    with pytest.raises(TypeError, match=r"variable is|rngs is"):
        call()
