"""Convolutions against eager PyTorch where its own samples do not reach: arguments, corner cases, half precisions."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare.parity.yardstick import difference
from torch.testing._internal.common_methods_invocations import op_db

import graphmode.nn as nn
from graphmode.nn.conv import geometry, transposed_lowering
from graphmode.weights import load, named_arrays, to_state_dict

from .adapters import ADAPTERS
from .adapters.base import FIRST, LAST

SIZES = {1: (9,), 2: (7, 9), 3: (4, 5, 6)}


def differences(subject: str, constructor: dict, *shape: int, layouts=(LAST,), **call) -> dict[str, float]:
    """Of output and gradients in float64, as fractions of their scales, under jit; for one input of PyTorch's shape."""
    torch.manual_seed(0)
    original = getattr(torch.nn, subject)(**constructor).double()
    image = torch.randn(*shape, dtype=torch.float64, requires_grad=True)
    output = original(image, **call)
    cotangent = torch.randn_like(output)
    output.backward(cotangent)
    theirs = {"output": output.detach(), "gradient": image.grad}
    theirs |= {f"gradient {name}": parameter.grad for name, parameter in original.named_parameters()}
    found = {}
    for layout in layouts:
        with jax.enable_x64(True):
            ours = _ours(subject, constructor, original.state_dict(), layout, call, image.detach(), cotangent)
        assert ours.keys() == theirs.keys()
        for name, value in ours.items():
            found[f"{name} {layout}"] = difference(value, theirs[name].numpy()).error
    return found


def _ours(subject, constructor, weights, layout, call, image, cotangent) -> dict[str, np.ndarray]:
    layer = loaded(subject, constructor, weights, layout)
    graphdef, state = nnx.split(layer)
    adapter = ADAPTERS[subject]

    @jax.jit
    def step(state, x, cotangent):
        def forward(state, x):
            args, _ = adapter.inputs((x,), {}, layout)
            return adapter.outputs(nnx.merge(graphdef, state)(*args, **call), (x,), {}, layout)

        y, pull = jax.vjp(forward, state, x)
        return y, *pull(cotangent)

    y, by_state, by_x = step(state, image.numpy(), cotangent.numpy())
    gradients = named_arrays(nnx.merge(graphdef, by_state), gradients=True)
    found = {f"gradient {name}": value for name, value in gradients.items()}
    return {"output": np.asarray(y), "gradient": np.asarray(by_x), **found}


def loaded(subject: str, constructor: dict, weights=None, layout=LAST) -> nnx.Module:
    """Our layer on PyTorch's weights, fresh ones by default."""
    if weights is None:
        torch.manual_seed(0)
        weights = getattr(torch.nn, subject)(**constructor).state_dict()
    rngs = {"rngs": nnx.Rngs} if "Conv" in subject else {}

    def build():
        return getattr(nn, subject)(**constructor, data_format=layout, **{name: make(0) for name, make in rngs.items()})

    layer = nnx.eval_shape(build)  # to compile the drawing of each shape would take longer than the test
    load(layer, weights)
    return layer


def agrees(subject: str, constructor: dict, *shape: int, **options) -> None:
    wrong = {name: e for name, e in differences(subject, constructor, *shape, **options).items() if not e <= 1e-12}
    assert not wrong


