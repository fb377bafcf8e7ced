"""Every layer of `graphmode.nn` against eager PyTorch's of the same name in float64: outputs, gradients, buffers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from graphmode import nn
from graphmode.weights import load, to_state_dict


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def to_port(x: np.ndarray, data_format: str) -> jax.Array:
    return jnp.moveaxis(jnp.asarray(x), -3, -1) if data_format == "NHWC" else jnp.asarray(x)


def to_torch(x: jax.Array, data_format: str) -> np.ndarray:
    return np.asarray(jnp.moveaxis(x, -1, -3) if data_format == "NHWC" else x)


def close(port, reference, what: str) -> None:
    reference = np.asarray(reference)
    scale = max(np.abs(reference).max(initial=0), 1e-30)
    assert np.shape(port) == reference.shape, what
    error = np.abs(np.asarray(port) - reference).max(initial=0) / scale
    assert error < 1e-12, f"{what}: {error}"


def agree(layer: nnx.Module, original: torch.nn.Module, x: np.ndarray, data_format: str = "NHWC") -> None:
    """Output, gradients by input and parameters, and buffers after the call, of one jitted step."""
    original = original.double()
    load(layer, original.state_dict())
    graphdef, parameters, rest = nnx.split(layer, nnx.Param, ...)
    image = torch.tensor(x, requires_grad=True)
    expected = original(image)
    cotangent = np.random.default_rng(1).standard_normal(expected.shape)
    expected.backward(torch.tensor(cotangent))

    @jax.jit
    def step(parameters, rest, x, cotangent):
        def forward(parameters, x):
            module = nnx.merge(graphdef, parameters, rest, copy=True)
            return module(x), nnx.state(module, nnx.Not(nnx.Param))

        y, pull, rest_after = jax.vjp(forward, parameters, x, has_aux=True)
        return y, pull(cotangent), rest_after

    is_image = x.ndim in (3, 4) and not isinstance(original, torch.nn.Linear)
    into = (lambda a: to_port(a, data_format)) if is_image else jnp.asarray
    back = (lambda a: to_torch(a, data_format)) if is_image else np.asarray
    y, (by_parameters, by_x), after = step(parameters, rest, into(x), into(cotangent))
    close(back(y), expected.detach(), "output")
    close(back(by_x), image.grad, "gradient by x")
    gradients = to_state_dict(nnx.merge(graphdef, by_parameters, rest), framework="numpy")
    for name, parameter in original.named_parameters():
        close(gradients[name], parameter.grad, f"gradient by {name}")
    buffers = to_state_dict(nnx.merge(graphdef, parameters, after), framework="numpy")
    for name, buffer in original.named_buffers():
        close(buffers[name], buffer, name)


def in_both_formats(table: dict[str, dict], *names: str) -> list[tuple[str, str]]:
    """Every row in NHWC, and these in NCHW too."""
    return [(name, "NHWC") for name in table] + [(name, "NCHW") for name in names]


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
    "grouped": {"kernel_size": 3, "groups": 2, "padding": 1},
    "depthwise": {"kernel_size": 3, "groups": 4, "padding": 1},
    "depthwise strided": {"kernel_size": (5, 3), "groups": 4, "stride": (2, 3), "padding": (2, 0)},
    "depthwise dilated": {"kernel_size": 3, "groups": 4, "dilation": 2, "padding": 5},
    "depthwise same": {"kernel_size": (2, 4), "groups": 4, "padding": "same"},
    "no bias": {"kernel_size": 3, "bias": False},
}


@pytest.mark.parametrize(
    ("name", "data_format"), in_both_formats(CONVOLUTIONS, "strided", "grouped", "depthwise strided")
)
def test_conv2d(name, data_format):
    arguments = CONVOLUTIONS[name]
    out_channels = 4 if arguments.get("groups") == 4 else 6
    layer = nn.Conv2d(4, out_channels, **arguments, data_format=data_format, rngs=nnx.Rngs(0))
    x = np.random.default_rng(0).standard_normal((2, 4, 7, 9))
    agree(layer, torch.nn.Conv2d(4, out_channels, **arguments), x, data_format)


def test_conv2d_of_many_positions_and_channel_multipliers():
    """Beyond the sizes where columns are unfolded, and depthwise with more outputs than inputs."""
    x = np.random.default_rng(0).standard_normal((1, 2, 40, 33))
    agree(nn.Conv2d(2, 3, 3, padding=1, rngs=nnx.Rngs(0)), torch.nn.Conv2d(2, 3, 3, padding=1), x)
    agree(nn.Conv2d(2, 6, 3, groups=2, rngs=nnx.Rngs(0)), torch.nn.Conv2d(2, 6, 3, groups=2), x)


@pytest.mark.parametrize("groups", [1, 4])
def test_conv2d_without_a_batch_and_with_an_empty_one(groups):
    layer = nn.Conv2d(4, 4, 3, groups=groups, rngs=nnx.Rngs(0))
    original = torch.nn.Conv2d(4, 4, 3, groups=groups)
    agree(layer, original, np.random.default_rng(0).standard_normal((4, 7, 8)))
    assert layer(jnp.zeros((0, 7, 8, 4))).shape == (0, 5, 6, 4)


def test_depthwise_derivative_of_a_derivative():
    layer = nn.Conv2d(3, 3, 2, groups=3, padding=1, stride=2, bias=False, rngs=nnx.Rngs(0))
    original = torch.nn.Conv2d(3, 3, 2, groups=3, padding=1, stride=2, bias=False).double()
    load(layer, original.state_dict())
    x = np.random.default_rng(0).standard_normal((2, 3, 6, 5))
    graphdef, state = nnx.split(layer)

    def energy(state, x):
        return jnp.sum(nnx.merge(graphdef, state)(x) ** 3)

    def slope(state, x):
        return jnp.sum(jax.grad(energy, 1)(state, x) ** 2)

    by_state, by_x = jax.jit(jax.grad(slope, (0, 1)))(state, to_port(x, "NHWC"))
    image = torch.tensor(x, requires_grad=True)
    (first,) = torch.autograd.grad((original(image) ** 3).sum(), image, create_graph=True)
    (first**2).sum().backward()
    close(to_torch(by_x, "NHWC"), image.grad, "second derivative by x")
    weight = to_state_dict(nnx.merge(graphdef, by_state), framework="numpy")["weight"]
    close(weight, original.weight.grad, "second derivative by weight")


def test_conv2d_under_vmap():
    layer = nn.Conv2d(4, 4, 3, groups=4, rngs=nnx.Rngs(0))
    x = jnp.asarray(np.random.default_rng(0).standard_normal((3, 2, 7, 8, 4)), jnp.float32)
    close(jax.vmap(layer)(x), jnp.stack([layer(row) for row in x]), "vmap")


@pytest.mark.parametrize("bias", [True, False])
def test_linear(bias):
    x = np.random.default_rng(0).standard_normal((2, 3, 5))
    agree(nn.Linear(5, 7, bias, rngs=nnx.Rngs(0)), torch.nn.Linear(5, 7, bias), x)


NORMS = {
    "default": {},
    "eps and momentum": {"eps": 1e-3, "momentum": 0.01},
    "cumulative": {"momentum": None},
    "not affine": {"affine": False},
    "no running statistics": {"track_running_stats": False},
}


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize(("name", "data_format"), in_both_formats(NORMS, "default"))
def test_batch_norm(name, data_format, training):
    arguments = NORMS[name]
    rng = np.random.default_rng(0)
    original = torch.nn.BatchNorm2d(5, **arguments).train(training)
    for name, tensor in original.state_dict().items():
        if name != "num_batches_tracked":
            tensor.copy_(torch.tensor(rng.uniform(0.5, 2, tensor.shape)))
        else:
            tensor.fill_(3)
    layer = nn.BatchNorm2d(5, **arguments, data_format=data_format)
    layer.train() if training else layer.eval()
    agree(layer, original, 3 + 2 * rng.standard_normal((2, 5, 3, 4)), data_format)


def test_batch_norm_keeps_its_digits_at_a_large_mean():
    x = (1000 + np.random.default_rng(0).standard_normal((4, 3, 8, 8))).astype(np.float32)
    exact = torch.nn.BatchNorm2d(3).double()(torch.tensor(x).double()).detach().numpy()
    layer = nn.BatchNorm2d(3)
    load(layer, torch.nn.BatchNorm2d(3).state_dict())
    with jax.enable_x64(False):
        y = to_torch(layer(to_port(x, "NHWC")), "NHWC")
    assert np.abs(y - exact).max() < 1e-3


@pytest.mark.parametrize(
    "switch",
    [
        lambda m: m.eval() or m,
        lambda m: m.set_attributes(use_running_average=True) or m,
        lambda m: nnx.view(m, use_running_average=True),
        lambda m: nnx.with_attributes(m, use_running_average=True),
        lambda m: lambda x: m.layers[0](x, use_running_average=True),
    ],
    ids=["eval", "set_attributes", "view", "with_attributes", "call"],
)
def test_batch_norm_switches(switch):
    model = nnx.Sequential(nn.BatchNorm2d(3))
    norm = model.layers[0]
    x = jnp.asarray(np.random.default_rng(0).standard_normal((2, 4, 4, 3)), jnp.float32)
    switched = switch(model)
    close(switched(x), x / np.sqrt(np.float32(1 + 1e-5)), "evaluation with fresh statistics")
    assert int(norm.num_batches_tracked[...]) == 0


def test_batch_norm_in_half_precision_normalises_in_float32():
    x = jnp.asarray(300 + np.random.default_rng(0).standard_normal((2, 4, 4, 3)), jnp.bfloat16)
    layer = nn.BatchNorm2d(3)
    y = layer(x)
    assert y.dtype == jnp.bfloat16
    assert layer.running_mean[...].dtype == jnp.float32
    close(layer.running_mean[...], 0.1 * x.astype(jnp.float32).mean((0, 1, 2)), "running_mean")


POOLS = {
    "plain": {"kernel_size": 2},
    "resnet": {"kernel_size": 3, "stride": 2, "padding": 1},
    "non-square": {"kernel_size": (3, 2), "stride": (1, 3), "padding": (1, 0)},
    "dilated": {"kernel_size": 2, "dilation": 3, "stride": 1, "padding": 1},
    "ceil": {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    "ceil drops a window": {"kernel_size": 2, "stride": 2, "padding": 1, "ceil_mode": True},
    "ceil, long stride": {"kernel_size": 2, "stride": 4, "padding": 1, "ceil_mode": True},
}


@pytest.mark.parametrize("ties", [False, True], ids=["", "ties"])
@pytest.mark.parametrize(("name", "data_format"), in_both_formats(POOLS, "resnet"))
def test_max_pool(name, data_format, ties):
    arguments = POOLS[name]
    rng = np.random.default_rng(0)
    x = rng.integers(-1, 1, (2, 3, 9, 11)).astype(float) if ties else rng.standard_normal((2, 3, 9, 11))
    agree(nn.MaxPool2d(**arguments, data_format=data_format), torch.nn.MaxPool2d(**arguments), x, data_format)


def test_max_pool_of_all_negative_and_of_nan():
    layer, original = nn.MaxPool2d(3, 2, 1), torch.nn.MaxPool2d(3, 2, 1)
    x = -1 - np.random.default_rng(0).random((1, 2, 6, 6))
    agree(layer, original, x)
    x[0, 0, 3, 3] = np.nan
    np.testing.assert_array_equal(to_torch(layer(to_port(x, "NHWC")), "NHWC"), original(torch.tensor(x)).numpy())


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
@pytest.mark.parametrize("size", [1, (2, 3), (None, 4), (11, 13)])
def test_adaptive_avg_pool(size, data_format):
    x = np.random.default_rng(0).standard_normal((3, 9, 11) if size == 1 else (2, 3, 9, 11))
    agree(nn.AdaptiveAvgPool2d(size, data_format=data_format), torch.nn.AdaptiveAvgPool2d(size), x, data_format)


@pytest.mark.parametrize(("layer", "original"), [(nn.ReLU(), torch.nn.ReLU()), (nn.ReLU6(), torch.nn.ReLU6())])
def test_activations_at_their_kinks(layer, original):
    x = np.array([[-1e300, -1.0, -0.0, 0.0, 1e-300, 3.0, 6.0, 6.5]])
    agree(layer, original, x)


def test_initialisation_is_that_of_torch():
    layer = nn.Conv2d(8, 64, 3, groups=2, rngs=nnx.Rngs(0))
    bound = 1 / np.sqrt(4 * 9)
    for values in (layer.weight[...], layer.bias[...], nn.Linear(36, 500, rngs=nnx.Rngs(0)).weight[...]):
        assert values.dtype == jnp.float32
        assert 0.9 * bound < float(jnp.abs(values).max()) <= bound
        assert abs(float(values.std()) - bound / np.sqrt(3)) < 0.15 * bound


def test_a_depthwise_convolution_on_an_accelerator_is_one_operation():
    layer = nn.Conv2d(4, 4, 3, groups=4, bias=False, rngs=nnx.Rngs(0))
    exported = jax.export.export(jax.jit(lambda x: layer(x)), platforms=["cuda"])(jnp.zeros((1, 8, 8, 4), jnp.float32))
    assert exported.mlir_module().count("stablehlo.convolution") == 1
    assert "stablehlo.multiply" not in exported.mlir_module()


REFUSED = {
    "kernel_size": lambda: nn.Conv2d(4, 4, (3, 3, 3), rngs=nnx.Rngs(0)),
    "stride": lambda: nn.Conv2d(4, 4, 3, stride=0, rngs=nnx.Rngs(0)),
    "padding": lambda: nn.Conv2d(4, 4, 3, padding=-1, rngs=nnx.Rngs(0)),
    "padding is 'full'": lambda: nn.Conv2d(4, 4, 3, padding="full", rngs=nnx.Rngs(0)),
    "padding is 'same' and stride": lambda: nn.Conv2d(4, 4, 3, padding="same", stride=2, rngs=nnx.Rngs(0)),
    "in_channels is 5": lambda: nn.Conv2d(5, 4, 3, groups=2, rngs=nnx.Rngs(0)),
    "data_format": lambda: nn.Conv2d(4, 4, 3, data_format="CHWN", rngs=nnx.Rngs(0)),
    "4 channels": lambda: nn.Conv2d(3, 4, 3, rngs=nnx.Rngs(0))(jnp.zeros((1, 8, 8, 4))),
    "kernel spans": lambda: nn.Conv2d(3, 4, 3, dilation=4, rngs=nnx.Rngs(0))(jnp.zeros((1, 8, 8, 3), jnp.float32)),
    "in_features": lambda: nn.Linear(3, 4, rngs=nnx.Rngs(0))(jnp.zeros((2, 4))),
    "1 values a channel": lambda: nn.BatchNorm2d(3)(jnp.zeros((1, 1, 1, 3))),
    "4 axes were": lambda: nn.BatchNorm2d(3)(jnp.zeros((4, 4, 3))),
    "half of the window": lambda: nn.MaxPool2d(2, padding=2),
    "no window fits": lambda: nn.MaxPool2d(5)(jnp.zeros((1, 4, 4, 3))),
    "output_size": lambda: nn.AdaptiveAvgPool2d((0, 1)),
}


@pytest.mark.parametrize(("message", "call"), REFUSED.items(), ids=REFUSED)
def test_what_is_refused_names_the_argument(message, call):
    with pytest.raises(ValueError, match=message):
        call()


def test_mixed_dtypes_are_refused():
    layer = nn.Conv2d(3, 4, 3, rngs=nnx.Rngs(0))
    with pytest.raises(TypeError, match="x is float64 and weight is float32"):
        layer(jnp.zeros((1, 8, 8, 3)))
