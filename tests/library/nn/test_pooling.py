"""Poolings where PyTorch's own samples do not look: ties, NaN, infinities, long windows, integers, empty batches."""

from __future__ import annotations

import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from torch.testing._internal.common_modules import module_db

import graphmode.nn as ours
from graphmode.nn.pooling import largest

from .judging import Verdict, judge_equal
from .samples import FUNCTIONS, Sample
from .trees import to_jax

IMAGE = (2, 3, 9, 11)
INFINITY = float("inf")


def drawn(shape: tuple[int, ...], kind: str = "") -> torch.Tensor:
    """Standard normal numbers, or whole ones of which many are equal, with NaN or minus infinity in most windows."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape) if not kind else rng.integers(-1, 1, shape).astype(float)
    if kind == "NaN":
        x[rng.random(shape) < 0.1] = np.nan
    if kind == "minus infinity":
        x[rng.random(shape) < 0.9] = -np.inf
    return torch.tensor(x, requires_grad=True)


def sample_of(name: str, arguments: dict, *inputs: torch.Tensor, **kwargs) -> Sample:
    """A call of a class of `torch.nn`."""
    build = lambda: getattr(torch.nn, name)(**arguments).double()  # noqa: E731
    return Sample(name, 0, False, build, ((), arguments), None, inputs, kwargs)


def assert_agrees(sample: Sample, *, compiled: bool = True) -> None:
    verdict = Verdict(sample.subject)
    judge_equal(sample, verdict, compiled=compiled)
    assert not verdict.failures, "\n".join(verdict.failures)
    assert verdict.agreed


MAX_POOLS = {
    "plain": {"kernel_size": 2},
    "resnet": {"kernel_size": 3, "stride": 2, "padding": 1},
    "non-square": {"kernel_size": (3, 2), "stride": (1, 3), "padding": (1, 0)},
    "dilated": {"kernel_size": 2, "dilation": 3, "stride": 1, "padding": 1},
    "dilated over the first element": {"kernel_size": 3, "dilation": 2, "stride": 2, "padding": 1},
    "ceil": {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    "ceil drops a window": {"kernel_size": 2, "stride": 2, "padding": 1, "ceil_mode": True},
    "ceil, long stride": {"kernel_size": 2, "stride": 4, "padding": 1, "ceil_mode": True},
    "ceil, no whole window": {"kernel_size": (10, 12), "stride": 3, "ceil_mode": True},
    "scattered gradient": {"kernel_size": (5, 6), "stride": 1, "padding": 2},
}


ODD = ("resnet", "dilated over the first element", "scattered gradient")


@pytest.mark.parametrize(
    ("name", "kind"), [*((name, "ties") for name in MAX_POOLS), *itertools.product(ODD, ["NaN", "minus infinity"])]
)
def test_max_pool(name, kind):
    assert_agrees(sample_of("MaxPool2d", {**MAX_POOLS[name], "return_indices": True}, drawn(IMAGE, kind)))


def test_max_pool_of_all_negative():
    assert_agrees(
        sample_of("MaxPool2d", {"kernel_size": 3, "stride": 2, "padding": 1}, -1 - drawn(IMAGE).detach().abs())
    )


LONG = {
    "a loop": {"kernel_size": 40, "stride": 7, "padding": 20, "return_indices": True},
    "a loop over more than a byte": {"kernel_size": 260, "stride": 9, "padding": 130, "return_indices": True},
    "one window": {"kernel_size": 300, "return_indices": True},
    "dilated": {"kernel_size": 33, "dilation": 3, "stride": 5, "padding": 16, "return_indices": True},
}


@pytest.mark.parametrize(
    ("name", "kind"), [*((name, "ties") for name in LONG), ("a loop", "NaN"), ("a loop", "minus infinity")]
)
def test_long_windows(name, kind):
    assert_agrees(sample_of("MaxPool1d", LONG[name], drawn((1, 2, 300), kind)))


AVERAGES = {
    "ceil": ("AvgPool2d", {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}),
    "without padding": (
        "AvgPool2d",
        {"kernel_size": (3, 4), "stride": 3, "padding": (1, 2), "ceil_mode": True, "count_include_pad": False},
    ),
    "divisor": ("AvgPool2d", {"kernel_size": 2, "padding": 1, "divisor_override": -3}),
    "long": ("AvgPool1d", {"kernel_size": 40, "stride": 3, "padding": 7, "ceil_mode": True}),
    "adaptive": ("AdaptiveAvgPool2d", {"output_size": (4, 5)}),
    "adaptive, more than there are": ("AdaptiveAvgPool2d", {"output_size": (11, 13)}),
    "adaptive, one": ("AdaptiveAvgPool2d", {"output_size": 1}),
    "adaptive, None": ("AdaptiveAvgPool2d", {"output_size": (None, 4)}),
    "adaptive max": ("AdaptiveMaxPool2d", {"output_size": (4, 5), "return_indices": True}),
    "adaptive max, more than there are": ("AdaptiveMaxPool2d", {"output_size": (11, 13), "return_indices": True}),
    "power": ("LPPool2d", {"norm_type": 2, "kernel_size": 3, "stride": 2, "ceil_mode": True}),
    "broken power": ("LPPool2d", {"norm_type": 2.5, "kernel_size": 2}),
    "negative power": ("LPPool2d", {"norm_type": -2.0, "kernel_size": (2, 3)}),
    "sum": ("LPPool2d", {"norm_type": 1, "kernel_size": 2}),
    "largest": ("LPPool2d", {"norm_type": INFINITY, "kernel_size": 2, "ceil_mode": True}),
    "least": ("LPPool2d", {"norm_type": -INFINITY, "kernel_size": 2}),
}


@pytest.mark.parametrize(
    ("case", "kind"),
    [*((case, "NaN") for case in AVERAGES), ("without padding", ""), ("adaptive", ""), ("broken power", "")],
)
def test_averages_and_powers(case, kind):
    """The whole numbers of `"NaN"` have windows of zeros too, which is where a norm has its kink."""
    name, arguments = AVERAGES[case]
    assert_agrees(sample_of(name, arguments, drawn((1, 2, 100) if case == "long" else IMAGE, kind)))


@pytest.mark.parametrize("name", ["AdaptiveAvgPool2d", "AdaptiveMaxPool2d"])
def test_no_windows(name):
    """PyTorch has no gradient of this."""
    assert_agrees(sample_of(name, {"output_size": (0, 4)}, drawn(IMAGE).detach()))


def test_a_nan_stays_in_its_window():
    x = np.zeros((1, 5, 1), np.float32)
    x[0, 0] = np.nan
    np.testing.assert_array_equal(np.isnan(ours.functional.adaptive_avg_pool1d(x, 3)).ravel(), [True, False, False])


@pytest.mark.parametrize(("shape", "dtype"), [((2, 56, 56, 64), "float32"), ((1, 31, 31, 512), "float32"),
    ((2, 63, 50, 32), "float64"), ((2, 4, 56, 56, 16), "float32"), ((1, 127, 127, 16), "float32")])  # fmt: skip
def test_the_mean_of_a_large_image(shape, dtype):
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype) + 3
    spatial = len(shape) - 2
    with jax.enable_x64(dtype == "float64"):
        y, pull = jax.vjp(jax.jit(getattr(ours, f"AdaptiveAvgPool{spatial}d")(1)), jnp.asarray(x))
        (gradient,) = pull(jnp.ones_like(y))
    axes = tuple(range(1, spatial + 1))
    np.testing.assert_allclose(
        y, x.astype("float64").mean(axes, keepdims=True), rtol=1e-6 if dtype == "float32" else 1e-14
    )
    np.testing.assert_allclose(gradient, np.full(shape, 1 / np.prod(shape[1:-1])), rtol=1e-6)


def test_without_a_batch():
    assert_agrees(sample_of("MaxPool2d", {**MAX_POOLS["non-square"], "return_indices": True}, drawn(IMAGE[1:], "ties")))
    assert_agrees(sample_of("AdaptiveMaxPool2d", {"output_size": (4, 5)}, drawn(IMAGE[1:], "ties")))


UNPOOLS = {
    "1d": ("MaxUnpool1d", {"kernel_size": 3, "stride": 2, "padding": 1}, (2, 3, 9), None),
    "2d": ("MaxUnpool2d", {"kernel_size": 2}, (2, 3, 8, 6), None),
    "unbatched": ("MaxUnpool2d", {"kernel_size": 2}, (3, 9, 7), (9, 7)),
    "3d": ("MaxUnpool3d", {"kernel_size": (1, 2, 2), "stride": (1, 2, 1)}, (2, 3, 2, 4, 5), (2, 3, 2, 4, 5)),
    "empty": ("MaxUnpool2d", {"kernel_size": 2}, (0, 3, 8, 6), None),
}


@pytest.mark.parametrize("case", UNPOOLS)
def test_max_unpool(case):
    name, arguments, shape, size = UNPOOLS[case]
    pool = getattr(torch.nn, name.replace("Unpool", "Pool"))(**arguments, return_indices=True)
    pooled, indices = pool(drawn(shape).detach())
    assert_agrees(sample_of(name, arguments, pooled.requires_grad_(), indices, output_size=size))


def test_of_an_index_that_comes_twice_the_later_stays_and_both_have_a_gradient():
    indices = torch.tensor([[[1, 1, 0, 5, 5]]])
    assert_agrees(sample_of("MaxUnpool1d", {"kernel_size": 2}, drawn((1, 1, 5)), indices))


def test_an_index_outside_is_dropped():
    layer = ours.MaxUnpool1d(2)
    y = layer(jnp.array([[[1.0], [2.0], [3.0]]]), jnp.array([[[-1], [6], [2]]]))
    np.testing.assert_array_equal(y.ravel(), [0, 0, 3, 0, 0, 0])


@pytest.mark.parametrize(
    ("rank", "dtype", "kind"),
    [(2, torch.float64, "NaN"), (2, torch.float32, "ties"), (3, torch.float32, "minus infinity")],
)
def test_fractional_max_pool(rank, dtype, kind):
    shape = (2, 3, 7, 9, 8)[: rank + 2]
    x = drawn(shape, kind).to(dtype)
    samples = torch.tensor(np.random.default_rng(1).random((2, 3, rank)), dtype=dtype)
    name = f"fractional_max_pool{rank}d"
    expected = getattr(torch.nn.functional, name)(x, 2, (3, 1, 4)[:rank], return_indices=True, _random_samples=samples)
    with jax.enable_x64(dtype == torch.float64):
        y, indices = getattr(ours.functional, name)(
            x.detach().numpy(),
            2,
            (3, 1, 4)[:rank],
            return_indices=True,
            random_samples=samples.numpy(),
            data_format="channels_first",
        )
    np.testing.assert_array_equal(y, expected[0].detach())
    np.testing.assert_array_equal(indices, expected[1])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_fractional_windows_of_half_precision_stand_where_pytorch_has_them(dtype):
    x = torch.arange(97.0).reshape(1, 1, 1, 97).expand(1, 64, 2, 97).to(getattr(torch, dtype))
    samples = torch.rand(1, 64, 2, generator=torch.Generator().manual_seed(0)).to(x.dtype)
    _, expected = torch.nn.functional.fractional_max_pool2d(x, 1, (2, 31), return_indices=True, _random_samples=samples)
    arrays = [jnp.asarray(t.float().numpy(), dtype) for t in (x, samples)]
    pool = jax.jit(
        lambda x, s: ours.functional.fractional_max_pool2d(
            x, 1, (2, 31), None, True, random_samples=s, data_format="NCHW"
        )
    )
    np.testing.assert_array_equal(pool(*arrays)[1], expected)


def test_fractional_windows_are_drawn_anew_at_every_call():
    layer = ours.FractionalMaxPool2d(2, output_size=8, rngs=nnx.Rngs(dropout=0))
    x = jnp.asarray(np.random.default_rng(0).random((1, 20, 20, 4)), jnp.float32)
    first, second = layer(x), layer(x)
    assert first.shape == (1, 8, 8, 4)
    assert (first != second).any()
    with pytest.raises(ValueError, match="rngs and random_samples are both None"):
        ours.FractionalMaxPool2d(2, output_ratio=0.5)(x)


CALLS = {
    "max_pool{}d": {"kernel_size": 2},
    "avg_pool{}d": {"kernel_size": 2},
    "lp_pool{}d": {"norm_type": 2, "kernel_size": 2},
    "adaptive_avg_pool{}d": {"output_size": 2},
    "adaptive_max_pool{}d": {"output_size": 2},
    "fractional_max_pool{}d": {"kernel_size": 2, "output_size": 2},
}
RANKED = [(name, rank) for name in CALLS for rank in (1, 2, 3) if (name, rank) != ("fractional_max_pool{}d", 1)]


@pytest.mark.parametrize(("name", "rank"), RANKED)
def test_shapes_and_dtypes_that_pytorch_takes_and_refuses(name, rank):
    """Every axis empty in turn, with and without a batch; every dtype: the result's shape and dtype, or an error."""
    function, original = (getattr(f, name.format(rank)) for f in (ours.functional, torch.nn.functional))
    keywords = CALLS[name]

    def shape_of(x, **layout):
        given = {}
        if name.startswith("fractional"):
            given["random_samples"] = jnp.zeros((2, x.shape[-rank - 1] if layout else x.shape[-1], rank), x.dtype)
        return jax.eval_shape(lambda x: function(x, **keywords, **given, **layout), x)

    for axes in (rank + 1, rank + 2):
        full = (2, 3, 4, 5, 4)[:axes]
        for empty in [None, *range(axes)]:
            x = np.zeros([0 if i == empty else n for i, n in enumerate(full)], np.float32)
            try:
                expected = tuple(original(torch.tensor(x), **keywords).shape)
            except RuntimeError:
                with pytest.raises(ValueError, match="input has shape"):
                    shape_of(x, data_format="channels_first")
                continue
            assert shape_of(x, data_format="channels_first").shape == expected
    for dtype in ("bfloat16", "float16", "float32"):
        assert shape_of(jnp.zeros((2, 4, 4, 4, 4)[: rank + 2], dtype)).dtype == dtype
    with pytest.raises(TypeError, match="bool"):
        shape_of(jnp.zeros((2, 4, 4, 4, 4)[: rank + 2], bool))


