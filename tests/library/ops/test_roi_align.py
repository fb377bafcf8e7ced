"""`gm.roi_align` against torchvision's CPU kernel, written out in eager PyTorch one box at a time."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from differential import Differential, cases, is_caught, run
from hypothesis import strategies as st

import graphmode as gm


def samples(start, size, bins, number, length):
    """Neighbours and weight of `bins * number` samples along one axis, and which are inside, as the kernel has them."""
    step = size / bins
    bin_of = torch.arange(bins, dtype=size.dtype)[:, None]
    at = (start + bin_of * step + (torch.arange(number, dtype=size.dtype) + 0.5) * step / number).reshape(-1)
    inside = (at >= -1) & (at <= length)
    at = torch.where(inside, at.clamp(min=0), 0)
    low = at.long().clamp(max=length - 1)
    part = torch.where(low == length - 1, 0, at - low)
    return low, (low + 1).clamp(max=length - 1), part, inside


def align(features, rois, output_size, spatial_scale, sampling_ratio, aligned):
    """torchvision/csrc/ops/cpu/roi_align_kernel.cpp for features [B, C, H, W] and rois [K, 5]."""
    height, width = features.shape[2:]
    rows = []
    for roi in rois:
        x1, y1, x2, y2 = roi[1:] * spatial_scale - (0.5 if aligned else 0.0)
        w, h = x2 - x1, y2 - y1
        if not aligned:
            w, h = w.clamp(min=1), h.clamp(min=1)
        by, bx = (sampling_ratio,) * 2
        if sampling_ratio <= 0:
            by, bx = (max(math.ceil(side / bins), 0) for side, bins in ((h, output_size[0]), (w, output_size[1])))
        if not by * bx:
            rows.append(torch.zeros(features.shape[1], *output_size, dtype=features.dtype))
            continue
        yl, yh, yp, y_in = samples(y1, h, output_size[0], by, height)
        xl, xh, xp, x_in = samples(x1, w, output_size[1], bx, width)
        image = features[int(roi[0])]
        value = (
            image[:, yl][:, :, xl] * ((1 - yp)[:, None] * (1 - xp))
            + image[:, yl][:, :, xh] * ((1 - yp)[:, None] * xp)
            + image[:, yh][:, :, xl] * (yp[:, None] * (1 - xp))
            + image[:, yh][:, :, xh] * (yp[:, None] * xp)
        )
        value = torch.where(y_in[:, None] & x_in, value, 0)
        rows.append(value.reshape(-1, output_size[0], by, output_size[1], bx).sum((2, 4)) / (by * bx))
    return torch.stack(rows) if rows else features.new_zeros((0, features.shape[1], *output_size))


HEIGHT, WIDTH = 9, 12


def images_and_boxes(rng, c, dtype):
    """Boxes inside, across the border, outside, turned inside out, without area, larger than the image."""
    features = rng.standard_normal((2, HEIGHT, WIDTH, 3) if c.data_format == "NHWC" else (2, 3, HEIGHT, WIDTH))
    first = rng.uniform(-4, 14, (c.rois, 2)) / c.scale
    sides = rng.choice([0.0, 1.0, 1.0, 1.0, 1.0, 3.0, -1.0], (c.rois, 1)) * rng.uniform(0, 12, (c.rois, 2)) / c.scale
    if rng.integers(2):
        first, sides = np.round(first), np.round(sides)
    rois = np.concatenate([rng.integers(0, 2, (c.rois, 1)), first, first + sides], axis=1)
    return {"features": features.astype(dtype), "rois": rois.astype(dtype)}


def eagerly(c, features, rois):
    nhwc = c.data_format == "NHWC"
    out = align(features.permute(0, 3, 1, 2) if nhwc else features, rois, c.size, c.scale, c.ratio, c.aligned)
    return out.permute(0, 2, 3, 1) if nhwc else out


ALIGN = Differential(
    name="roi_align",
    configs=st.sampled_from(
        [
            {"rois": rois, "size": size, "scale": scale, "ratio": ratio, "aligned": aligned, "data_format": layout}
            for rois, size, scale, ratio, aligned, layout in [
                (0, (3, 2), 1.0, 2, True, "NHWC"),
                (6, (3, 2), 1.0, 2, True, "NCHW"),
                (6, (2, 3), 0.25, 1, False, "NHWC"),
                (3, (1, 2), 1.0, 5, False, "NHWC"),
                (6, (3, 2), 1.0, -1, True, "NHWC"),
                (6, (2, 3), 0.25, -1, False, "NCHW"),
                (6, (1, 1), 0.3, 0, True, "NHWC"),
                (0, (3, 2), 1.0, -1, True, "NCHW"),
            ]
        ]
    ),
    arrays=images_and_boxes,
    ours=lambda c, features, rois: gm.roi_align(
        features, rois, c.size, c.scale, c.ratio, c.aligned, data_format=c.data_format
    ),
    eager=eagerly,
    dtypes=("float32", "float64"),
    gradients=("features",),
    exact=False,
)


@pytest.mark.parametrize(("one", "dtype", "examples"), cases([ALIGN]))
def test_agrees_with_eager_pytorch(one, dtype, examples):
    run(one, dtype, examples)


def capped_at_two_samples(c, features, rois):
    ratio = c.ratio if c.ratio > 0 else 2
    return gm.roi_align(features, rois, c.size, c.scale, ratio, c.aligned, data_format=c.data_format)


def not_half_a_pixel(c, features, rois):
    return gm.roi_align(features, rois, c.size, c.scale, c.ratio, not c.aligned, data_format=c.data_format)


def clamped_instead_of_zero(c, features, rois):
    last = jnp.array([WIDTH, HEIGHT, WIDTH, HEIGHT]) / c.scale
    inside = jnp.concatenate([rois[:, :1], jnp.clip(rois[:, 1:], 0, last)], axis=1).astype(rois.dtype)
    return gm.roi_align(features, inside, c.size, c.scale, c.ratio, c.aligned, data_format=c.data_format)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [capped_at_two_samples, not_half_a_pixel, clamped_instead_of_zero])
def test_a_planted_fault_is_caught(fault):
    assert is_caught(dataclasses.replace(ALIGN, ours=fault, gradients=()), dtype="float64")


@pytest.mark.parametrize("bins", [3, 5, 7])
def test_the_number_of_samples_at_whole_multiples_of_the_bins(bins):
    """Where XLA divides by multiplying with a rounded reciprocal, 21 / 7 is above 3, and a fourth sample is taken."""
    sides = bins * np.arange(1, 9, dtype=np.float32)
    rois = np.stack([0 * sides, 0 * sides + 1, 0 * sides + 2, sides + 1, sides + 2], axis=1)
    features = np.random.default_rng(0).standard_normal((1, 1, 60, 60)).astype(np.float32)
    got = jax.jit(lambda f, r: gm.roi_align(f, r, bins, data_format="NCHW"))(features, rois)
    wanted = align(torch.from_numpy(features), torch.from_numpy(rois), (bins, bins), 1.0, -1, False)
    np.testing.assert_allclose(got, wanted.numpy(), rtol=0, atol=1e-5)


def test_a_box_far_larger_than_the_image_is_exact_and_quick():
    features = np.random.default_rng(0).standard_normal((1, 1, 4, 5)).astype(np.float64)
    rois = np.array([[0, -150, -180, 190, 160], [0, 0, 0, 4, 4]], np.float64)
    with jax.enable_x64(True):
        got = gm.roi_align(features, rois, 2, data_format="NCHW")
        wanted = align(torch.from_numpy(features), torch.from_numpy(rois), (2, 2), 1.0, -1, False)
        np.testing.assert_allclose(got, wanted.numpy(), rtol=0, atol=1e-12)
    huge = np.array([[0, -1e8, -1e8, 1e8, 1e8], [0, -1e30, 0, 1e30, 5], [0, 0, 0, np.inf, np.nan]], np.float32)
    got = np.asarray(gm.roi_align(features.astype(np.float32), huge, 2, data_format="NCHW"))
    assert np.isfinite(got).all()
    assert np.abs(got).max() < 1e-5


def test_what_is_not_sampled_cannot_leak():
    features = np.full((1, 8, 8, 1), np.nan, np.float32)
    features[0, :4, :4] = 2
    rois = np.array([[0, 0, 0, 3, 3], [0, 50, 50, 60, 60]], np.float32)
    for ratio in (2, -1):
        out = gm.roi_align(features, rois, 3, sampling_ratio=ratio)
        np.testing.assert_array_equal(out[..., 0], np.stack([np.full((3, 3), 2), np.zeros((3, 3))]))
        gradient = jax.grad(lambda f, ratio=ratio: gm.roi_align(f, rois, 3, sampling_ratio=ratio).sum())(features)
        assert np.isfinite(gradient).all()
        assert not np.asarray(gradient)[0, 4:].any()


@pytest.mark.parametrize("ratio", [2, -1])
def test_rows_that_are_padding_give_zero_and_no_gradient(ratio):
    features = np.random.default_rng(0).standard_normal((2, 6, 6, 2)).astype(np.float32)
    rois = np.array([[1, 0, 0, 4, 4], [np.nan, np.nan, np.inf, 0, 0], [7, 0, 0, 4, 4]], np.float32)
    padded = gm.Padded(jnp.asarray(rois), np.array([True, False, False]), 1)

    def pooled(features, rois):
        return gm.roi_align(features, rois, 2, sampling_ratio=ratio)

    np.testing.assert_array_equal(pooled(features, padded)[:1], pooled(features, rois[:1]))
    assert not pooled(features, padded)[1:].any()
    gradients = [jax.jit(jax.grad(lambda f, r: (pooled(f, r) ** 2).sum()))(features, r) for r in (padded, rois[:1])]
    np.testing.assert_array_equal(*gradients)


def test_an_index_of_no_image_gives_nan():
    rois = np.array([[2, 0, 0, 4, 4], [-1, 0, 0, 4, 4], [1, 0, 0, 4, 4]], np.float32)
    out = np.asarray(gm.roi_align(np.ones((2, 6, 6, 1), np.float32), rois, 1, sampling_ratio=1)).reshape(-1)
    np.testing.assert_array_equal(out, [np.nan, np.nan, 1])


def test_boxes_of_each_image_in_a_list():
    rng = np.random.default_rng(0)
    features = rng.standard_normal((2, 6, 6, 2)).astype(np.float32)
    boxes = [np.array([[0, 0, 4, 4], [1, 1, 3, 5]], np.float32), np.array([[2, 0, 5, 5]], np.float32)]
    rows = np.array([[0, 0, 0, 4, 4], [0, 1, 1, 3, 5], [1, 2, 0, 5, 5]], np.float32)
    wanted = gm.roi_align(features, rows, 2, sampling_ratio=2)
    np.testing.assert_array_equal(gm.roi_align(features, boxes, 2, sampling_ratio=2), wanted)
    padded = [gm.compact(b, np.ones(len(b), bool), capacity=3) for b in boxes]
    got = np.asarray(gm.roi_align(features, padded, 2, sampling_ratio=2))
    np.testing.assert_array_equal(got[[0, 1, 3]], wanted)
    assert not got[[2, 4, 5]].any()


def test_bfloat16_is_summed_in_float32():
    features = jnp.ones((1, 30, 30, 1), jnp.bfloat16)
    out = gm.roi_align(features, np.array([[0, 1, 1, 28, 28]], np.float32), 1)
    assert out.dtype == jnp.bfloat16
    assert out.item() == 1


def test_forward_mode_with_a_fixed_number_of_samples():
    rng = np.random.default_rng(0)
    features, tangent = rng.standard_normal((2, 1, 6, 6, 2)).astype(np.float32)
    rois = np.array([[0, 0, 0, 4, 4]], np.float32)
    _, out = jax.jvp(lambda f: gm.roi_align(f, rois, 2, sampling_ratio=2), (features,), (tangent,))
    np.testing.assert_allclose(out, gm.roi_align(tangent, rois, 2, sampling_ratio=2), rtol=0, atol=1e-6)


def test_one_compilation_for_all_boxes():
    traces = []

    @jax.jit
    def pooled(features, rois):
        traces.append(rois.shape)
        return gm.roi_align(features, rois, 2)

    for side in (1, 5, 20):
        pooled(np.ones((1, 6, 6, 1), np.float32), np.array([[0, 0, 0, side, side]], np.float32))
    assert len(traces) == 1


FEATURES, ROIS = np.zeros((2, 4, 4, 3), np.float32), np.zeros((3, 5), np.float32)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"features": np.zeros((4, 4, 3), np.float32)}, ["features", "[4, 4, 3]", "N, H, W, C"]),
        ({"features": np.zeros((2, 4, 4, 3), np.int32)}, ["features", "int32"]),
        ({"features": np.zeros((2, 0, 4, 3), np.float32)}, ["features", "(2, 0, 4, 3)", "pixel"]),
        ({"rois": np.zeros((3, 4), np.float32)}, ["rois", "(3, 4)", "[K, 5]"]),
        ({"rois": np.zeros((3, 5), np.int32)}, ["rois", "int32"]),
        ({"rois": [np.zeros((3, 4), np.float32)]}, ["rois", "1", "2"]),
        ({"rois": [np.zeros((3, 4)), np.zeros((3, 5))]}, ["rois[1]", "(3, 5)"]),
        ({"output_size": 0}, ["output_size", "0"]),
        ({"output_size": (2, 2, 2)}, ["output_size", "(2, 2, 2)"]),
        ({"output_size": 2.0}, ["output_size", "2.0"]),
        ({"sampling_ratio": 1.5}, ["sampling_ratio", "1.5"]),
        ({"spatial_scale": (1, 1)}, ["spatial_scale", "(2,)"]),
        ({"data_format": "CHW"}, ["data_format", "CHW"]),
    ],
)
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_bad_input_is_named(change, words, wrap):
    good = {"features": FEATURES, "rois": ROIS, "output_size": 2}
    with pytest.raises(ValueError) as error:  # noqa: PT011
        wrap(lambda: gm.roi_align(**{**good, **change}))()
    assert all(word in str(error.value) for word in words), str(error.value)


def test_a_fixed_number_of_samples_runs_without_jit():
    features, rois = jnp.arange(72.0).reshape(1, 6, 6, 2), jnp.array([[0, 0.5, 1.0, 4.0, 5.0]])
    wanted = gm.roi_align(features, rois, 2, sampling_ratio=2)
    with jax.disable_jit():
        np.testing.assert_allclose(gm.roi_align(features, rois, 2, sampling_ratio=2), wanted, rtol=1e-6)
