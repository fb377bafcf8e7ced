"""Norms where PyTorch's own samples do not reach: running statistics, corner cases, large means, dtypes, devices."""

from __future__ import annotations

import functools
import inspect
import re

import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import pytest
import torch
from flax import nnx

from graphmode import nn
from graphmode.nn import folded_sum
from graphmode.nn import functional as F
from graphmode.nn.norm.standardize import standardize, statistics
from graphmode.weights import load, to_state_dict

from .judging import Verdict, judge_equal, judge_precise
from .samples import FUNCTIONS, MODULES, Sample


def sample_of(name, args, kwargs, shape, *, training=True, seed=0, mean=0.0, dtype=torch.float64) -> Sample:
    """A module with parameters and buffers that are no longer ones and zeros."""
    generator = torch.Generator().manual_seed(seed)

    def build() -> torch.nn.Module:
        generator.manual_seed(seed)
        module = getattr(torch.nn, name)(*args, **kwargs).to(dtype)
        with torch.no_grad():
            for key, tensor in module.state_dict().items():
                if key == "num_batches_tracked":
                    tensor.fill_(3)
                else:
                    tensor.copy_(0.5 + torch.rand(tensor.shape, generator=generator, dtype=dtype))
        return module.train(training)

    input = mean + torch.randn(shape, generator=generator, dtype=dtype)
    return Sample(name, seed, training, build, (args, kwargs), None, (input.requires_grad_(),), {})


def agree(sample: Sample) -> None:
    verdict = Verdict(sample.subject)
    judge_equal(sample, verdict)
    assert not verdict.failures, "\n".join(verdict.failures)
    assert verdict.agreed == verdict.tried > 0


MODULES_HERE = {
    "2d": ("BatchNorm2d", (5,), {}, (2, 5, 3, 4)),
    "2d other eps and momentum": ("BatchNorm2d", (5, 1e-3, 0.3), {}, (2, 5, 3, 4)),
    "2d cumulative": ("BatchNorm2d", (5,), {"momentum": None}, (2, 5, 3, 4)),
    "2d not affine": ("BatchNorm2d", (5,), {"affine": False}, (2, 5, 3, 4)),
    "2d no running statistics": ("BatchNorm2d", (5,), {"track_running_stats": False}, (2, 5, 3, 4)),
    "2d no bias": ("BatchNorm2d", (5,), {"bias": False}, (2, 5, 3, 4)),
    "1d, no length": ("BatchNorm1d", (5,), {}, (6, 5)),
    "1d, two values a channel": ("BatchNorm1d", (5,), {}, (2, 5, 1)),
    "1d, no examples": ("BatchNorm1d", (5,), {}, (0, 5)),
    "2d, no examples": ("BatchNorm2d", (5,), {}, (0, 5, 3, 2)),
    "3d": ("BatchNorm3d", (3,), {"momentum": 1.0}, (2, 3, 2, 1, 3)),
    "synchronous, alone": ("SyncBatchNorm", (3,), {"momentum": None}, (4, 3, 2, 2)),
    "instance": ("InstanceNorm1d", (3,), {"affine": True, "track_running_stats": True}, (4, 3, 5)),
    "instance, one": ("InstanceNorm2d", (3,), {"affine": True, "track_running_stats": True}, (3, 5, 2)),
    "instance, momentum None": ("InstanceNorm2d", (3, 1e-4, None, True, True), {}, (2, 3, 5, 2)),
    "instance, no examples": ("InstanceNorm1d", (3,), {"track_running_stats": True}, (0, 3, 5)),
    "instance, no positions": ("InstanceNorm1d", (3,), {"affine": True, "track_running_stats": True}, (2, 3, 0)),
    "instance, no bias": ("InstanceNorm3d", (2,), {"affine": True, "bias": False}, (2, 2, 2, 3, 1)),
    "layer": ("LayerNorm", ((3, 4),), {}, (2, 3, 4)),
    "layer, integer": ("LayerNorm", (4, 1e-3, True, False), {}, (2, 3, 4)),
    "layer, one value": ("LayerNorm", (1,), {}, (3, 1)),
    "layer, no values": ("LayerNorm", (0,), {}, (3, 0)),
    "root mean square": ("RMSNorm", (4,), {}, (2, 3, 4)),
    "root mean square, two axes": ("RMSNorm", ((3, 4),), {"elementwise_affine": False}, (2, 3, 4)),
    "group": ("GroupNorm", (2, 6), {}, (2, 6, 3, 2)),
    "group, one a channel": ("GroupNorm", (6, 6), {}, (2, 6, 3)),
    "group, no positions": ("GroupNorm", (2, 6), {}, (2, 6)),
    "group, no examples": ("GroupNorm", (2, 6), {}, (0, 6, 4)),
    "response": ("LocalResponseNorm", (3, 0.7, 0.6, 2), {}, (2, 5, 4)),
    "response, wider than the channels": ("LocalResponseNorm", (9, 0.7), {}, (2, 3, 4, 2)),
}
BY_MODE = ("BatchNorm", "SyncBatchNorm", "InstanceNorm")


