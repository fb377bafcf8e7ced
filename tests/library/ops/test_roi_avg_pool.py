"""`gm.roi_avg_pool` against `interpolate(mode="area")` and `adaptive_avg_pool2d` of each crop in eager PyTorch."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from differential import Differential, cases, is_caught, run
from hypothesis import strategies as st
from torch.nn import functional as F

import graphmode as gm

HEIGHT, WIDTH = 37, 53


def boxes_of(rng, number):
    """Boxes of one pixel, of the whole image, across its border, and others."""
    first = rng.integers(0, [WIDTH, HEIGHT], (number, 2))
    last = rng.integers(first, [WIDTH, HEIGHT], (number, 2))
    kind = rng.integers(0, 5, (number, 1))
    last = np.where(kind == 0, first, last)
    boxes = np.concatenate([first, last + 1], 1)
    beyond = rng.integers(0, 30, (number, 4)) * [-1, -1, 1, 1]
    whole = np.array([0, 0, WIDTH, HEIGHT])
    return np.where(kind == 1, whole, np.where(kind == 2, whole + beyond, boxes)).astype(np.int32)


def image_and_boxes(rng, c, dtype):
    shape = (HEIGHT, WIDTH, 3) if c.data_format == "HWC" else (3, HEIGHT, WIDTH)
    image = rng.integers(0, 256, shape).astype(np.uint8) if c.bytes else rng.standard_normal(shape).astype(dtype)
    return {"image": image, "boxes": boxes_of(rng, c.number)}


def cropped(image, boxes):
    """`[C, H, W]` -> each crop `[1, C, h, w]`, as slicing clips it."""
    for x1, y1, x2, y2 in boxes.clamp(min=0).tolist():
        yield image[None, :, y1:y2, x1:x2]


def each_resized(resize):
    def eagerly(c, image, boxes):
        image = image.permute(2, 0, 1) if c.data_format == "HWC" else image
        image = image.float() if c.bytes else image
        out = torch.cat([resize(crop, c.size) for crop in cropped(image, boxes)])
        return out.permute(0, 2, 3, 1) if c.data_format == "HWC" else out

    return eagerly


FLOATING = Differential(
    name="roi_avg_pool, floating",
    configs=st.sampled_from(
        [
            {"bytes": False, "number": 6, "size": (5, 7), "data_format": "HWC"},
            {"bytes": False, "number": 4, "size": (24, 24), "data_format": "CHW"},
            {"bytes": False, "number": 4, "size": (48, 60), "data_format": "HWC"},
            {"bytes": False, "number": 3, "size": (1, 1), "data_format": "HWC"},
        ]
    ),
    arrays=image_and_boxes,
    ours=lambda c, image, boxes: gm.roi_avg_pool(image, boxes, c.size, data_format=c.data_format),
    eager=each_resized(F.adaptive_avg_pool2d),
    dtypes=("float32", "float64", "bfloat16"),
    gradients=("image",),
    exact=False,
)
BYTES = Differential(
    name="roi_avg_pool, uint8",
    configs=st.sampled_from(
        [
            {"bytes": True, "number": 6, "size": (5, 7), "data_format": "HWC"},
            {"bytes": True, "number": 4, "size": (24, 24), "data_format": "CHW"},
            {"bytes": True, "number": 4, "size": (48, 60), "data_format": "HWC"},
        ]
    ),
    arrays=image_and_boxes,
    ours=FLOATING.ours,
    eager=each_resized(lambda crop, size: F.interpolate(crop, size=size, mode="area")),
    dtypes=("float32",),
    exact=False,
)


@pytest.mark.parametrize(("one", "dtype", "examples"), cases([FLOATING, BYTES]))
def test_agrees_with_eager_pytorch(one, dtype, examples):
    run(one, dtype, examples)


def bins_that_never_overlap(c, image, boxes):
    return gm.roi_avg_pool(image, boxes - jnp.array([0, 0, 1, 0]), c.size, data_format=c.data_format)


def transposed_bins(c, image, boxes):
    return jnp.swapaxes(gm.roi_avg_pool(image, boxes, c.size[::-1], data_format=c.data_format), 1, 2)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [bins_that_never_overlap, transposed_bins])
def test_a_planted_fault_is_caught(fault):
    configs = st.just({"bytes": True, "number": 6, "size": (5, 7), "data_format": "HWC"})
    assert is_caught(dataclasses.replace(BYTES, configs=configs, ours=fault))


@pytest.mark.parametrize("size", [12, 24, 48])
def test_every_side_has_pytorchs_edges(size):
    """Positions instead of pixels, so that a bin one pixel too long or too late shows in every side from 1 to 200."""
    ramp = np.arange(200.0)
    row = jnp.asarray(np.square(ramp)[:, None, None], jnp.float32)
    boxes = np.array([[0, 0, 1, side] for side in range(1, 201)])
    ours = np.asarray(gm.roi_avg_pool(row, boxes, (size, 1)))[:, :, 0, 0]
    theirs = [F.adaptive_avg_pool1d(torch.tensor(np.square(ramp[:side]))[None], size)[0] for side in range(1, 201)]
    np.testing.assert_allclose(ours, np.stack(theirs), rtol=1e-5)


def test_sums_stay_exact_where_the_table_wraps():
    """All pixels 255, and more of them than int32 can add up."""
    image = np.full((2910, 2910, 1), 255, np.uint8)
    assert image.size * 255 > 2**31
    boxes = np.array([[2900, 2900, 2910, 2910], [0, 0, 2910, 2910], [1, 2, 2909, 2910]])
    assert (np.asarray(gm.roi_avg_pool(image, boxes, 24)) == 255).all()


def test_gradient_is_each_pixels_share_forward_and_reverse():
    rng = np.random.default_rng(0)
    image, tangent = rng.standard_normal((2, 9, 11, 2)).astype(np.float32)
    boxes = np.array([[2, 1, 9, 8]])
    weights = rng.standard_normal((1, 3, 2, 2)).astype(np.float32)

    def pooled(image):
        return gm.roi_avg_pool(image, boxes, (3, 2))

    _, moved = jax.jvp(pooled, (image,), (tangent,))
    np.testing.assert_allclose(moved, pooled(tangent), atol=1e-6)
    gradient = np.asarray(jax.grad(lambda image: (pooled(image) * weights).sum())(image))
    theirs = torch.tensor(image.transpose(2, 0, 1)).requires_grad_()
    out = F.adaptive_avg_pool2d(theirs[None, :, 1:8, 2:9], (3, 2)).permute(0, 2, 3, 1)
    (out * torch.tensor(weights)).sum().backward()
    np.testing.assert_allclose(gradient, theirs.grad.permute(1, 2, 0).numpy(), atol=1e-6)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_boxes_without_a_pixel_and_padding(dtype):
    image = np.full((6, 6, 1), 7, dtype)
    boxes = np.array([[1, 1, 3, 3], [2, 2, 2, 5], [4, 4, 3, 6], [8, 0, 9, 3], [-5, -5, 0, 0]])
    out = np.asarray(gm.roi_avg_pool(image, boxes, 2))
    assert (out[0] == 7).all()
    assert np.isnan(out[1:]).all()
    held = gm.Padded(boxes, np.array([True, True, False, False, False]), 9)
    out = np.asarray(gm.roi_avg_pool(image, held, 2))
    assert (out[0] == 7).all()
    assert np.isnan(out[1]).all()
    assert (out[2:] == 0).all()


def test_dtypes():
    image = np.full((4, 4, 1), 3, np.uint8)
    box = np.array([[0, 0, 3, 3]])
    assert gm.roi_avg_pool(image, box, 2).dtype == jnp.float32
    assert gm.roi_avg_pool(image, box, 2, dtype=jnp.bfloat16).dtype == jnp.bfloat16
    assert gm.roi_avg_pool(image.astype(jnp.bfloat16), box, 2).dtype == jnp.bfloat16
    with jax.enable_x64(True):
        assert gm.roi_avg_pool(image, box.astype(np.int64), 2, dtype=jnp.float64).dtype == jnp.float64


def test_one_compilation_for_all_boxes():
    traces = []

    @jax.jit
    def pooled(image, boxes):
        traces.append(boxes.shape)
        return gm.roi_avg_pool(image, boxes, 3)

    for side in (1, 5, 20):
        pooled(np.ones((6, 6, 1), np.uint8), np.array([[0, 0, side, side]]))
    assert len(traces) == 1


IMAGE, BOXES = np.zeros((4, 5, 3), np.uint8), np.zeros((3, 4), np.int32)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"image": np.zeros((2, 4, 4, 3), np.uint8)}, ["image", "[2, 4, 4, 3]", "vmap"]),
        ({"image": np.zeros((4, 4, 3), np.int32)}, ["image", "int32", "uint8"]),
        ({"image": np.zeros((0, 4, 3), np.uint8)}, ["image", "(0, 4, 3)", "pixel"]),
        ({"boxes": np.zeros((3, 5), np.int32)}, ["boxes", "(3, 5)"]),
        ({"boxes": np.zeros((3, 4), np.float32)}, ["boxes", "float32", "integers"]),
        ({"output_size": 0}, ["output_size", "0"]),
        ({"dtype": np.int32}, ["dtype", "int32"]),
        ({"data_format": "NHWC"}, ["data_format", "NHWC"]),
    ],
)
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_bad_input_is_named(change, words, wrap):
    good = {"image": IMAGE, "boxes": BOXES, "output_size": 2}
    with pytest.raises(ValueError) as error:  # noqa: PT011
        wrap(lambda: gm.roi_avg_pool(**{**good, **change}))()
    assert all(word in str(error.value) for word in words), str(error.value)
