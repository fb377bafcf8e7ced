"""Activations against eager PyTorch where it matters: kinks, infinities, NaN, halves, axes, bad input."""

import math
import re
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from compiling import AS_FOR_USERS
from flax import nnx
from torch.testing._internal.common_methods_invocations import op_db

import graphmode.nn as ours
import graphmode.nn.functional as f

from .judging import Verdict, judge_equal
from .samples import FUNCTIONS, Sample
from .trees import to_jax

INF, NAN = math.inf, math.nan
AT = (
    -INF, -1e30, -100.0, -20.0, -6.0, -3.0, -2.0, -1.0, -0.5, -0.25, -1e-30, -0.0, 0.0, 1e-30, 0.25, 0.5, 1.0, 2.0, 3.0,
    6.0, 20.0, 21.0, 100.0, 1e30, INF, NAN,
)  # fmt: skip

# A name that both sides have, and the arguments after the input.
ELEMENTWISE = [
    ("relu", {}),
    ("relu6", {}),
    ("leaky_relu", {}),
    ("leaky_relu", {"negative_slope": -0.5}),
    ("leaky_relu", {"negative_slope": 0.0}),
    ("elu", {}),
    ("elu", {"alpha": 2.0}),
    ("elu", {"alpha": -0.7}),
    ("celu", {}),
    ("celu", {"alpha": 0.3}),
    ("celu", {"alpha": -0.3}),
    ("selu", {}),
    ("gelu", {}),
    ("gelu", {"approximate": "tanh"}),
    ("hardshrink", {}),
    ("hardshrink", {"lambd": 0.0}),
    ("hardshrink", {"lambd": -0.5}),
    ("softshrink", {}),
    ("softshrink", {"lambd": 0.0}),
    ("hardsigmoid", {}),
    ("hardswish", {}),
    ("hardtanh", {}),
    ("hardtanh", {"min_val": 0.25, "max_val": 0.25}),
    ("threshold", {"threshold": 0.5, "value": 20.0}),
    ("sigmoid", {}),
    ("logsigmoid", {}),
    ("silu", {}),
    ("softplus", {}),
    ("softplus", {"beta": -1.0}),
    ("softplus", {"beta": 2.0, "threshold": 6.0}),
    ("softplus", {"beta": 0.0}),
    ("softplus", {"threshold": 1000.0}),
    ("softsign", {}),
    ("tanh", {}),
    ("tanhshrink", {}),
    ("mish", {}),
    ("rrelu", {}),
]
HALVES = (*(x for x in AT if abs(x) < 1e4 or not math.isfinite(x)), *np.random.default_rng(0).normal(size=60).tolist())
TOLERANCE = {"float64": 1e-12, "float32": 1e-5}


def torch_value_and_gradient(name, kwargs, values, dtype):
    """Each value by itself: PyTorch's vectorised loops differ from its others, and from CUDA's, at NaN."""
    outputs, gradients = [], []
    for value in values:
        x = torch.tensor([value], dtype=dtype, requires_grad=True)
        y = getattr(F, name)(x, **kwargs)
        (gradient,) = torch.autograd.grad(y.sum(), x)
        outputs.append(y.item())
        gradients.append(gradient.item())
    return np.array(outputs), np.array(gradients)


@cache
def our_values_and_gradients(values, dtype):
    """Of all functions, by name and arguments."""
    functions = {str((name, kwargs)): partial(getattr(f, name), **kwargs) for name, kwargs in ELEMENTWISE}
    with jax.enable_x64(dtype == "float64"):
        x = jnp.array(values, dtype)
        compiled = {
            name: jax.jit(partial(value_and_gradient, function), compiler_options=AS_FOR_USERS)
            for name, function in functions.items()
        }
        return {name: function(x) for name, function in compiled.items()}


def value_and_gradient(function, x):
    y, pull = jax.vjp(function, x)
    return y, pull(jnp.ones_like(y))[0]