@pytest.mark.parametrize("name", ["avg_pool2d", "lp_pool2d", "adaptive_avg_pool2d"])
def test_half_precision_is_summed_in_float32(name):
    x = torch.tensor(np.random.default_rng(0).random((1, 2, 40, 40)), dtype=torch.bfloat16)
    args = {"avg_pool2d": (20,), "lp_pool2d": (1.0, 20), "adaptive_avg_pool2d": (3,)}[name]
    expected = getattr(torch.nn.functional, name)(x, *args).float()
    y = getattr(ours.functional, name)(jnp.asarray(x.float().numpy(), jnp.bfloat16), *args, data_format="NCHW")
    np.testing.assert_allclose(np.asarray(y, np.float32), expected, rtol=2**-7)


@pytest.mark.parametrize("dtype", ["uint8", "int64"])
def test_integers(dtype):
    x = np.random.default_rng(0).integers(0, 3, (1, 2, 5, 7)).astype(dtype) + np.iinfo(dtype).min
    expected = torch.nn.functional.max_pool2d(torch.tensor(x), 3, 2, 1, return_indices=True)
    with jax.enable_x64(True):
        found = jax.jit(ours.MaxPool2d(3, 2, 1, return_indices=True, data_format="NCHW"))(jnp.asarray(x))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
        assert str(one.dtype) == str(other.dtype).removeprefix("torch.")


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("avg_pool2d", (3, 2, 1, True, False)),
        ("avg_pool2d", (2,)),
        ("avg_pool1d", (3, 1, 1)),
        ("lp_pool2d", (2, 3, 2)),
        ("lp_pool2d", (1.5, 2)),
    ],
)
def test_means_of_integers_are_cut_off(name, args):
    x = np.random.default_rng(0).integers(-9, 9, (1, 2, 5, 7))
    x = x[0] if "1d" in name else x
    expected = getattr(torch.nn.functional, name)(torch.tensor(x), *args)
    with jax.enable_x64(True):
        y = getattr(ours.functional, name)(jnp.asarray(x), *args, data_format="channels_first")
    assert str(y.dtype) == str(expected.dtype).removeprefix("torch.")
    np.testing.assert_allclose(y, expected, rtol=1e-6)