@pytest.mark.parametrize(
    ("name", "training"),
    [
        (name, training)
        for name, (cls, *_) in MODULES_HERE.items()
        for training in ((True, False) if cls.startswith(BY_MODE) else (True,))
    ],
)
def test_modules(name, training):
    agree(sample_of(*MODULES_HERE[name], training=training))


def test_what_was_never_trained_is_read_in_evaluation():
    """Before any batch, the running statistics are 0 and 1."""
    with jax.enable_x64(False):
        x = jnp.asarray(np.random.default_rng(0).standard_normal((4, 3)), jnp.float32)
        norm = nn.BatchNorm1d(3)
        norm.eval()
        np.testing.assert_allclose(norm(x), x / np.sqrt(np.float32(1 + 1e-5)), rtol=1e-6)


STATISTICS = {
    "batch": ("batch_norm", (4, 3, 5), {"momentum": 0.3}),
    "batch, odd momentum": ("batch_norm", (4, 3), {"momentum": -1.2}),
    "batch, none": ("batch_norm", (0, 3, 5), {}),
    "instance": ("instance_norm", (4, 3, 5), {"momentum": 0.3}),
    "instance, none": ("instance_norm", (0, 3, 5), {}),
    "instance, no positions": ("instance_norm", (2, 3, 0), {}),
}


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize("name", STATISTICS)
def test_running_statistics_of_the_functions(name, data_format):
    function, shape, arguments = STATISTICS[name]
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    mean, var = torch.rand(3, dtype=torch.float64), torch.rand(3, dtype=torch.float64)
    last = data_format == "channels_last" and x.ndim > 2
    with jax.enable_x64(True):
        ours = getattr(F, f"{function}_with_running_stats")(
            jnp.moveaxis(jnp.asarray(x), 1, -1) if last else jnp.asarray(x),
            *(jnp.asarray(tensor.numpy().copy()) for tensor in (mean, var)),
            **({"training": True} if function == "batch_norm" else {}),
            **arguments,
            data_format=data_format,
        )
    training = {"training": True} if function == "batch_norm" else {}
    output = getattr(torch.nn.functional, function)(x, mean, var, **training, **arguments)
    back = jnp.moveaxis(ours.output, -1, 1) if last else ours.output
    for port, reference in ((back, output), (ours.running_mean, mean), (ours.running_var, var)):
        np.testing.assert_allclose(port, reference.numpy(), rtol=1e-12, atol=1e-13)


LARGE = (4, 16, 40, 40)  # for sums in pieces


@pytest.mark.parametrize("mean", [30.0, 1000.0])
@pytest.mark.parametrize(
    ("name", "args", "shape"),
    [
        ("BatchNorm1d", (64,), (40, 64)),
        ("BatchNorm2d", (3,), (4, 3, 8, 8)),
        ("InstanceNorm2d", (3,), (2, 3, 16, 16)),
        ("LayerNorm", (100,), (8, 100)),
        ("GroupNorm", (2, 6), (3, 6, 10, 10)),
        ("RMSNorm", (100,), (8, 100)),
        *((name, args, LARGE) for name, args in (("BatchNorm2d", (16,)), ("InstanceNorm2d", (16,)))),
        ("GroupNorm", (4, 16), LARGE),
    ],
)
def test_a_large_mean_costs_no_more_digits_than_in_pytorch(name, args, shape, mean):
    verdict = Verdict(name)
    judge_precise([sample_of(name, args, {}, shape, seed=s, mean=mean, dtype=torch.float32) for s in range(4)], verdict)
    assert not verdict.failures, "\n".join(verdict.failures)
    assert verdict.ratio > 0