def assert_kinks_agree(name, kwargs, dtype, mine):
    theirs = torch_value_and_gradient(name, kwargs, AT, getattr(torch, dtype))
    for what, a, b in zip(("value", "gradient"), mine, theirs, strict=True):
        assert a.dtype == dtype
        a = np.asarray(a, np.float64)
        with np.errstate(invalid="ignore"):
            off = np.abs(a - b) > TOLERANCE[dtype] * np.maximum(1, np.abs(b))
        off = np.where(np.isfinite(a) & np.isfinite(b), off, ~((a == b) | (np.isnan(a) & np.isnan(b))))
        told = [f"{what} at {x}: ours {p}, theirs {q}" for x, p, q, o in zip(AT, a, b, off, strict=True) if o]
        assert not told, "\n".join(told)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "kwargs"), ELEMENTWISE, ids=str)
def test_values_and_gradients_at_kinks_infinities_and_nan(name, kwargs, dtype):
    assert_kinks_agree(name, kwargs, dtype, our_values_and_gradients(AT, dtype)[str((name, kwargs))])


WRONG = [
    ("relu6", {}, lambda x: jnp.clip(x, 0, 6), "gradient at 6.0: ours 0.5, theirs 0.0"),
    ("elu", {"alpha": 2.0}, lambda x: jnp.where(x >= 0, x, 2 * jnp.expm1(x)), "gradient at 0.0: ours 1.0, theirs 2.0"),
    ("leaky_relu", {}, jax.nn.leaky_relu, "gradient at 0.0: ours 1.0, theirs 0.00"),
]


@pytest.mark.parametrize(("name", "kwargs", "function", "told"), WRONG)
def test_a_wrong_kink_is_seen(name, kwargs, function, told):
    mine = value_and_gradient(function, jnp.array(AT))
    with pytest.raises(AssertionError, match=re.escape(told)):
        assert_kinks_agree(name, kwargs, "float32", mine)


@pytest.mark.parametrize(("name", "kwargs"), ELEMENTWISE, ids=str)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_halves_are_computed_in_float32(name, kwargs, dtype):
    x = torch.tensor(HALVES, dtype=getattr(torch, dtype))
    theirs = [getattr(F, name)(one, **kwargs).item() for one in x.split(1)]
    y, gradient = our_values_and_gradients(HALVES, dtype)[str((name, kwargs))]
    assert y.dtype == gradient.dtype == dtype
    ulp = float(jnp.finfo(dtype).eps)
    atol = 1e-30 if dtype == "bfloat16" else 6e-8  # float16's least step
    # PyTorch rounds the tanh first.
    atol = max(atol, ulp if name == "tanhshrink" else 0)
    np.testing.assert_allclose(np.asarray(y, np.float64), theirs, rtol=ulp, atol=atol)


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        *((name, {}) for name in ["elu", "celu", "selu", "gelu", "silu", "mish", "softplus", "logsigmoid", "softsign"]),
        ("elu", {"alpha": 2.0}),
        ("celu", {"alpha": 0.5}),
        ("softplus", {"threshold": 0.0}),
        ("softplus", {"beta": 2.0, "threshold": 4.0}),
    ],
    ids=str,
)
def test_second_derivatives(name, kwargs):
    values = [-6.0, -1.0, 0.0, 0.25, 2.0, 3.0]
    x = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(getattr(F, name)(x, **kwargs).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    with jax.enable_x64(True):
        function = partial(getattr(f, name), **kwargs)
        mine = jax.jit(jax.vmap(jax.grad(jax.grad(function))))(jnp.array(values, jnp.float64))
    np.testing.assert_allclose(mine, second.numpy(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ["relu", "relu6", "hardtanh", "hardshrink", "softshrink", "hardsigmoid", "hardswish"])
def test_a_nan_cotangent_is_stopped_where_the_derivative_is_zero(name):
    # In PyTorch a selection, not a product with zero.
    x, cotangent = np.array([-4.0, 0.0, 1.0], np.float32), np.full(3, np.nan, np.float32)
    given = torch.tensor(x, requires_grad=True)
    (theirs,) = torch.autograd.grad(getattr(F, name)(given), given, torch.tensor(cotangent))
    _, pull = jax.vjp(getattr(f, name), x)
    np.testing.assert_array_equal(pull(cotangent)[0], theirs.numpy())


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "silu", "tanhshrink", "softsign"])
def test_complex_numbers(name):
    z = np.array([0.3 - 2j, -1 + 0.5j, 0j, 2 + 1j], np.complex64)
    theirs = getattr(F, name)(torch.tensor(z)).numpy()
    np.testing.assert_allclose(getattr(f, name)(z), theirs, rtol=1e-5, atol=1e-6)