ERRORS = {name: info for name, info in FUNCTIONS.items() if "pool" in name and info.error_inputs_func}


@pytest.mark.parametrize("name", ERRORS)
def test_what_pytorch_refuses_is_refused(name):
    function = getattr(ours.functional, name)
    for case in ERRORS[name].error_inputs("cpu"):
        one = to_jax((case.sample_input.input, *case.sample_input.args), "float32")
        with pytest.raises((ValueError, TypeError)):
            function(*one, **case.sample_input.kwargs, data_format="channels_first")


def test_what_pytorch_refuses_of_max_pool_2d_is_refused():
    info = next(info for info in module_db if info.module_cls is torch.nn.MaxPool2d)
    for case in info.module_error_inputs_func(info, "cpu", torch.float32, False, False):
        built, called = case.module_error_input.constructor_input, case.module_error_input.forward_input
        with pytest.raises(ValueError, match=r"MaxPool2d: input has shape|half of the window"):
            ours.MaxPool2d(*built.args, **built.kwargs)(*to_jax(called.args, "float32"))


IMAGE_OF_ONES = np.ones((1, 4, 4, 3), np.float32)
REFUSED = {
    "half of the window": lambda: ours.MaxPool2d(2, padding=2),
    "half of the window, whose kernel_size is": lambda: ours.MaxPool2d(2, dilation=3, padding=2),
    "no window fits": lambda: ours.MaxPool2d(5)(IMAGE_OF_ONES),
    "kernel_size is 0": lambda: ours.AvgPool2d(0),
    "stride is 0": lambda: ours.MaxPool1d(2, 0),
    "dilation is 0": lambda: ours.MaxPool3d(2, dilation=0),
    "NHWC was wanted|4 axes": lambda: ours.MaxPool2d(2)(IMAGE_OF_ONES[0, 0]),
    "data_format is 'NLC'": lambda: ours.MaxPool2d(2, data_format="NLC"),
    "divisor_override is 0": lambda: ours.AvgPool2d(2, divisor_override=0),
    "larger than the input": lambda: ours.AvgPool3d(5, padding=2)(np.ones((1, 4, 4, 4, 1), np.float32)),
    "norm_type is 0": lambda: ours.LPPool2d(0, 2),
    "output_size is -1": lambda: ours.AdaptiveAvgPool2d((-1, 1)),
    r"output_size is \(1, 2, 3\)": lambda: ours.AdaptiveMaxPool2d((1, 2, 3)),
    "output_size is 2 and output_ratio is 0.5": lambda: ours.FractionalMaxPool2d(2, 2, 0.5),
    "output_size is None and output_ratio is None": lambda: ours.FractionalMaxPool3d(2),
    "numbers between 0 and 1": lambda: ours.FractionalMaxPool2d(2, output_ratio=(0.5, 1.5)),
    "too small for": lambda: ours.FractionalMaxPool2d(3, 3, rngs=nnx.Rngs(0))(IMAGE_OF_ONES),
    "random_samples has shape": lambda: ours.FractionalMaxPool2d(2, 2, random_samples=np.ones((1, 2, 2), np.float32))(
        IMAGE_OF_ONES
    ),
    "indices has shape": lambda: ours.MaxUnpool2d(2)(IMAGE_OF_ONES, np.ones((1, 4, 4, 2), int)),
    "is not between 6 and 10": lambda: ours.MaxUnpool2d(2)(IMAGE_OF_ONES, np.zeros((1, 4, 4, 3), int), (8, 10)),
    "give 2 sizes": lambda: ours.MaxUnpool2d(2)(IMAGE_OF_ONES, np.zeros((1, 4, 4, 3), int), (8, 8, 3)),
}


