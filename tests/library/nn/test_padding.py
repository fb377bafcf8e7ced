"""`pad` and its layers where PyTorch's samples do not reach: cropping, uneven numbers, layouts, dtypes, bad input."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from graphmode import nn
from graphmode.nn import functional as F

from .judging import Verdict, judge_equal
from .samples import MODULES, Sample

CASES = {
    "constant": [
        ((), ()), ((4,), (1, 2)), ((3, 4), ()), ((3, 4), (2, -3)), ((3, 4), (-4, 2)), ((3, 4), (-2, -2)),
        ((2, 3, 4), (0, 1, -1, 2, 3, -2)), ((2, 0, 4), (1, 1, 1, 0)), ((2, 3, 0), (1, 2)),
        ((2, 1, 2, 3, 2, 2), (1, 0, 0, 1)),
    ],
    "reflect": [
        ((3, 4), (3, 3)), ((3, 4), (-4, 2)), ((3, 4), (-3, 3)), ((3, 4), (2, -3)), ((3, 4), (-5, 3)),
        ((2, 3, 4), (0, 0, 2, 1)),
        ((2, 3, 4), (-4, 0, 1, 1)), ((0, 3, 4), (1, 2)), ((2, 1, 3, 4), (3, -1, -2, 1)),
        ((2, 3, 4, 2), (1, 0, 0, 3, 1, -1)),
    ],
    "replicate": [
        ((3, 4), (5, 7)), ((3, 4), (-4, 4)), ((3, 4), (-5, 6)), ((3, 4), (2, -3)), ((1, 2, 1), (2, 1)),
        ((2, 3, 4), (-4, 0, 1, 1)),
        ((0, 3, 4), (1, 2)), ((2, 1, 3, 4), (5, -1, -2, 6)), ((2, 3, 4, 2), (1, 0, 0, 5, 1, -1)),
    ],
    "circular": [
        ((3, 4), (4, 4)), ((3, 4), (2, -2)), ((3, 4), (-1, 3)), ((3, 4), (-2, -2)), ((2, 3, 0), (0, 0)),
        ((2, 0, 4), (1, 2)),
        ((2, 1, 3, 4), (3, -1, 1, 3)), ((2, 3, 4, 2), (1, 0, 0, 2, 1, -1)),
    ],
}  # fmt: skip


@pytest.mark.parametrize("mode", CASES)
def test_values_and_gradients(mode):
    rng = np.random.default_rng(0)
    for shape, amounts in CASES[mode]:
        given = torch.tensor(rng.standard_normal(shape), requires_grad=True)
        value = 0.5 if mode == "constant" else None
        expected = torch.nn.functional.pad(given, amounts, mode, value)
        cotangent = rng.standard_normal(expected.shape)
        with jax.enable_x64(True):
            x = jnp.asarray(given.detach().numpy())
            y, pull = jax.vjp(jax.jit(lambda x, a=amounts, v=value: F.pad(x, a, mode, v)), x)
            (gradient,) = pull(jnp.asarray(cotangent))
        told = f"{shape} {amounts}"
        np.testing.assert_array_equal(y, expected.detach().numpy(), told)
        (wanted,) = torch.autograd.grad(expected, given, torch.tensor(cotangent))
        np.testing.assert_allclose(gradient, wanted.numpy(), rtol=1e-14, atol=1e-14, err_msg=told)


@pytest.mark.parametrize("channels", [32, 48])
@pytest.mark.parametrize("mode", CASES)
def test_many_channels_behind_the_spatial_axes(mode, channels):
    rng = np.random.default_rng(0)
    amounts = [(1, 1, 1, 1), (2, 0, -1, 2), (-1, 3, 0, 2), (-2, -1, 1, 0), (0, 0, 1, 1), (9, 0, 0, 1)]
    for amount in amounts[: 5 if mode in ("reflect", "circular") else None]:
        x = rng.standard_normal((2, 5, 6, channels)).astype(np.float32)
        given = torch.tensor(np.moveaxis(x, -1, 1).copy(), requires_grad=True)
        expected = torch.nn.functional.pad(given, amount, mode)
        cotangent = rng.standard_normal(expected.shape).astype(np.float32)
        (wanted,) = torch.autograd.grad(expected, given, torch.tensor(cotangent))
        y, pull = jax.vjp(lambda x, a=amount: F.pad(x, a, mode, data_format="NHWC"), jnp.asarray(x))
        (gradient,) = pull(jnp.moveaxis(cotangent, 1, -1))
        np.testing.assert_array_equal(np.moveaxis(y, -1, 1), expected.detach().numpy(), f"{amount}")
        np.testing.assert_allclose(np.moveaxis(gradient, -1, 1), wanted.numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("kind", ["Constant", "Zero", "Reflection", "Replication", "Circular"])
def test_layers_with_another_number_at_each_end(kind, rank):
    name = f"{kind}Pad{rank}d"
    padding = (1, 2, -1, 3, 0, 2)[: 2 * rank]
    args = (padding, 0.5) if kind == "Constant" else (padding,)
    for shape in ((2, 3, 6, 5, 4)[: rank + 2], (3, 6, 5, 4)[: rank + 1]):
        x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        verdict = Verdict(name)
        sample = Sample(name, 0, True, lambda: getattr(torch.nn, name)(*args), (args, {}), None, (x,), {})
        judge_equal(sample, verdict)
        assert not verdict.failures, "\n".join(verdict.failures)
        assert verdict.agreed == 2


@pytest.mark.parametrize("dtype", ["int32", "bool", "float16", "bfloat16", "complex64", "uint8"])
def test_dtypes_stay(dtype):
    x = jnp.asarray([[0, 1, 0, 1]], dtype)
    modes = ("constant", "circular") if dtype == "bool" else CASES
    for mode in modes:
        expected = torch.nn.functional.pad(torch.tensor([[0, 1, 0, 1]]).to(getattr(torch, dtype)), (2, 1), mode)
        got = F.pad(x, (2, 1), mode)
        assert got.dtype == x.dtype
        np.testing.assert_array_equal(np.asarray(got, "complex64"), expected.to(torch.complex64).numpy())
    if dtype in ("int32", "bool"):  # cut off, and anything but zero is true
        expected = torch.nn.functional.pad(torch.tensor([[0, 1]]).to(getattr(torch, dtype)), (1, 0), value=1.5)
        np.testing.assert_array_equal(F.pad(x[:, :2], (1, 0), value=1.5), expected.numpy())


def test_the_axes_of_a_layout():
    x = np.arange(2 * 3 * 4 * 5.0, dtype=np.float32).reshape(2, 3, 4, 5)
    first = np.moveaxis(x, -1, 1)
    for mode in CASES:
        padded = jax.jit(
            lambda x, data_format, mode=mode: F.pad(x, (1, 0, 2, 1), mode, data_format=data_format), static_argnums=1
        )
        literal = padded(first, None)
        assert literal.shape == (2, 5, 6, 5)
        np.testing.assert_array_equal(padded(x, "NHWC"), np.moveaxis(literal, 1, -1))
        np.testing.assert_array_equal(padded(first, "NCHW"), literal)
    assert F.pad(jnp.asarray(x), (1, 0), data_format="channels_last").shape == (2, 3, 5, 5)
    assert nn.ZeroPad1d(1)(jnp.asarray(x)).shape == (2, 3, 6, 5)


def test_vmap():
    x = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
    for mode in CASES:
        padded = jax.jit(lambda x, mode=mode: F.pad(x, (1, 2), mode))
        np.testing.assert_array_equal(jax.jit(jax.vmap(padded))(x), np.stack([padded(example) for example in x]))


Z, torch_pad = torch.zeros, torch.nn.functional.pad


def both(shape: tuple[int, ...], *args, **kwargs) -> tuple:
    return lambda: F.pad(jnp.zeros(shape), *args, **kwargs), lambda: torch_pad(Z(shape), *args, **kwargs)


REFUSED = {
    "mode is 'reflection'": both((1, 3, 4), (1, 1), "reflection"),
    "give pairs": both((1, 3, 4), (1, 1, 1)),
    "pad has 3 pairs": both((3, 4), (1,) * 6),
    "value is 2.0 and mode": both((1, 3, 4), (1, 1), "reflect", 2.0),
    "pads 1 to 3 axes": both((4,), (1, 1), "reflect"),
    "pads 1 to 3 axes .": both((2, 3, 4, 5), (1, 1), "circular"),
    "pad has 0 pairs": both((2, 3, 4), (), "replicate"),
    r"pad has \(4, 0\)": both((1, 3, 4), (4, 0), "reflect"),
    r"pad has \(-5, 6\)": both((1, 3, 4), (-5, 6), "reflect"),
    r"pad has \(5, 0\)": both((1, 3, 4), (5, 0), "circular"),
    r"pad has \(-5, 0\)": both((1, 3, 4), (-5, 0), "circular"),
    "leaves nothing": both((1, 3, 4), (-2, -2), "replicate"),
    "leaves nothing .": both((1, 3, 4), (-4, 0), "reflect"),
    "takes away 5 and 0": both((1, 3, 4), (-5, 6)),
    "takes away 2 and 3": both((1, 3, 4), (-2, -3)),
    "no end to replicate": both((1, 3, 0), (1, 1), "replicate"),
    "nan": (
        lambda: F.pad(jnp.zeros((2, 3), int), (1, 1), value=float("nan")),
        lambda: torch_pad(Z((2, 3), dtype=torch.int32), (1, 1), value=float("nan")),
    ),
    "3 or 4 axes": (lambda: nn.ReflectionPad2d(1)(jnp.zeros((2, 3))), lambda: torch.nn.ReflectionPad2d(1)(Z(2, 3))),
    # PyTorch takes these, and reads memory that it has not written
    r"pad has \(2, -3\)": (lambda: F.pad(jnp.zeros((1, 3, 4)), (2, -3), "circular"), None),
    r"pad has \(-4, 2\)": (lambda: F.pad(jnp.zeros((1, 3, 4)), (-4, 2), "circular"), None),
    # and these, and pads the width alone
    r"padding is \(1, 2\)": (lambda: nn.ZeroPad2d((1, 2)), None),
    "NHWC": (lambda: F.pad(jnp.zeros((2, 3, 4, 5)), (1,) * 6, data_format="NHWC"), None),
}


@pytest.mark.parametrize(("message", "calls"), REFUSED.items(), ids=REFUSED)
def test_what_is_refused_names_the_argument(message, calls):
    with pytest.raises(ValueError, match=message):
        calls[0]()
    if calls[1]:
        with pytest.raises((ValueError, RuntimeError, NotImplementedError)):
            calls[1]()


@pytest.mark.parametrize(
    ("message", "call"),
    {
        "pad is": lambda: F.pad(jnp.zeros((2, 3)), (1.0, 1)),
        "pad is 1": lambda: F.pad(jnp.zeros((2, 3)), 1),
        "value is 1j": lambda: F.pad(jnp.zeros((2, 3)), (1, 1), value=1j),
        "padding is 'same'": lambda: nn.ZeroPad2d("same"),
    }.items(),
)
def test_what_is_of_another_type(message, call):
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize("name", [n for n, info in MODULES.items() if "Pad" in n and info.module_error_inputs_func])
def test_pytorch_s_own_bad_inputs(name):
    info = MODULES[name]
    cases = info.module_error_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False, training=True)
    assert cases
    for case in cases:
        built, called = case.module_error_input.constructor_input, case.module_error_input.forward_input
        layer = getattr(nn, name)(*built.args, **built.kwargs, data_format="channels_first")
        with pytest.raises(ValueError, match="axes"):
            layer(jnp.asarray(called.args[0].numpy()))