def test_integers():
    x = np.array([-2, 0, 3, 9])
    for name in ("relu", "relu6", "sigmoid", "tanh"):
        mine, theirs = getattr(f, name)(jnp.array(x)), getattr(F, name)(torch.tensor(x))
        assert (mine.dtype.kind == "f") == theirs.is_floating_point()
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-6)
    np.testing.assert_array_equal(f.threshold(jnp.array(x), 1, 7), F.threshold(torch.tensor(x), 1, 7).numpy())
    loss = jax.grad(lambda w: (w * f.relu(jnp.array(x))).sum())
    assert loss(2.0) == 12


def judge(subject, function, args, kwargs=None):
    verdict = Verdict(subject)
    judge_equal(Sample(subject, 0, False, None, ((), {}), function, args, kwargs or {}), verdict)
    return verdict


@pytest.mark.parametrize(
    "name", ["softmax", "softmax_with_dtype", "log_softmax", "log_softmax_with_dtype", "sigmoid", "tanh"]
)
def test_pytorchs_samples_of_what_lies_outside_of_its_functional(name):
    (info,) = [i for i in op_db if i.formatted_name == name]
    torch.manual_seed(0)
    for one in list(info.sample_inputs("cpu", torch.float64, requires_grad=True))[::3]:
        verdict = judge(name.removesuffix("_with_dtype"), info.op, (one.input, *one.args), one.kwargs)
        assert verdict.agreed == 1, verdict.failures