@pytest.mark.parametrize(("message", "call"), REFUSED.items(), ids=REFUSED)
def test_what_is_refused_names_the_argument(message, call):
    with pytest.raises(ValueError, match=message):
        call()


WRONG_DTYPES = {
    "input is int32": lambda: ours.AdaptiveMaxPool2d(2)(np.ones((1, 4, 4, 3), np.int32)),
    "input is uint8": lambda: ours.AvgPool2d(2)(np.ones((1, 4, 4, 3), np.uint8)),
    "indices is float32": lambda: ours.MaxUnpool2d(2)(IMAGE_OF_ONES, IMAGE_OF_ONES),
    "norm_type is 'max'": lambda: ours.LPPool2d("max", 2),
    "kernel_size is 2.0": lambda: ours.MaxPool2d(2.0),
    "random_samples is float16": lambda: ours.functional.fractional_max_pool2d(
        IMAGE_OF_ONES, 2, 2, random_samples=np.ones((1, 3, 2), np.float16)
    ),
}


@pytest.mark.parametrize(("message", "call"), WRONG_DTYPES.items(), ids=WRONG_DTYPES)
def test_wrong_dtypes_are_refused(message, call):
    with pytest.raises(TypeError, match=message):
        call()


LAYERS = {
    "max": ours.MaxPool2d(3, 2, 1),
    "max, scattered gradient": ours.MaxPool2d(5, 2, 2),
    "average": ours.AvgPool2d(3, 2, 1),
    "adaptive average": ours.AdaptiveAvgPool2d((3, 2)),
    "adaptive max": ours.AdaptiveMaxPool2d((3, 2)),
    "power": ours.LPPool2d(2, 3),
    "fractional": ours.FractionalMaxPool2d(2, 3, random_samples=np.full((4, 2, 2), 0.3, np.float32)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_forward_mode_second_derivatives_vmap_and_jit(name):
    layer = LAYERS[name]
    rng = np.random.default_rng(0)
    x, along = (jnp.asarray(rng.standard_normal((4, 6, 7, 2)), jnp.float32) for _ in range(2))
    squared = lambda x: (layer(x) ** 2).sum()  # noqa: E731
    gradient = jax.jit(jax.grad(squared))
    slope = jax.jit(lambda x, v: jax.jvp(squared, (x,), (v,))[1])(x, along)
    np.testing.assert_allclose(slope, (gradient(x) * along).sum(), rtol=1e-4)
    curved = jax.jit(lambda x, v: jax.jvp(jax.grad(squared), (x,), (v,))[1])(x, along)
    other = jax.jit(jax.grad(lambda x: (jax.grad(squared)(x) * along).sum()))(x)
    np.testing.assert_allclose(curved, other, rtol=1e-4, atol=1e-5)
    if name != "fractional":  # whose samples differ along the batch
        np.testing.assert_allclose(jax.jit(jax.vmap(layer))(x[:, None])[:, 0], layer(x), rtol=1e-6)


def test_average_pool_3d_follows_autocast():
    x = jnp.ones((1, 4, 4, 4, 2), jnp.bfloat16)
    with ours.autocast(device_type="cpu"):
        assert ours.AvgPool3d(2)(x).dtype == jnp.float32


def test_nothing_is_a_loop_where_windows_are_short():
    text = str(jax.make_jaxpr(jax.grad(lambda x: ours.MaxPool2d(3, 2, 1)(x).sum()))(jnp.zeros((1, 8, 8, 3))))
    assert not any(word in text for word in ("while", "scan", "scatter"))


FAULTS = {
    "the last of several": ("MaxPool2d", {"kernel_size": 3}, {}),
    "padding does not count": ("AvgPool2d", {"kernel_size": 3, "padding": 1}, {"count_include_pad": False}),
    "a window more": ("MaxPool2d", {"kernel_size": 4}, {"ceil_mode": True}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_seen(name, monkeypatch, retraced):
    cls, arguments, wrong = FAULTS[name]
    if not wrong:
        of_taps = largest._largest_of_taps
        reverse = lambda kind, _, taps: of_taps(kind, max(taps), dict(reversed(taps.items())))  # noqa: E731
        monkeypatch.setattr(largest, "_largest_of_taps", reverse)
    sample = sample_of(cls, arguments, drawn((1, 2, 7, 7), "ties"))
    verdict = Verdict(cls)
    judge_equal(replace(sample, constructor=((), {**arguments, **wrong})), verdict)
    assert len(verdict.failures) == verdict.tried == 2