CONVOLUTIONS = {
    "plain": {"kernel_size": 3},
    "padded": {"kernel_size": 3, "padding": 1},
    "strided": {"kernel_size": 3, "padding": 1, "stride": 2},
    "stride over the kernel": {"kernel_size": 2, "stride": 3},
    "non-square": {"kernel_size": (3, 5), "padding": (0, 2), "stride": (2, 1)},
    "dilated": {"kernel_size": (3, 2), "dilation": (2, 3), "padding": (2, 1)},
    "padding over the kernel": {"kernel_size": 2, "padding": 3, "stride": 2},
    "same": {"kernel_size": (4, 3), "padding": "same", "dilation": (1, 2)},
    "valid": {"kernel_size": 3, "padding": "valid", "stride": 2},
    "pointwise": {"kernel_size": 1},
    "pointwise strided": {"kernel_size": 1, "stride": 2, "padding": 1},
    "grouped": {"kernel_size": (3, 2), "groups": 2, "padding": 1, "stride": (1, 2)},
    "depthwise": {"kernel_size": 3, "groups": 4, "padding": 1},
    "depthwise strided": {"kernel_size": (5, 3), "groups": 4, "stride": (2, 3), "padding": (2, 0)},
    "depthwise dilated": {"kernel_size": 3, "groups": 4, "dilation": 2, "padding": 5},
    "depthwise same": {"kernel_size": (2, 4), "groups": 4, "padding": "same"},
    "depthwise, two outputs a channel": {"kernel_size": 3, "groups": 4, "out_channels": 8},
    "no bias": {"kernel_size": 3, "bias": False},
    "tuples of one": {"kernel_size": (3, 3), "stride": (2,), "padding": (1,)},
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_conv2d(name):
    arguments = CONVOLUTIONS[name]
    out_channels = 4 if arguments.get("groups") == 4 else 6
    layouts = (FIRST if name in ("strided", "grouped", "depthwise strided") else LAST,)
    agrees("Conv2d", {"in_channels": 4, "out_channels": out_channels, **arguments}, 2, 4, *SIZES[2], layouts=layouts)


MANY = {
    "plain": ("Conv2d", {"kernel_size": 3, "padding": 1}, (40, 33)),
    "larger than the input": ("Conv2d", {"kernel_size": (2, 3), "padding": 2}, (20, 15)),
    "volume": (
        "Conv3d",
        {"kernel_size": (2, 3, 2), "padding": 1, "stride": (2, 1, 1), "dilation": (2, 1, 1)},
        (9, 8, 7),
    ),
}


@pytest.mark.parametrize("name", MANY)
def test_many_positions(name):
    """Beyond the sizes where columns are unfolded."""
    subject, arguments, size = MANY[name]
    agrees(subject, {"in_channels": 2, "out_channels": 3, **arguments}, 1, 2, *size)


LARGE_KERNELS = {
    "few positions": ("Conv1d", {"kernel_size": 70, "stride": 30, "dilation": 2, "padding": 3}, (300,)),
    "few positions, plane": (
        "Conv2d",
        {"kernel_size": (3, 9), "stride": (2, 3), "dilation": (2, 1), "padding": (0, 1)},
        (12, 14),
    ),
    "one position": ("Conv2d", {"kernel_size": (5, 6)}, (5, 6)),
    "many positions": ("Conv1d", {"kernel_size": 80}, (200,)),
}


@pytest.mark.parametrize("name", LARGE_KERNELS)
def test_more_taps_than_positions(name):
    """Columns are sliced by position, or not at all."""
    subject, arguments, size = LARGE_KERNELS[name]
    agrees(subject, {"in_channels": 2, "out_channels": 3, **arguments}, 2, 2, *size)


@pytest.mark.parametrize("length", [200, 600])
def test_a_large_kernel_makes_a_small_graph(length):
    kernel = jnp.ones((256, 1, 6))
    graph = jax.jit(partial(nn.functional.conv1d, stride=2)).lower(jnp.ones((1, length + 256, 1)), kernel)
    assert graph.as_text().count("slice") < 150


OTHER_RANKS = {
    "strided": {"kernel_size": 3, "padding": 1, "stride": 2},
    "pointwise": {"kernel_size": 1, "stride": 2},
    "grouped, dilated": {"kernel_size": 2, "groups": 2, "padding": "same", "dilation": 2},
    "depthwise strided": {"kernel_size": 3, "groups": 4, "out_channels": 8, "stride": 2, "padding": 2},
}


@pytest.mark.parametrize(
    ("name", "spatial"),
    [*((name, 1) for name in OTHER_RANKS), ("strided", 3), ("grouped, dilated", 3)],
)
def test_conv1d_and_conv3d(name, spatial):
    constructor = {"in_channels": 4, "out_channels": 6, **OTHER_RANKS[name]}
    agrees(f"Conv{spatial}d", constructor, 2, 4, *SIZES[spatial], layouts=(FIRST if spatial == 3 else LAST,))


@pytest.mark.parametrize(
    ("mode", "spatial", "arguments"),
    [
        ("reflect", 1, {"padding": 8, "stride": 2, "kernel_size": 3}),
        ("replicate", 1, {"padding": 10, "stride": 2, "kernel_size": 3}),
        ("circular", 1, {"padding": 9, "stride": 2, "kernel_size": 3}),
        ("reflect", 2, {"padding": "same", "kernel_size": (4, 3)}),
        ("circular", 2, {"padding": (2, 1), "kernel_size": 3, "groups": 2}),
        ("replicate", 3, {"padding": (1, 0, 2), "kernel_size": 2}),
    ],
)
def test_padding_from_the_input_itself(mode, spatial, arguments):
    constructor = {"in_channels": 2, "out_channels": 4, "padding_mode": mode, **arguments}
    agrees(f"Conv{spatial}d", constructor, 2, 2, *SIZES[spatial], layouts=(FIRST if spatial == 1 else LAST,))


TRANSPOSED = {
    "plain": {"kernel_size": 3},
    "doubling": {"kernel_size": 4, "stride": 2, "padding": 1},
    "sub-pixel": {"kernel_size": 2, "stride": 2},
    "stride over the kernel": {"kernel_size": 2, "stride": 3, "output_padding": 2},
    "padded past a phase": {"kernel_size": 5, "stride": 2, "padding": 3, "output_padding": 1},
    "grouped": {"kernel_size": 3, "stride": 2, "groups": 2, "padding": 1, "output_padding": 1},
    "depthwise": {"kernel_size": 3, "stride": 2, "groups": 4, "out_channels": 4},
    "dilated": {"kernel_size": 2, "dilation": 3, "groups": 2, "output_padding": 2},
    "strided and dilated": {"kernel_size": 3, "stride": 2, "dilation": 3, "groups": 2, "padding": 4},
    "padding over the kernel": {"kernel_size": 2, "padding": 2, "bias": False},
}
NON_SQUARE = {
    "non-square": ({"kernel_size": (3, 5), "stride": (2, 3), "padding": (0, 2), "output_padding": (1, 0)}, {}),
    "stride or dilation": ({"kernel_size": (3, 2), "stride": (2, 1), "dilation": (1, 3), "groups": 2}, {}),
    "output_size": ({"kernel_size": 3, "stride": (2, 3), "padding": 1}, {"output_size": (8, 15)}),
}


@pytest.mark.parametrize("name", TRANSPOSED)
def test_conv_transpose1d(name):
    agrees("ConvTranspose1d", {"in_channels": 4, "out_channels": 6, **TRANSPOSED[name]}, 2, 4, 5)


@pytest.mark.parametrize("name", NON_SQUARE)
def test_conv_transpose2d(name):
    arguments, call = NON_SQUARE[name]
    agrees(
        "ConvTranspose2d", {"in_channels": 4, "out_channels": 6, **arguments}, 2, 4, 4, 5, layouts=(LAST, FIRST), **call
    )


def test_conv_transpose3d():
    arguments = {"kernel_size": (2, 3, 4), "stride": (1, 2, 3), "padding": (0, 1, 2), "output_padding": (0, 1, 2)}
    agrees("ConvTranspose3d", {"in_channels": 4, "out_channels": 6, **arguments, "groups": 2}, 2, 4, 3, 4, 2)


def test_output_size_may_be_a_whole_shape():
    arguments = {"in_channels": 2, "out_channels": 3, "kernel_size": 3, "stride": 2, "padding": 1}
    for layout, shape, wanted in ((LAST, (1, 4, 5, 2), (1, 8, 9, 3)), (FIRST, (2, 4, 5), (3, 8, 9))):
        layer = loaded("ConvTranspose2d", arguments, layout=layout)
        output = jax.eval_shape(lambda x, layer=layer, wanted=wanted: layer(x, output_size=wanted), jnp.zeros(shape))
        assert output.shape == wanted


BLOCKS = {
    "plain": {"kernel_size": (2, 3)},
    "apart": {"kernel_size": 2, "stride": 3},
    "all": {"kernel_size": (3, 2), "dilation": (1, 3), "padding": (2, 1), "stride": (2, 1)},
    "dilated past the padding": {"kernel_size": 2, "dilation": 4, "padding": 1},
}


@pytest.mark.parametrize("batch", [(2,), ()], ids=["batch", "none"])
@pytest.mark.parametrize("name", BLOCKS)
def test_unfold_and_fold(name, batch):
    agrees("Unfold", BLOCKS[name], *batch, 3, 6, 7)
    columns = torch.nn.Unfold(**BLOCKS[name])(torch.zeros(1, 3, 6, 7)).shape[1:]
    agrees("Fold", {"output_size": (6, 7), **BLOCKS[name]}, *batch, *columns)


def test_blocks_of_booleans_and_of_no_batch():
    image = np.random.default_rng(0).random((2, 5, 6, 3)) < 0.3
    columns = nn.functional.unfold(jnp.asarray(image), 2)
    theirs = torch.nn.functional.unfold(torch.tensor(image).permute(0, 3, 1, 2), 2)
    np.testing.assert_array_equal(columns, theirs.permute(0, 2, 1))
    np.testing.assert_array_equal(
        nn.functional.fold(columns, (5, 6), 2),
        torch.nn.functional.fold(theirs, (5, 6), 2).permute(0, 2, 3, 1),
    )
    assert nn.functional.unfold(jnp.zeros((0, 5, 6, 3)), 2).shape == (0, 20, 12)
    assert nn.functional.fold(jnp.zeros((0, 20, 12)), (5, 6), 2).shape == (0, 5, 6, 3)


@pytest.mark.parametrize(("kind", "groups", "mode"), [("", 1, "reflect"), ("", 4, "zeros"), ("Transpose", 2, "zeros")])
def test_an_empty_batch_and_none(kind, groups, mode):
    arguments = {"kernel_size": 3, "stride": 2, "padding": 1, "groups": groups, "padding_mode": mode}
    layer = loaded(f"Conv{kind}2d", {"in_channels": 4, "out_channels": 4, **arguments})
    x = jnp.asarray(np.random.default_rng(0).standard_normal((2, 6, 5, 4)), jnp.float32)
    graphdef, state = nnx.split(layer)

    @jax.jit
    def step(state, x):
        gradient = jax.grad(lambda state, x: jnp.sum(nnx.merge(graphdef, state)(x)), (0, 1))
        return layer(x), layer(x[0]), layer(x[:0]), gradient(state, x[:0])

    y, alone, empty, (by_state, by_x) = step(state, x)
    np.testing.assert_allclose(alone, y[0], atol=1e-6)
    assert empty.shape == y[:0].shape
    assert by_x.shape == x[:0].shape
    assert not any(jnp.any(gradient) for gradient in jax.tree.leaves(by_state))


TWICE = {
    "depthwise": ("Conv2d", {"kernel_size": 2, "groups": 4, "padding": 1, "stride": 2}),
    "channelwise": ("Conv2d", {"kernel_size": 2, "groups": 2, "in_channels": 2}),
    "grouped": ("Conv2d", {"kernel_size": (2, 3), "groups": 2}),
    "unfolded": ("Conv2d", {"kernel_size": (2, 3), "stride": 2}),
    "transposed": ("ConvTranspose2d", {"kernel_size": 3, "stride": 2, "groups": 2}),
}


@pytest.mark.parametrize("name", TWICE)
def test_derivative_of_a_derivative(name):
    subject, arguments = TWICE[name]
    arguments = {"in_channels": 4, "out_channels": 4, **arguments}
    with jax.enable_x64(True):
        original = getattr(torch.nn, subject)(**arguments).double()
        layer = loaded(subject, arguments, original.state_dict())
        x = np.random.default_rng(0).standard_normal((2, arguments["in_channels"], 4, 5))
        graphdef, state = nnx.split(layer)

        def energy(state, x):
            return jnp.sum(nnx.merge(graphdef, state)(x) ** 3)

        def slope(state, x):
            return jnp.sum(jax.grad(energy, 1)(state, x) ** 2)

        by_state, by_x = jax.jit(jax.grad(slope, (0, 1)))(state, jnp.asarray(x.transpose(0, 2, 3, 1)))
        image = torch.tensor(x, requires_grad=True)
        (first,) = torch.autograd.grad((original(image) ** 3).sum(), image, create_graph=True)
        (first**2).sum().backward()
        np.testing.assert_allclose(by_x.transpose(0, 3, 1, 2), image.grad, rtol=1e-9, atol=1e-10)
        weight = to_state_dict(nnx.merge(graphdef, by_state), framework="numpy")["weight"]
        np.testing.assert_allclose(weight, original.weight.grad, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(("kind", "groups"), [("", 4), ("", 2), ("Transpose", 2)])
def test_under_vmap(kind, groups):
    arguments = {"in_channels": 4, "out_channels": 4, "kernel_size": 3, "groups": groups, "stride": 2}
    layer = loaded(f"Conv{kind}2d", arguments)
    x = jnp.asarray(np.random.default_rng(0).standard_normal((3, 2, 7, 8, 4)), jnp.float32)
    together, one_by_one = jax.jit(lambda x: (jax.vmap(layer)(x), jnp.stack([layer(row) for row in x])))(x)
    np.testing.assert_allclose(together, one_by_one, atol=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("subject", "arguments"),
    [
        ("Conv1d", {"kernel_size": 5}),
        ("Conv2d", {"kernel_size": 3, "groups": 2}),
        ("Conv2d", {"kernel_size": 1}),
        ("Conv2d", {"kernel_size": 3, "groups": 32}),
        ("ConvTranspose2d", {"kernel_size": 4, "stride": 2}),
    ],
)
def test_half_precisions_sum_in_float32(subject, arguments, dtype):
    arguments = {"in_channels": 32, "out_channels": 32, **arguments}
    torch.manual_seed(0)
    original = getattr(torch.nn, subject)(**arguments).to(getattr(torch, dtype))
    layer = loaded(subject, arguments, original.state_dict(), FIRST)
    x = torch.randn(2, 32, *(8,) * (1 if subject == "Conv1d" else 2)).to(getattr(torch, dtype))
    y = jax.jit(lambda x: layer(x))(jnp.asarray(x.float().numpy(), dtype))
    assert y.dtype == jnp.dtype(dtype)
    exact = original.double()(x.double()).detach().numpy()
    theirs = original.to(getattr(torch, dtype))(x).detach().double().numpy()
    ours = np.sqrt(np.mean((np.asarray(y, np.float64) - exact) ** 2))
    assert ours < 2 * np.sqrt(np.mean((theirs - exact) ** 2))


@pytest.mark.parametrize("dtype", [np.complex128, np.int64])
@pytest.mark.parametrize("name", ["conv2d", "conv_transpose2d"])
def test_complex_numbers_and_integers(name, dtype):
    rng = np.random.default_rng(0)
    x, weight = (rng.integers(-9, 9, shape).astype(dtype) for shape in ((2, 4, 5, 6), (4, 2, 2, 3)))
    if dtype == np.complex128:
        x, weight = x + 1j * rng.standard_normal(x.shape), weight * 1j
    with jax.enable_x64(True):
        ours = getattr(nn.functional, name)(x, weight.transpose(2, 3, 1, 0), None, 2, 1, groups=2, data_format="NCHW")
    theirs = getattr(torch.nn.functional, name)(torch.tensor(x), torch.tensor(weight), None, 2, 1, groups=2)
    assert ours.dtype == dtype
    np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_a_pair_of_paddings_for_each_axis():
    rng = np.random.default_rng(0)
    x, weight = (jnp.asarray(rng.standard_normal(shape), jnp.float32) for shape in ((1, 5, 6, 2), (2, 3, 2, 4)))
    padded = np.pad(x, ((0, 0), (1, 0), (0, 2), (0, 0)))
    expected = nn.functional.conv2d(padded, weight)
    np.testing.assert_allclose(nn.functional.conv2d(x, weight, padding=((1, 0), (0, 2))), expected, atol=1e-6)
    layer = nnx.eval_shape(lambda: nn.Conv2d(2, 4, (2, 3), padding=((1, 0), (0, 2)), rngs=nnx.Rngs(0)))
    assert nnx.eval_shape(lambda layer: layer(x), layer).shape == expected.shape


NAN = {
    "Conv2d": {"kernel_size": 3, "stride": 2, "padding": 1},
    "ConvTranspose1d": {"kernel_size": 4, "stride": 2, "padding": 1},
    "ConvTranspose2d": {"kernel_size": 3, "stride": 2, "padding": 1},
}


@pytest.mark.parametrize("subject", NAN)
def test_nan_and_infinity_stay_where_their_kernels_reach(subject):
    arguments = {"in_channels": 2, "out_channels": 2, **NAN[subject]}
    x = torch.randn(1, 2, *(6, 7)[: int(subject[-2])])
    x[0, 1, 2], x[0, 0, -1] = torch.nan, torch.inf
    original = getattr(torch.nn, subject)(**arguments)
    layer = loaded(subject, arguments, original.state_dict(), FIRST)
    ours = np.asarray(jax.jit(lambda x: layer(x))(x.numpy()))
    theirs = original(x).detach().numpy()
    np.testing.assert_array_equal(np.isnan(ours), np.isnan(theirs))
    np.testing.assert_array_equal(np.isinf(ours), np.isinf(theirs))


@pytest.mark.parametrize("subject", ["Conv1d", "Conv3d", "ConvTranspose2d"])
def test_initialisation_is_that_of_torch(subject):
    arguments = {"in_channels": 8, "out_channels": 64, "kernel_size": 3, "groups": 2}
    torch.manual_seed(0)
    original = getattr(torch.nn, subject)(**arguments)
    layer = getattr(nn, subject)(**arguments, rngs=nnx.Rngs(0))
    fan_in, _ = torch.nn.init._calculate_fan_in_and_fan_out(original.weight)
    bound = 1 / np.sqrt(fan_in)
    for ours, theirs in ((layer.weight[...], original.weight), (layer.bias[...], original.bias)):
        assert ours.dtype == jnp.float32
        for values in (np.asarray(ours), theirs.detach().numpy()):
            assert 0.85 * bound < np.abs(values).max() <= bound * (1 + 1e-6)
            assert abs(values.std() - bound / np.sqrt(3)) < 0.15 * bound


LAZY = [(f"Conv{kind}{spatial}d", spatial) for kind in ("", "Transpose") for spatial in (1, 2, 3)]


@pytest.mark.parametrize(("subject", "spatial"), LAZY)
def test_a_lazy_layer_becomes_the_plain_one(subject, spatial):
    arguments = {"out_channels": 6, "kernel_size": 3, "stride": [2], "groups": 2, "data_format": FIRST}
    shape = (1, 4, *SIZES[spatial])

    def build():
        lazy, by_shape = (getattr(nn, f"Lazy{subject}")(**arguments, rngs=nnx.Rngs(0)) for _ in range(2))
        assert (lazy.in_channels, lazy.out_channels, lazy.weight, lazy.groups) == (0, 6, None, 2)
        plain = getattr(nn, subject)(4, **arguments, rngs=nnx.Rngs(0))
        x = jnp.ones(shape)
        assert nnx.clone(lazy)(x).shape == lazy(x).shape == plain(x).shape
        by_shape.initialize(shape[1:])
        return lazy, by_shape, plain

    lazy, by_shape, plain = nnx.eval_shape(build)
    assert type(lazy) is type(by_shape) is type(plain)
    assert nnx.graphdef(lazy) == nnx.graphdef(by_shape) == nnx.graphdef(plain)
    assert nnx.state(lazy) == nnx.state(by_shape) == nnx.state(plain)


class Perceptron(nnx.Module):
    def __init__(self, *, rngs):
        self.first = nn.LazyConv1d(3, 1, rngs=rngs)
        self.second = nn.LazyConv1d(2, 1, rngs=rngs)

    def __call__(self, x):
        return self.second(self.first(x))


UNDER = {
    "jit of a closure": lambda model, x: jax.jit(lambda x: model(x))(x),
    "jit": lambda model, x: jax.jit(lambda model, x: model(x))(model, x),
    "nnx.jit": lambda model, x: nnx.jit(lambda model, x: model(x))(model, x),
    "grad": lambda model, x: jax.grad(lambda x: model(x).sum())(x),
    "vmap": lambda model, x: jax.vmap(model)(x),
}


@pytest.mark.parametrize("name", UNDER)
def test_a_lazy_layer_is_initialised_outside_of(name):
    model = Perceptron(rngs=nnx.Rngs(0))
    x = jnp.ones((4, 5, 2))
    with pytest.raises(RuntimeError, match="LazyConv1d has no parameters yet"):
        UNDER[name](model, x)
    model(x)
    UNDER[name](model, x)


def test_a_lazy_model_is_built_and_called_inside_of_eval_shape():
    def build(x):
        model = Perceptron(rngs=nnx.Rngs(0))
        model(x)
        return model

    abstract = nnx.eval_shape(lambda: build(jnp.ones((1, 5, 7))))
    assert (type(abstract.first), abstract.first.weight.shape) == (nn.Conv1d, (1, 7, 3))
    assert nnx.graphdef(abstract) == nnx.graphdef(build(jnp.ones((1, 5, 7))))


@pytest.mark.parametrize(
    ("name", "weight", "arguments"),
    [
        ("conv2d", (3, 3, 1, 4), {"groups": 4}),
        ("conv2d", (3, 3, 2, 6), {"groups": 2}),
        ("conv_transpose2d", (3, 3, 2, 4), {"stride": 2}),
        ("conv_transpose2d", (4, 4, 2, 4), {"stride": 2, "groups": 2}),
    ],
)
def test_a_convolution_on_an_accelerator_is_one_operation(name, weight, arguments):
    function = getattr(nn.functional, name)
    operands = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((1, 8, 8, 4), weight)]
    exported = jax.export.export(jax.jit(lambda x, w: function(x, w, **arguments)), platforms=["cuda"])(*operands)
    assert exported.mlir_module().count("stablehlo.convolution") == 1
    assert "stablehlo.multiply" not in exported.mlir_module()


CONV2D = {"in_channels": 4, "out_channels": 4, "kernel_size": 3}
IMAGE = jnp.zeros((1, 8, 8, 3), jnp.float32)
REFUSED = {
    "kernel_size": lambda: nn.Conv2d(rngs=nnx.Rngs(0), **{**CONV2D, "kernel_size": (3, 3, 3)}),
    "stride": lambda: nn.Conv2d(rngs=nnx.Rngs(0), **CONV2D, stride=0),
    "padding is -1": lambda: nn.Conv2d(rngs=nnx.Rngs(0), **CONV2D, padding=-1),
    "padding is 'full'": lambda: nn.Conv2d(rngs=nnx.Rngs(0), **CONV2D, padding="full"),
    "padding is 'same' and stride": lambda: nn.Conv2d(rngs=nnx.Rngs(0), **CONV2D, padding="same", stride=2),
    "in_channels is 5": lambda: nn.Conv2d(rngs=nnx.Rngs(0), **{**CONV2D, "in_channels": 5}, groups=2),
    "out_channels is 3": lambda: nn.ConvTranspose2d(rngs=nnx.Rngs(0), **{**CONV2D, "out_channels": 3}, groups=2),
    "groups": lambda: nn.Conv2d(rngs=nnx.Rngs(0), **CONV2D, groups=0),
    "data_format": lambda: nn.Conv2d(rngs=nnx.Rngs(0), **CONV2D, data_format="NLC"),
    "padding_mode is 'mirror'": lambda: nn.Conv2d(rngs=nnx.Rngs(0), **CONV2D, padding_mode="mirror"),
    "padding_mode is 'reflect'": lambda: nn.ConvTranspose2d(rngs=nnx.Rngs(0), **CONV2D, padding_mode="reflect"),
    "output_padding is": lambda: nn.ConvTranspose2d(rngs=nnx.Rngs(0), **CONV2D, stride=2, output_padding=2),
    "output_padding is -1": lambda: nn.ConvTranspose2d(rngs=nnx.Rngs(0), **CONV2D, stride=2, output_padding=-1),
    "in_channels is 4": lambda: nn.Conv2d(rngs=nnx.Rngs(0), **CONV2D)(IMAGE),
    "3 or 4 axes": lambda: nn.Conv2d(rngs=nnx.Rngs(0), **CONV2D)(IMAGE[0, 0]),
    "kernel spans": lambda: nn.Conv2d(3, 4, 3, dilation=4, rngs=nnx.Rngs(0))(IMAGE),
    "only the batch may be 0": lambda: nn.Conv2d(3, 4, 3, padding=2, rngs=nnx.Rngs(0))(IMAGE[:, :0]),
    "'reflect' has values for 7": lambda: nn.Conv2d(3, 4, 3, padding=8, padding_mode="reflect", rngs=nnx.Rngs(0))(
        IMAGE
    ),
    "'circular' has values for 8": lambda: nn.Conv2d(3, 4, 3, padding=9, padding_mode="circular", rngs=nnx.Rngs(0))(
        IMAGE
    ),
    "leaves": lambda: nn.ConvTranspose2d(3, 4, 2, padding=5, rngs=nnx.Rngs(0))(IMAGE),
    "output_size is .12, 8.": lambda: nn.ConvTranspose2d(3, 4, 2, rngs=nnx.Rngs(0))(IMAGE, output_size=(12, 8)),
    "output_size is .1, 2, 3.": lambda: nn.ConvTranspose2d(3, 4, 2, rngs=nnx.Rngs(0))(IMAGE, output_size=(1, 2, 3)),
    "bias has shape": lambda: nn.functional.conv2d(IMAGE, jnp.zeros((1, 1, 3, 4)), jnp.zeros(1)),
    "weight has shape": lambda: nn.functional.conv2d(IMAGE, jnp.zeros((3, 3, 3))),
    "does not fit into": lambda: nn.functional.unfold(IMAGE, 9),
    "20 blocks of a positive": lambda: nn.Fold((5, 6), 2)(jnp.zeros((2, 21, 12))),
    "multiple of 4": lambda: nn.Fold((5, 6), 2)(jnp.zeros((2, 20, 13))),
    "none but it empty": lambda: nn.Unfold(2)(IMAGE[..., :0]),
    "NLC": lambda: nn.LazyConv1d(4, 3, rngs=nnx.Rngs(0))(IMAGE),
    "out_channels is 5": lambda: nn.LazyConv1d(5, 3, groups=2, rngs=nnx.Rngs(0)),
    "in_channels is 3": lambda: nn.LazyConv2d(4, 3, groups=2, rngs=nnx.Rngs(0))(IMAGE),
}


@pytest.mark.parametrize(("message", "call"), REFUSED.items(), ids=REFUSED)
def test_what_is_refused_names_the_argument(message, call):
    with pytest.raises(ValueError, match=message):
        nnx.eval_shape(call)


def test_mixed_dtypes_are_refused():
    layer = loaded("Conv2d", {"in_channels": 3, "out_channels": 4, "kernel_size": 3})
    with pytest.raises(TypeError, match="input is float16 and weight is float32"):
        layer(IMAGE.astype(jnp.float16))


@pytest.mark.parametrize("name", ["conv1d", "conv2d", "conv3d"])
def test_what_torch_refuses_is_refused(name):
    (info,) = [info for info in op_db if info.name == f"nn.functional.{name}"]
    letters = {"conv1d": "NCL", "conv2d": "NCHW", "conv3d": "NCDHW"}[name]
    for error in info.error_inputs("cpu"):
        sample = error.sample_input
        operands = [tensor.numpy() for tensor in (sample.input, *sample.args)]
        operands[1] = operands[1].transpose(*range(2, operands[1].ndim), 1, 0)
        with jax.enable_x64(True), pytest.raises((ValueError, TypeError)):
            getattr(nn.functional, name)(*map(jnp.asarray, operands), **sample.kwargs, data_format=letters)


def test_a_planted_fault_is_seen(monkeypatch, retraced):
    arguments = {"in_channels": 4, "out_channels": 4, "kernel_size": 3, "groups": 2}
    reflected = {**arguments, "padding": 2, "padding_mode": "reflect"}
    monkeypatch.setitem(geometry.PADDING_MODES, "reflect", "symmetric")
    assert differences("Conv1d", reflected, 2, 4, 7)[f"output {LAST}"] > 0.1
    whole = transposed_lowering._flipped
    monkeypatch.setattr(transposed_lowering, "_flipped", lambda weight, groups: whole(jnp.flip(weight, 0), groups))
    assert differences("ConvTranspose1d", {**arguments, "stride": 2}, 2, 4, 7)[f"output {LAST}"] > 0.1


@pytest.mark.parametrize("layout", [LAST, FIRST])
def test_subclasses_may_pad_by_the_size(layout):
    class Same(nn.Conv2d):
        def paddings(self, size):
            return tuple(((-n) % s, 0) for n, s in zip(size, self.stride, strict=True))

    layer = Same(3, 2, 2, stride=2, data_format=layout, rngs=nnx.Rngs(0))
    x = jnp.ones((1, 5, 7, 3))
    y = layer(x if layout == LAST else x.transpose(0, 3, 1, 2))
    assert y.shape == ((1, 3, 4, 2) if layout == LAST else (1, 2, 3, 4))


def test_a_depthwise_layers_hessian_is_that_of_two_reverse_passes():
    conv = nn.Conv1d(2, 2, 2, groups=2, bias=False, rngs=nnx.Rngs(0))
    x = jnp.asarray(np.random.default_rng(0).standard_normal((1, 4, 2)), jnp.float32)
    found = jax.jacrev(jax.grad(lambda x: (conv(x) ** 3).sum()))(x)
    kernel = conv.weight[...][:, 0]

    def by_hand(x):
        return ((x[:, :-1] * kernel[0] + x[:, 1:] * kernel[1]) ** 3).sum()

    np.testing.assert_allclose(found, jax.hessian(by_hand)(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["Conv1d", "Conv2d", "ConvTranspose2d"])
def test_integers_that_are_set_later_are_of_all_axes(name):
    theirs, ours = getattr(torch.nn, name)(2, 3, 3), getattr(nn, name)(2, 3, 3, rngs=nnx.Rngs(0))
    load(ours, theirs.state_dict())
    for layer in (theirs, ours):
        layer.stride, layer.padding, layer.dilation = 2, 1, 2
    spatial = theirs.weight.ndim - 2
    x = torch.randn(2, 2, *[7] * spatial, generator=torch.Generator().manual_seed(0))
    size = {"output_size": [16] * spatial} if "Transpose" in name else {}
    found = ours(jnp.moveaxis(jnp.asarray(x.numpy()), 1, -1), **size)
    if size:
        theirs.stride, theirs.padding, theirs.dilation = (2, 2), (1, 1), (2, 2)  # PyTorch wants tuples for a size
    wanted = theirs(x, **size).detach().numpy()
    np.testing.assert_allclose(jnp.moveaxis(found, -1, 1), wanted, rtol=1e-5, atol=1e-6)