def leaf(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def test_the_judge_sees_a_tanh_for_an_erf(monkeypatch):
    assert judge("gelu", F.gelu, (leaf(8),)).agreed
    monkeypatch.setattr(ours.functional, "gelu", partial(f.gelu, approximate="tanh"))
    assert judge("gelu", F.gelu, (leaf(8),)).failures


@pytest.mark.filterwarnings("ignore:Implicit dimension", "ignore:.* is given no dim")
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin"])
def test_softmax_axes(name):
    cases = [
        (torch.randn(shape), dim)
        for shape in [(), (4,), (2, 4), (2, 3, 4), (0, 3)]
        for dim in [None, *range(-max(len(shape), 1), max(len(shape), 1))]
    ]
    function = getattr(f, name)
    mine = jax.jit(lambda arrays: [function(x, dim) for x, (_, dim) in zip(arrays, cases, strict=True)])
    for y, (x, dim) in zip(mine([x.numpy() for x, _ in cases]), cases, strict=True):
        np.testing.assert_allclose(y, getattr(F, name)(x, dim).numpy(), rtol=2e-6, atol=1e-6)
        with pytest.raises(ValueError, match="dim"):
            function(x.numpy(), max(x.ndim, 1))


@pytest.mark.parametrize("layer", [ours.Softmax, ours.LogSoftmax, ours.Softmin])
def test_softmax_without_an_axis_warns_the_caller(layer):
    with pytest.warns(UserWarning, match="given no dim") as caught:
        layer()(jnp.ones((2, 3)))
    assert caught[0].filename == __file__


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_infinities(name):
    rows = [[-INF, -INF, -INF], [-INF, 0.0, 1.0], [INF, 0.0, 1.0], [NAN, 0.0, 1.0], [1e30, -1e30, 0.0]]
    x = torch.tensor(rows, dtype=torch.float32, requires_grad=True)
    y = getattr(F, name)(x, -1)
    cotangent = torch.randn(5, 3)
    (gradient,) = torch.autograd.grad(y, x, cotangent)
    mine, pull = jax.vjp(lambda x: getattr(f, name)(x, -1), jnp.array(rows))
    np.testing.assert_allclose(mine, y.detach().numpy(), rtol=1e-6)
    np.testing.assert_allclose(pull(cotangent.numpy())[0], gradient.numpy(), rtol=1e-5, atol=1e-6)


def test_softmax_dtypes():
    x = torch.randn(4, 300).to(torch.bfloat16)
    given = jnp.asarray(x.float().numpy(), jnp.bfloat16)
    for name in ("softmax", "log_softmax", "softmin"):
        theirs, mine = getattr(F, name)(x, -1), getattr(f, name)(given, -1)
        assert mine.dtype == jnp.bfloat16
        np.testing.assert_allclose(mine.astype(jnp.float32), theirs.float().numpy(), rtol=0.008)
        wide = getattr(f, name)(given, -1, dtype=jnp.float32)
        assert wide.dtype == jnp.float32
        np.testing.assert_allclose(wide, getattr(F, name)(x, -1, dtype=torch.float32).numpy(), rtol=1e-5)
    np.testing.assert_allclose(
        f.softmax(jnp.arange(3), 0, dtype=jnp.float32), F.softmax(torch.arange(3.0), 0), rtol=1e-6
    )


def test_softmax_under_autocast_is_float32():
    x = jnp.ones((2, 3), jnp.bfloat16)
    with ours.autocast(jnp.bfloat16):
        assert f.softmax(x, -1).dtype == f.softmin(x, -1).dtype == ours.LogSoftmax(-1)(x).dtype == jnp.float32
        assert f.softplus(x).dtype == jnp.float32
        assert f.prelu(jnp.ones((2, 3)), jnp.ones(1)).dtype == jnp.bfloat16


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("dim", [0, -1])
def test_gumbel_softmax_on_pytorchs_noise(hard, dim):
    logits = leaf(5, 7)
    torch.manual_seed(3)
    y = F.gumbel_softmax(logits, 0.7, hard, dim=dim)
    cotangent = torch.randn(5, 7, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(y, logits, cotangent)
    torch.manual_seed(3)
    gumbels = -torch.empty(5, 7, dtype=torch.float64).exponential_().log()
    with jax.enable_x64(True):
        given = jnp.array(gumbels.numpy())
        mine, pull = jax.vjp(lambda x: f.gumbel_softmax(x, 0.7, hard, dim=dim, gumbels=given), logits.detach().numpy())
        np.testing.assert_allclose(mine, y.detach().numpy(), rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(pull(cotangent.numpy())[0], gradient.numpy(), rtol=1e-10, atol=1e-14)


def test_gumbel_softmax_draws_in_proportion():
    logits = jnp.log(jnp.array([0.1, 0.6, 0.3]))
    drawn = f.gumbel_softmax(jnp.broadcast_to(logits, (20000, 3)), hard=True, rngs=jax.random.key(0))
    np.testing.assert_allclose(drawn.mean(0), [0.1, 0.6, 0.3], atol=0.015)
    with pytest.raises(ValueError, match="nothing to draw"):
        f.gumbel_softmax(logits)
    with pytest.raises(ValueError, match="gumbels has shape"):
        f.gumbel_softmax(logits, gumbels=jnp.ones((2, 3)))


def test_prelu_weights_have_finite_gradients_beside_infinite_inputs():
    x = np.array([[INF, -2.0, 0.0, NAN]], np.float32)
    given, weight = (torch.tensor(v, requires_grad=True) for v in (x, np.full(4, 0.25, np.float32)))
    theirs = torch.autograd.grad(F.prelu(given, weight).sum(), (given, weight))
    mine = jax.grad(lambda x, w: f.prelu(x, w).sum(), (0, 1))(x, jnp.full(4, 0.25))
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_array_equal(a, b.numpy())


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("name", "args"), [("Hardsigmoid", ()), ("RReLU", ()), ("RReLU", (-0.5, 0.75))])
def test_layers_that_module_db_lacks(name, args, training):
    def build():
        return getattr(torch.nn, name)(*args).train(training)

    verdict = Verdict(name)
    judge_equal(Sample(name, 0, training, build, (args, {}), None, (leaf(3, 5),), {}), verdict)
    assert verdict.agreed == 1, verdict.failures


def test_rrelu_draws_a_slope_for_each_element():
    layer = ours.RReLU(0.2, 0.6, rngs=nnx.Rngs(0))
    slopes = -layer(-jnp.ones(20000))
    assert slopes.min() >= 0.2
    assert slopes.max() <= 0.6
    np.testing.assert_allclose([slopes.mean(), slopes.std()], [0.4, 0.4 / math.sqrt(12)], rtol=0.02)
    assert not np.array_equal(slopes, -layer(-jnp.ones(20000)))
    layer.eval()
    np.testing.assert_allclose(layer(-jnp.ones(2)), -0.4, rtol=1e-6)
    assert nnx.view(layer, deterministic=False).deterministic is False
    bare = ours.RReLU()
    assert bare(-jnp.ones(2), slope=jnp.array([0.5, 0.25])).tolist() == [-0.5, -0.25]
    with pytest.raises(ValueError, match="RReLU: rrelu is in training and has nothing to draw"):
        bare(jnp.ones(2))


def test_hardtanh_knows_the_former_names():
    with pytest.warns(UserWarning, match="deprecated"):
        layer = ours.Hardtanh(min_value=-2.0, max_value=3.0)
    assert layer(jnp.array([-5.0, 5.0])).tolist() == [-2, 3]


@pytest.mark.parametrize("name", ["gelu", "prelu", "rrelu", "softshrink", "hardtanh"])
def test_pytorchs_bad_inputs_are_refused(name):
    given = list(FUNCTIONS[name].error_inputs("cpu"))
    assert given
    for one in given:
        sample = one.sample_input
        args, kwargs = to_jax(((sample.input, *sample.args), sample.kwargs), "float32")
        with pytest.raises((ValueError, TypeError)):
            getattr(f, name)(*args, **kwargs)


ONES = jnp.ones((2, 3))
BAD = [
    (lambda: f.glu(ONES), "even length"),
    (lambda: f.glu(jnp.ones(())), "dim is -1"),
    (lambda: f.glu(ONES, 2), "dim is 2"),
    (lambda: f.celu(ONES, 0), "alpha is 0"),
    (lambda: ours.CELU(0.0), "alpha is 0"),
    (lambda: ours.GELU("exact"), "'none' or 'tanh'"),
    (lambda: ours.Hardtanh(1.0, 1.0), "larger max_val"),
    (lambda: ours.Softshrink(-1.0), "lambd"),
    (lambda: f.softshrink(ONES.astype(jnp.float16), 1e30), "65504"),
    (lambda: ours.RReLU(0.5, 0.25), "lower is 0.5"),
    (lambda: f.rrelu(ONES, training=True, slope=jnp.ones((2, 1, 1))), "slope has shape"),
    (lambda: ours.PReLU(2)(ONES), r"PReLU: weight has 2 elements.* 3 channels"),
    (lambda: f.prelu(jnp.ones(3), jnp.ones(3)), "1 channels"),
    (lambda: ours.PReLU(3, data_format="NWC"), "data_format"),
    (lambda: ours.Softmax2d()(ONES), "Softmax2d: input has shape"),
]
BAD_TYPES = [
    (lambda: f.prelu(ONES, jnp.ones(3, jnp.bfloat16)), "weight is bfloat16"),
    (lambda: f.relu(ONES * 1j), "complex64"),
    (lambda: f.elu(jnp.arange(3)), "int32"),
    (lambda: f.softmax(jnp.arange(3), 0), "int32"),
    (lambda: ours.PReLU(2.5), "num_parameters"),
]


@pytest.mark.parametrize(("call", "told"), BAD)
def test_bad_arguments(call, told):
    with pytest.raises(ValueError, match=told):
        call()


@pytest.mark.parametrize(("call", "told"), BAD_TYPES)
def test_bad_types(call, told):
    with pytest.raises(TypeError, match=told):
        call()


def test_all_functions_under_vmap_and_forward_mode():
    functions = [partial(getattr(f, name), **kwargs) for name, kwargs in ELEMENTWISE]

    x = jnp.linspace(-4, 4, 12).reshape(3, 4)
    forward = [jax.jvp(jax.vmap(function), (x,), (jnp.ones_like(x),)) for function in functions]
    backward = [value_and_gradient(function, x) for function in functions]
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), forward, backward)
