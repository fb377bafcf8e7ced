"""Flatten, unflatten and shuffles beyond PyTorch's own cases: both layouts, ranks, and what is refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from graphmode import nn
from graphmode.nn import functional as F
from graphmode.weights import load

RNG = np.random.default_rng(0)


def numbers(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize("shape", [(2,), (2, 3), (2, 3, 4), (2, 3, 4, 5), (2, 3, 4, 5, 6), (0, 3, 4, 5)])
@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_flatten_keeps_the_order_of_torch(shape, data_format):
    x = numbers(*shape)
    given = np.moveaxis(x, 1, -1) if data_format == "channels_last" and x.ndim > 1 else x
    start = min(1, x.ndim - 1)
    found = nn.Flatten(start, data_format=data_format)(jnp.asarray(given))
    np.testing.assert_array_equal(found, torch.nn.Flatten(start)(torch.tensor(x)))
    over = jax.vmap(nn.Flatten(start, data_format=data_format))
    np.testing.assert_array_equal(over(jnp.asarray(given)[None])[0], found)


@pytest.mark.parametrize("start", [0, 1])
def test_flatten_from_the_batch_and_without_one(start):
    x = numbers(2, 3, 4, 5)
    given = jnp.asarray(np.moveaxis(x, 1, -1))
    np.testing.assert_array_equal(F.flatten(given, start, data_format="NHWC"), torch.flatten(torch.tensor(x), start))
    np.testing.assert_array_equal(F.flatten(given[0], data_format="NHWC"), x[0].ravel())


def test_flatten_of_one_axis_or_of_a_number_changes_nothing():
    x = jnp.asarray(numbers(2, 3, 4))
    np.testing.assert_array_equal(F.flatten(x, 1, 1), x)
    assert F.flatten(jnp.float32(1)).shape == (1,)


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize("sizes", [(3, 4), (3, 4, 5), (3, -1, 5), (3, 4, 5, 1), (60,)])
def test_unflatten_is_the_way_back(sizes, data_format):
    x = numbers(2, 12 if len(sizes) == 2 else 60)
    expected = torch.nn.Unflatten(1, sizes)(torch.tensor(x)).numpy()
    layer = nn.Unflatten(1, sizes, data_format=data_format)
    found = layer(jnp.asarray(x))
    last = data_format == "channels_last" and len(sizes) > 1
    np.testing.assert_array_equal(found, np.moveaxis(expected, 1, -1) if last else expected)
    np.testing.assert_array_equal(nn.Flatten(data_format=data_format)(found), x)
    np.testing.assert_array_equal(F.unflatten(jnp.asarray(x[0]), 0, sizes, data_format=data_format), found[0])


def test_a_linear_layer_after_a_flatten_takes_the_weights_of_torch():
    original = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(24, 2))
    port = nn.Sequential(nn.Flatten(), nn.Linear(24, 2, rngs=nnx.Rngs(0)))
    load(port, original.state_dict())
    x = RNG.standard_normal((5, 2, 3, 4)).astype(np.float32)
    expected = original(torch.tensor(x)).detach()
    np.testing.assert_allclose(port(jnp.asarray(np.moveaxis(x, 1, -1))), expected, atol=1e-5)


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
@pytest.mark.parametrize("lead", [(), (2,), (2, 3), (0,)])
def test_pixel_shuffle_with_any_axes_before(lead, data_format):
    x = numbers(*lead, 8, 3, 5)
    into = (lambda a: np.moveaxis(a, -3, -1)) if data_format == "NHWC" else np.asarray
    expected = torch.nn.PixelShuffle(2)(torch.tensor(x)).numpy()
    found = nn.PixelShuffle(2, data_format=data_format)(jnp.asarray(into(x)))
    np.testing.assert_array_equal(found, into(expected))
    np.testing.assert_array_equal(nn.PixelUnshuffle(2, data_format=data_format)(found), into(x))


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize("shape", [(2, 6, 3), (2, 6, 3, 4), (0, 6, 3, 4), (2, 6, 1, 2, 3)])
def test_channel_shuffle(shape, data_format):
    x = numbers(*shape)
    into = (lambda a: np.moveaxis(a, 1, -1)) if data_format == "channels_last" else np.asarray
    expected = torch.nn.ChannelShuffle(3)(torch.tensor(x)).numpy() if x.size else x
    np.testing.assert_array_equal(nn.ChannelShuffle(3, data_format=data_format)(jnp.asarray(into(x))), into(expected))


def test_dtypes_stay():
    for dtype in (jnp.bfloat16, jnp.int32, jnp.bool_):
        x = jnp.ones((1, 2, 2, 4), dtype)
        for y in (F.pixel_shuffle(x, 2), F.pixel_unshuffle(x, 2), F.channel_shuffle(x, 2), F.flatten(x, 1)):
            assert y.dtype == dtype


IMAGE = jnp.zeros((2, 4, 4, 6))
REFUSED = {
    "without the channels": lambda: nn.Flatten(1, 2)(IMAGE),
    "the first after the batch": lambda: nn.Flatten(2)(IMAGE),
    "spell it out": lambda: nn.Flatten(0)(IMAGE),
    "begin after the batch": lambda: nn.Flatten(1, data_format="NHWC")(IMAGE[0]),
    "start_dim is 4": lambda: nn.Flatten(4)(IMAGE),
    "comes before the last": lambda: nn.Flatten(2, 1)(IMAGE),
    "data_format is": lambda: nn.Flatten(data_format="HWC"),
    "do not make": lambda: nn.Unflatten(1, (5, 2))(jnp.zeros((2, 11))),
    "dim is 2": lambda: nn.Unflatten(2, (2, 3))(jnp.zeros((2, 4, 6))),
    "dim is 0": lambda: F.unflatten(jnp.zeros((4, 6)), 0, (2, 2)),
    "upscale_factor squared, 4": lambda: F.pixel_shuffle(IMAGE, 2),
    "upscale_factor is 0": lambda: nn.PixelShuffle(0),
    "downscale_factor, 3": lambda: F.pixel_unshuffle(IMAGE, 3),
    "downscale_factor is -1": lambda: nn.PixelUnshuffle(-1),
    "at least 3 axes": lambda: F.pixel_shuffle(jnp.zeros((4, 4)), 2),
    "multiple of groups, 4": lambda: F.channel_shuffle(IMAGE, 4),
    "groups is 0": lambda: nn.ChannelShuffle(0),
    "and at least 3": lambda: F.channel_shuffle(jnp.zeros((4, 4)), 2),
}


@pytest.mark.parametrize(("message", "call"), REFUSED.items(), ids=REFUSED)
def test_what_is_refused_names_the_argument(message, call):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("arguments", [("C", (2, 3)), (1, (("C", 2), ("H", 3))), (1, 6), (1, "23")])
def test_named_axes_are_refused(arguments):
    with pytest.raises(TypeError, match="give"):
        nn.Unflatten(*arguments)