@pytest.mark.parametrize("axes", [(0, 1, 2), (1, 2)])
@pytest.mark.parametrize("num_groups", [None, 4])
def test_statistics_of_awkward_channels(axes, num_groups):
    x = np.random.default_rng(0).standard_normal((4, 40, 40, 16)).astype(np.float32)
    x[..., 0] = 1000.1  # constant
    x[..., 1] = 0
    x[:, :20, :, 2] = -3000  # its half, with the first rows
    x[0, 0, 0, 3] = 1e6  # one that is far away
    x[..., 4] *= 1e-3
    x[..., 4] += 1000
    mean, variance = statistics(jnp.asarray(x), axes, None, num_groups)
    wide = x.astype(np.float64)
    wanted = wide.mean(axes, keepdims=True)
    if num_groups:
        wanted = np.repeat(wanted.reshape(*wanted.shape[:-1], num_groups, -1).mean(-1), 16 // num_groups, -1)
    squares = ((wide - wanted) ** 2).mean(axes, keepdims=True)
    if num_groups:
        squares = np.repeat(squares.reshape(*squares.shape[:-1], num_groups, -1).mean(-1), 16 // num_groups, -1)
    np.testing.assert_allclose(mean, wanted, rtol=3e-7, atol=1e-7 if num_groups is None else 1e-4)
    np.testing.assert_allclose(variance, squares, rtol=1e-5, atol=1e-11 if num_groups is None else 1e-2)
    assert (np.asarray(variance) >= 0).all()


HALVES = {
    "batch_norm": ((4, 3, 5), (3,), {"training": True}),
    "instance_norm": ((4, 3, 5), (3,), {}),
    "layer_norm": ((4, 3, 5), (5,), {"normalized_shape": (5,)}),
    "rms_norm": ((4, 3, 5), (5,), {"normalized_shape": (5,)}),
    "group_norm": ((4, 6, 5), (6,), {"num_groups": 2}),
    "local_response_norm": ((4, 6, 5), None, {"size": 3, "alpha": 0.5}),
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("weights", ["float32", "its own"])
@pytest.mark.parametrize("name", HALVES)
def test_half_precision(name, weights, dtype):
    shape, parameter, arguments = HALVES[name]
    half = getattr(torch, dtype)
    generator = torch.Generator().manual_seed(0)
    x = (5 + torch.randn(shape, generator=generator)).to(half)
    scales = {}
    if parameter:
        scales["weight"] = torch.rand(parameter, generator=generator)
        if name != "rms_norm":
            scales["bias"] = torch.rand(parameter, generator=generator)
    if weights == "its own":
        scales = {key: value.to(half) for key, value in scales.items()}
    running = (None, None) if name == "batch_norm" else ()
    function = getattr(torch.nn.functional, name)
    exact = function(x.float(), *running, **{key: value.float() for key, value in scales.items()}, **arguments)
    layout = (
        {"data_format": "channels_first"} if "data_format" in inspect.signature(getattr(F, name)).parameters else {}
    )
    given = {key: jnp.asarray(value.float().numpy(), str(value.dtype)[6:]) for key, value in scales.items()}
    got = getattr(F, name)(jnp.asarray(x.float().numpy(), dtype), *running, **given, **arguments, **layout)
    assert got.dtype == jnp.dtype(str(function(x, *running, **scales, **arguments).dtype)[6:]) == jnp.dtype(dtype)
    ulp = float(torch.finfo(half).eps)
    np.testing.assert_allclose(np.asarray(got, np.float32), exact.numpy(), rtol=ulp, atol=ulp / 16)


def test_statistics_of_half_precision_are_float32():
    x = jnp.asarray(300 + np.random.default_rng(0).standard_normal((2, 4, 4, 3)), jnp.bfloat16)
    layer = nn.BatchNorm2d(3)
    assert layer(x).dtype == jnp.bfloat16
    assert layer.running_mean[...].dtype == jnp.float32
    np.testing.assert_allclose(layer.running_mean[...], 0.1 * x.astype(jnp.float32).mean((0, 1, 2)), rtol=1e-6)


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
@pytest.mark.parametrize("build", [nn.BatchNorm2d, functools.partial(nn.InstanceNorm2d, track_running_stats=True)])
def test_switches(build, switch):
    model = nnx.Sequential(build(3))
    norm = model.layers[0]
    x = jnp.asarray(np.random.default_rng(0).standard_normal((2, 4, 4, 3)), jnp.float32)
    switched = switch(model)
    np.testing.assert_allclose(switched(x), x / np.sqrt(np.float32(1 + 1e-5)), rtol=1e-6)
    assert int(norm.num_batches_tracked[...]) == 0
    np.testing.assert_array_equal(norm.running_mean[...], 0)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize(
    ("tracks", "changed"),
    [
        (True, {"track_running_stats": False}),
        (False, {"track_running_stats": True}),
        (True, {"running_mean": None, "running_var": None}),
        (True, {"num_batches_tracked": None}),
    ],
)
def test_what_is_set_on_a_batch_norm_later(tracks, changed, momentum, training):
    theirs = torch.nn.BatchNorm1d(3, momentum=momentum, track_running_stats=tracks).train(training)
    norm = nn.BatchNorm1d(3, momentum=momentum, track_running_stats=tracks, use_running_average=not training)
    for name, value in changed.items():
        setattr(theirs, name, value), setattr(norm, name, value)
    x = np.random.default_rng(0).standard_normal((4, 3)).astype("float32")
    np.testing.assert_allclose(norm(x), theirs(torch.tensor(x)).detach(), atol=1e-6)
    for name, buffer in theirs.named_buffers():
        np.testing.assert_allclose(getattr(norm, name)[...], buffer, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("beta", [0.75, 0.6])
def test_an_infinite_value_leaves_its_neighbours_gradients_in_a_response_norm(beta):
    x = np.array([[[0.5, -1.0, np.inf, 0.3]]])
    tensor = torch.tensor(x).mT.requires_grad_()
    torch.nn.functional.local_response_norm(tensor, 3, 0.5, beta).sum().backward()
    with jax.enable_x64(True):
        gradient = jax.jit(jax.grad(lambda x: F.local_response_norm(x, 3, 0.5, beta).sum()))(jnp.asarray(x))
    np.testing.assert_allclose(gradient, tensor.grad.mT, rtol=1e-12)


@pytest.mark.parametrize("affine", [True, False])
def test_derivatives_of_the_closed_form(affine):
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        x = jnp.asarray(2 + rng.standard_normal((3, 4, 2)))
        scales = [jnp.asarray(rng.standard_normal((1, 1, 2))) for _ in range(2)] if affine else [None, None]
        normed = jax.jit(lambda x, *scales: standardize(x, *scales, (0, 1), 1e-2))
        jax.test_util.check_grads(normed, (x, *scales), order=2, modes=("rev",))
        jax.test_util.check_grads(normed, (x, *scales), order=1, modes=("fwd",))


def test_the_backward_pass_reduces_twice():
    """As PyTorch's: by bias and by weight; the input's follows from the two."""
    x, weight, bias = jnp.ones((8, 5, 3)), jnp.ones((1, 1, 3)), jnp.ones((1, 1, 3))
    _, pull = jax.vjp(lambda *a: standardize(*a, (0, 1), 1e-5)[0], x, weight, bias)
    graph = jax.jit(pull).lower(x).as_text()
    assert graph.count(": (tensor<8x5x3xf32>, tensor<f32>)") == 2, graph


@functools.partial(jax.jit, static_argnums=0)
def pulled(function, parameters, x, cotangent):
    y, pull, after = jax.vjp(function, parameters, x, has_aux=True)
    return y, pull(cotangent), after


@pytest.mark.parametrize("momentum", [0.3, None])
@pytest.mark.parametrize("over", ["vmap", "shard_map"])
def test_synchronous_statistics_are_those_of_the_whole_batch(over, momentum):
    """Outputs, gradients and running statistics; a share of two images has other ones."""
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        x, cotangent = (rng.standard_normal((6, 4, 4, 3)) for _ in range(2))
        plain = nn.BatchNorm2d(3, momentum=momentum, param_dtype=jnp.float64)
        norm = nn.SyncBatchNorm(3, momentum=momentum, axis_name="batch", param_dtype=jnp.float64)
        graphdef, parameters, rest = nnx.split(norm, nnx.Param, ...)

        def forward(parameters, x):
            module = nnx.merge(graphdef, parameters, rest, copy=True)
            return module(x), nnx.state(module, nnx.BatchStat)

        def whole(parameters, x):
            if over == "vmap":
                shares = x.reshape(3, 2, 4, 4, 3)
                y, after = jax.vmap(forward, (None, 0), (0, None), axis_name="batch")(parameters, shares)
                return y.reshape(x.shape), after
            devices = jax.devices()[:2]
            mesh = jax.make_mesh((len(devices),), ("batch",), (jax.sharding.AxisType.Auto,), devices=devices)
            spec, everywhere = jax.P("batch"), jax.P()
            mapped = jax.shard_map(forward, mesh=mesh, in_specs=(everywhere, spec), out_specs=(spec, everywhere))
            return mapped(parameters, x)

        plain_def, plain_parameters, plain_rest = nnx.split(plain, nnx.Param, ...)

        def alone(parameters, x):
            module = nnx.merge(plain_def, parameters, plain_rest, copy=True)
            return module(x), nnx.state(module, nnx.BatchStat)

        found = jax.tree.leaves(pulled(whole, parameters, x, cotangent))
        wanted = jax.tree.leaves(pulled(alone, plain_parameters, x, cotangent))
        assert len(found) == len(wanted) == 7
        for ours, theirs in zip(found, wanted, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-12)


def test_synchronous_evaluation_needs_no_other_device():
    norm = nn.SyncBatchNorm(3, axis_name="nobody")
    norm.eval()
    assert norm(jnp.ones((1, 3))).shape == (1, 3)


def test_all_batch_norms_of_a_model_become_synchronous():
    model = nnx.Sequential(nn.BatchNorm1d(3, momentum=None), nnx.Sequential(nn.BatchNorm2d(4, data_format="NCHW")))
    weight = model.layers[0].weight
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(model, axis_name="batch")
    first, second = converted.layers[0], converted.layers[1].layers[0]
    assert converted is model
    assert type(first) is type(second) is nn.SyncBatchNorm
    assert first.weight is weight
    assert first.momentum is None
    assert second.data_format == "channels_first"
    assert isinstance(nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm3d(2)), nn.SyncBatchNorm)


LAZY = ["LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d"]
LAZY += ["LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d"]


@pytest.mark.parametrize("name", LAZY)
def test_lazy_norms(name):
    rank = int(name[-2])
    lazy = getattr(nn, name)(1e-3, 0.3, True, True, bias=False)
    lazy.eval()
    x = jnp.ones((2, *range(3, 3 + rank), 5))
    lazy(x)
    plain = getattr(nn, name.removeprefix("Lazy"))
    assert type(lazy) is plain
    assert lazy.num_features == 5
    assert lazy.use_running_average
    load(lazy, getattr(torch.nn, plain.__name__)(5, 1e-3, 0.3, True, True, bias=False).state_dict())
    with pytest.raises(ValueError, match="channels"):
        lazy(jnp.ones((2, *range(3, 3 + rank), 4)))
    if name == "LazyBatchNorm1d":
        norm = nn.LazyBatchNorm1d()
        assert norm(jnp.ones((4, 7))).shape == (4, 7)
        assert norm.num_features == 7


def test_a_state_dict_goes_and_comes_back():
    original = torch.nn.InstanceNorm2d(3, affine=True, track_running_stats=True)
    layer = nn.InstanceNorm2d(3, affine=True, track_running_stats=True)
    load(layer, original.state_dict())
    back = to_state_dict(layer)
    assert {k: v.dtype for k, v in back.items()} == {k: v.dtype for k, v in original.state_dict().items()}


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.batch_norm(x, None, None, training=True),
        F.instance_norm,
        lambda x: F.layer_norm(x, (6,)),
        lambda x: F.group_norm(x, 2),
        lambda x: F.local_response_norm(x, 3),
    ],
)
def test_vmap(function):
    with jax.enable_x64(True):
        x = np.random.default_rng(0).standard_normal((3, 4, 5, 6))
        alone = jax.jit(function)
        one_by_one = np.stack([alone(example) for example in x])
        np.testing.assert_allclose(jax.jit(jax.vmap(function))(x), one_by_one, rtol=1e-13, atol=1e-13)


def test_another_number_of_channels_is_a_warning_where_nothing_depends_on_it():
    with pytest.warns(UserWarning, match="num_features is 4"):
        y = nn.InstanceNorm1d(4)(jnp.ones((2, 5, 3)))
    assert y.shape == (2, 5, 3)


@pytest.mark.parametrize(("name", "eps"), [("LayerNorm", 1.1e-5), ("GroupNorm", 1e-6), ("BatchNorm1d", 1e-6)])
def test_a_wrong_epsilon_is_seen(monkeypatch, name, eps):
    right = getattr(nn, name)
    arguments = (2, 4) if name == "GroupNorm" else (4,)
    monkeypatch.setattr(nn, name, lambda *args, **kwargs: right(*args, eps=eps))
    verdict = Verdict(name)
    judge_equal(sample_of(name, arguments, {}, (6, 4)), verdict)
    assert not verdict.agreed
    assert verdict.error > 1e-10


def test_a_biased_running_variance_is_seen(monkeypatch):
    from graphmode.nn.norm import channels

    right = channels._moved
    monkeypatch.setattr(channels, "_moved", lambda running, new, momentum: right(running, new * 5 / 6, momentum))
    verdict = Verdict("BatchNorm1d")
    judge_equal(sample_of("BatchNorm1d", (4,), {}, (6, 4)), verdict)
    assert not verdict.agreed
    assert "buffer running_var" in verdict.failures[0]


def zeros(*shape: int, dtype: str = "float32") -> jax.Array:
    return jnp.zeros(shape, dtype)


Z, FT = torch.zeros, torch.nn.functional
REFUSED = {
    "1 value a channel": (lambda: nn.BatchNorm2d(3)(zeros(1, 1, 1, 3)), lambda: torch.nn.BatchNorm2d(3)(Z(1, 3, 1, 1))),
    "1 value a channel, and training": (
        lambda: F.batch_norm(zeros(1, 3), None, None, training=True),
        lambda: FT.batch_norm(Z(1, 3), None, None, training=True),
    ),
    "NHWC was wanted": (lambda: nn.BatchNorm2d(3)(zeros(4, 4, 3)), lambda: torch.nn.BatchNorm2d(3)(Z(3, 4, 4))),
    "num_features = 3": (lambda: nn.BatchNorm1d(3)(zeros(2, 4)), lambda: torch.nn.BatchNorm1d(3)(Z(2, 4))),
    "num_features is 3": (lambda: nn.SyncBatchNorm(3)(zeros(2, 5, 4)), lambda: torch.nn.SyncBatchNorm(3)(Z(2, 4, 5))),
    "2 axes or more": (lambda: nn.SyncBatchNorm(3)(zeros(3)), lambda: torch.nn.SyncBatchNorm(3)(Z(3))),
    "num_features is -1": (lambda: nn.BatchNorm1d(-1), lambda: torch.nn.BatchNorm1d(-1)),
    "running_mean and running_var are None": (
        lambda: F.batch_norm(zeros(2, 3), None, None),
        lambda: FT.batch_norm(Z(2, 3), None, None),
    ),
    "running_var is None and running_mean is not": (
        lambda: F.batch_norm(zeros(2, 3), zeros(3), None, training=True),
        lambda: FT.batch_norm(Z(2, 3), Z(3), None, training=True),
    ),
    "weight has shape": (
        lambda: F.batch_norm(zeros(2, 3), None, None, zeros(4), training=True),
        lambda: FT.batch_norm(Z(2, 3), None, None, Z(4), training=True),
    ),
    "eps is -1.0": (
        lambda: F.batch_norm(zeros(2, 3), zeros(3), zeros(3), eps=-1.0),
        lambda: FT.batch_norm(Z(2, 3), Z(3), Z(3), eps=-1.0),
    ),
    "1 position": (lambda: nn.InstanceNorm1d(3)(zeros(2, 1, 3)), lambda: torch.nn.InstanceNorm1d(3)(Z(2, 3, 1))),
    "4 channels": (
        lambda: nn.InstanceNorm1d(3, affine=True)(zeros(2, 5, 4)),
        lambda: torch.nn.InstanceNorm1d(3, affine=True)(Z(2, 4, 5)),
    ),
    "both": (lambda: F.instance_norm(zeros(2, 5, 3), zeros(3)), lambda: FT.instance_norm(Z(2, 3, 5), Z(3))),
    r"\[..., 3\] was wanted": (lambda: nn.LayerNorm(3)(zeros(2, 4)), lambda: torch.nn.LayerNorm(3)(Z(2, 4))),
    r"normalized_shape is \(\)": (lambda: nn.LayerNorm(()), lambda: torch.nn.LayerNorm(())(Z(2))),
    "bias has shape": (
        lambda: F.layer_norm(zeros(2, 3), (3,), None, zeros(2)),
        lambda: FT.layer_norm(Z(2, 3), (3,), None, Z(2)),
    ),
    "num_groups is 0": (lambda: F.group_norm(zeros(2, 6), 0), lambda: FT.group_norm(Z(2, 6), 0)),
    "one value a group": (lambda: nn.GroupNorm(2, 2)(zeros(1, 2)), lambda: torch.nn.GroupNorm(2, 2)(Z(1, 2))),
    "num_channels is 6": (lambda: nn.GroupNorm(2, 6)(zeros(3, 5, 4)), lambda: torch.nn.GroupNorm(2, 6)(Z(3, 4, 5))),
    "3 axes or more": (lambda: F.local_response_norm(zeros(2, 3), 2), lambda: FT.local_response_norm(Z(2, 3), 2)),
    "size is 0": (lambda: F.local_response_norm(zeros(2, 3, 4), 0), lambda: FT.local_response_norm(Z(2, 3, 4), 0)),
    "data_format is 'CN'": (lambda: nn.GroupNorm(2, 6, data_format="CN"), None),
    "process_group is 1": (lambda: nn.SyncBatchNorm(3, process_group=1), None),
}


@pytest.mark.parametrize(("message", "calls"), REFUSED.items(), ids=REFUSED)
def test_what_is_refused_names_the_argument(message, calls):
    with pytest.raises(ValueError, match=message):
        calls[0]()
    if calls[1]:
        with pytest.raises((ValueError, RuntimeError, ZeroDivisionError)):
            calls[1]()


MIXED = {
    "batch": lambda x, w: F.batch_norm(x, None, None, w, training=True),
    "running": lambda x, w: F.batch_norm(x, w, w),
    "instance": lambda x, w: F.instance_norm(x[None], weight=w),
    "layer": lambda x, w: F.layer_norm(x, w.shape, w),
    "group": lambda x, w: F.group_norm(x, 1, w),
}


@pytest.mark.parametrize(
    "dtypes", [("float32", "bfloat16"), ("float64", "float32"), ("float16", "bfloat16"), ("int32",) * 2]
)
@pytest.mark.parametrize("name", MIXED)
def test_mixed_dtypes_are_refused(name, dtypes):
    with jax.enable_x64(True), pytest.raises(TypeError, match="input is"):
        MIXED[name](jnp.ones((4, 6), dtypes[0]), jnp.ones(6, dtypes[1]))


@pytest.mark.parametrize("name", ["group_norm", "rms_norm"])
def test_pytorch_s_own_bad_inputs_of_functions(name):
    shapes = r"shape|axes|divide"
    for case in FUNCTIONS[name].error_inputs("cpu"):
        sample = case.sample_input
        args = [jnp.asarray(a.numpy()) if isinstance(a, torch.Tensor) else a for a in (sample.input, *sample.args)]
        layout = {"data_format": "channels_first"} if name == "group_norm" else {}
        with pytest.raises(ValueError, match=shapes):
            getattr(F, name)(*args, **sample.kwargs, **layout)


@pytest.mark.parametrize("name", ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm"])
def test_pytorch_s_own_bad_inputs_of_modules(name):
    info = MODULES[name]
    cases = info.module_error_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False, training=True)
    assert cases
    for case in cases:
        built, called = case.module_error_input.constructor_input, case.module_error_input.forward_input
        with pytest.raises(ValueError, match=r"eps|num_channels"):
            _called(getattr(nn, name), built, called)


def _called(cls, built, called):
    module = cls(*built.args, **built.kwargs, data_format="channels_first")
    return module(*(jnp.asarray(a.numpy()) for a in called.args))


RAGGED = {
    "sequences": ("BatchNorm1d", (3, 7, 5), (7, 2, 4)),
    "images of several widths": ("BatchNorm2d", (3, 2, 6, 5), (6, 1, 3)),
    "a row of padding": ("BatchNorm1d", (3, 4, 2), (4, 0, 1)),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", RAGGED)
def test_a_mask_normalises_as_the_sequences_laid_end_to_end(name, training):
    """Channels last, lengths along the axis before: output, running statistics and gradients, whatever stands in it."""
    cls, shape, lengths = RAGGED[name]
    generator = torch.Generator().manual_seed(0)
    x = 3 + torch.randn(shape, dtype=torch.float64, generator=generator)
    cotangent = torch.randn(shape, dtype=torch.float64, generator=generator)
    present = (torch.arange(shape[-2]) < torch.tensor(lengths)[:, None]).reshape(
        shape[0], *(1,) * (len(shape) - 3), -1, 1
    )
    there = present.expand(shape)[..., 0]
    reference = torch.nn.BatchNorm1d(shape[-1]).double().train(training)
    torch.nn.init.uniform_(reference.weight, generator=generator)
    end_to_end = x[there].requires_grad_()
    wanted = reference(end_to_end)
    grad_x, grad_weight = torch.autograd.grad(wanted, (end_to_end, reference.weight), cotangent[there])
    with jax.enable_x64(True):
        layer = getattr(nn, cls)(shape[-1], param_dtype=jnp.float64)
        layer.weight.set_value(jnp.asarray(reference.weight.detach().numpy()))
        layer.set_attributes(use_running_average=not training)
        graphdef, state = nnx.split(layer)
        mask, rows = jnp.asarray(present.numpy()), there.numpy()
        given = jnp.asarray(torch.where(present, x, torch.tensor(1e9)).numpy())

        def run(state, x):
            layer = nnx.merge(graphdef, state)
            output = jnp.where(mask, layer(x, mask=mask), 0)
            return jnp.sum(output * cotangent.numpy()), (output, layer.running_mean[...], layer.running_var[...])

        grads, (output, mean, var) = jax.grad(run, argnums=(0, 1), has_aux=True, allow_int=True)(state, given)
    moved = (reference.running_mean, reference.running_var)
    for ours, theirs in zip((output[rows], mean, var), (wanted.detach(), *moved), strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(grads[0]["weight"][...], grad_weight.numpy(), rtol=1e-11)
    np.testing.assert_allclose(grads[1][rows], grad_x.numpy(), rtol=1e-10, atol=1e-12)
    assert not np.any(grads[1][~rows])


@pytest.mark.parametrize(
    ("mask", "options", "words"),
    [
        (jnp.ones((2, 5), bool), {}, "mask has shape (2, 5)"),
        (jnp.ones((2, 5, 1), bool), {"axis_name": "batch"}, "axis_name is 'batch' and there is a mask"),
    ],
)
def test_masks_that_do_not_fit(mask, options, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        F.batch_norm(jnp.ones((2, 5, 3)), None, None, training=True, mask=mask, **options)


LARGE = {  # above what sums of squares are folded from, by 8, by 7 and by nothing
    "BatchNorm2d": ((16, 1e-5, 0.1, True, False), (4, 16, 32, 33)),
    "BatchNorm1d": ((64, 1e-5, 0.1, True, False), (1057, 64)),
    "GroupNorm": ((4, 16), (4, 16, 35, 35)),
    "InstanceNorm2d": ((16,), (3, 16, 37, 37)),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_arrays_are_pytorchs(name):
    arguments, shape = LARGE[name]
    assert np.prod(shape) > folded_sum.LEAST
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3 + 20
    x.requires_grad_()
    original = getattr(torch.nn, name)(*arguments, dtype=torch.float64)
    wanted = original(x)
    weights = torch.linspace(0.5, 1.5, x.numel(), dtype=torch.float64).reshape(shape)
    (slope,) = torch.autograd.grad((wanted * wanted * weights).sum(), [x])
    layer = getattr(nn, name)(*arguments, data_format="channels_last")
    given, scale, value, gradient = (
        jnp.asarray(np.moveaxis(a.detach().numpy(), 1, -1), jnp.float32) for a in (x, weights, wanted, slope)
    )
    output, backward = jax.vjp(layer, given)
    np.testing.assert_allclose(output, value, rtol=1e-5, atol=2e-5)
    (found,) = backward(2 * output * scale)
    np.testing.assert_allclose(found, gradient, rtol=1e-3, atol=1e-4 * float(jnp.abs(gradient).max()))
