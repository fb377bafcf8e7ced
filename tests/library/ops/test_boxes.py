"""`gm.box_iou` and its kin against eager PyTorch as torchvision.ops.boxes writes it, gradients at ties included."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from differential import FLOATING, Differential, cases, is_caught, padded, run
from hypothesis import strategies as st

import graphmode as gm


def boxes_of(rng, rows, dtype):
    """Boxes (x1, y1, x2, y2): on a coarse grid at times, so that edges meet and boxes repeat; some without area."""
    first = rng.uniform(-10, 30, (rows, 2))
    sides = rng.uniform(0.5, 30, (rows, 2))
    boxes = np.concatenate([first, first + sides], axis=1)
    kind = rng.integers(3)
    if kind:
        boxes = np.round(boxes / 4) * 4
    if kind == 1:
        boxes[:, 2:] = np.maximum(boxes[:, 2:], boxes[:, :2] + 4)
    if dtype == "int32":
        return boxes.astype(np.int32)
    return boxes.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def proper_boxes(rng, rows, dtype):
    boxes = boxes_of(rng, rows, "float64")
    boxes[:, 2:] = np.maximum(boxes[:, 2:], boxes[:, :2] + 1)
    return boxes.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def upcast(t):
    if t.is_floating_point():
        return t if t.dtype in (torch.float32, torch.float64) else t.float()
    return t if t.dtype in (torch.int32, torch.int64) else t.int()


def area(boxes):
    boxes = upcast(boxes)
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def inter_union(one, two):
    one, two = upcast(one), upcast(two)
    first = torch.max(one[:, None, :2], two[:, :2])
    last = torch.min(one[:, None, 2:], two[:, 2:])
    sides = (last - first).clamp(min=0)
    inter = sides[:, :, 0] * sides[:, :, 1]
    return inter, area(one)[:, None] + area(two) - inter


def iou(one, two):
    inter, union = inter_union(one, two)
    return inter / union


def enclosing(one, two):
    one, two = upcast(one), upcast(two)
    return (torch.max(one[:, None, 2:], two[:, 2:]) - torch.min(one[:, None, :2], two[:, :2])).clamp(min=0)


def generalized(one, two):
    inter, union = inter_union(one, two)
    sides = enclosing(one, two)
    around = sides[:, :, 0] * sides[:, :, 1]
    return inter / union - (around - union) / around


def distance(one, two, eps=1e-7):
    one, two = upcast(one), upcast(two)
    sides = enclosing(one, two)
    diagonal = sides[:, :, 0] ** 2 + sides[:, :, 1] ** 2 + eps
    x, y = (one[:, 0] + one[:, 2]) / 2, (one[:, 1] + one[:, 3]) / 2
    u, v = (two[:, 0] + two[:, 2]) / 2, (two[:, 1] + two[:, 3]) / 2
    return iou(one, two) - ((x[:, None] - u) ** 2 + (y[:, None] - v) ** 2) / diagonal


def complete(one, two, eps=1e-7):
    one, two = upcast(one), upcast(two)
    w, h = one[:, None, 2] - one[:, None, 0], one[:, None, 3] - one[:, None, 1]
    unlike = 4 / math.pi**2 * (torch.atan(w / h) - torch.atan((two[:, 2] - two[:, 0]) / (two[:, 3] - two[:, 1]))) ** 2
    with torch.no_grad():
        weight = unlike / (1 - iou(one, two) + unlike + eps)
    return distance(one, two, eps) - weight * unlike


def inter_over_min(one, two, offset):
    grown = [torch.cat([b[:, :2], b[:, 2:] + offset], 1) for b in (upcast(one), upcast(two))]
    inter, _ = inter_union(*grown)
    return inter / torch.minimum(area(grown[0])[:, None], area(grown[1]))


def converted(boxes, in_fmt, out_fmt):
    if in_fmt == out_fmt:
        return boxes
    a, b, c, d = boxes.unbind(-1)
    if in_fmt == "cxcywh":
        a, b, c, d = a - 0.5 * c, b - 0.5 * d, a + 0.5 * c, b + 0.5 * d
    if in_fmt == "xywh":
        c, d = a + c, b + d
    if out_fmt == "cxcywh":
        a, b, c, d = (a + c) / 2, (b + d) / 2, c - a, d - b
    if out_fmt == "xywh":
        c, d = c - a, d - b
    return torch.stack([a, b, c, d], dim=-1)


def clipped(boxes, height, width):
    x, y = boxes[..., 0::2].clamp(min=0, max=width), boxes[..., 1::2].clamp(min=0, max=height)
    return torch.stack((x, y), dim=boxes.dim()).reshape(boxes.shape)


PAIRS = st.fixed_dictionaries({"n": st.sampled_from([0, 5]), "m": st.just(4)})


def pair(draw):
    return lambda rng, c, dtype: {"one": draw(rng, c.n, dtype), "two": draw(rng, c.m, dtype)}


REALS = ("float32", "float64")
NUMBERS = (*FLOATING, "int32")
OVERLAPS = [
    Differential(
        name=name,
        configs=PAIRS,
        arrays=pair(draw),
        ours=lambda c, one, two, ours=ours: ours(one, two),
        eager=lambda c, one, two, eager=eager: eager(one, two),
        dtypes=dtypes,
        gradients=gradients,
        exact=False,
    )
    for name, ours, eager, draw, dtypes, gradients in [
        ("box_iou", gm.box_iou, iou, boxes_of, NUMBERS, ()),
        ("generalized_box_iou", gm.generalized_box_iou, generalized, boxes_of, NUMBERS, ()),
        ("distance_box_iou", gm.distance_box_iou, distance, boxes_of, NUMBERS, ()),
        ("complete_box_iou", gm.complete_box_iou, complete, boxes_of, NUMBERS, ()),
        ("box_inter_over_min", lambda a, b: gm.box_inter_over_min(a, b, offset=1),
         lambda a, b: inter_over_min(a, b, 1), boxes_of, NUMBERS, ()),
        ("box_iou, gradients", gm.box_iou, iou, proper_boxes, REALS, ("one", "two")),
        ("generalized_box_iou, gradients", gm.generalized_box_iou, generalized, proper_boxes, REALS, ("one", "two")),
        ("distance_box_iou, gradients", gm.distance_box_iou, distance, proper_boxes, REALS, ("one", "two")),
        ("complete_box_iou, gradients", gm.complete_box_iou, complete, proper_boxes, REALS, ("one", "two")),
        ("box_inter_over_min, gradients", gm.box_inter_over_min,
         lambda a, b: inter_over_min(a, b, 0), proper_boxes, REALS, ("one", "two")),
    ]
]  # fmt: skip
BOX_IOU = OVERLAPS[0]
EXACTLY = dataclasses.replace(
    BOX_IOU, name="box_iou to the last bit", dtypes=("float32", "float64"), exact=True, optimised=True
)

ROWS = st.fixed_dictionaries({"n": st.sampled_from([0, 7])})
AREA = Differential(
    name="box_area",
    configs=ROWS,
    arrays=lambda rng, c, dtype: {"boxes": boxes_of(rng, c.n, dtype)},
    ours=lambda c, boxes: gm.box_area(boxes),
    eager=lambda c, boxes: area(boxes),
    dtypes=NUMBERS,
    gradients=("boxes",),
    exact=False,
)
FORMATS = ("xyxy", "xywh", "cxcywh")
CONVERT = Differential(
    name="box_convert",
    configs=st.fixed_dictionaries(
        {"n": st.just(4), "in_fmt": st.sampled_from(FORMATS), "out_fmt": st.sampled_from(FORMATS)}
    ),
    arrays=AREA.arrays,
    ours=lambda c, boxes: gm.box_convert(boxes, c.in_fmt, c.out_fmt),
    eager=lambda c, boxes: converted(boxes, c.in_fmt, c.out_fmt),
    dtypes=NUMBERS,
    gradients=("boxes",),
    exact=False,
)
CLIP = Differential(
    name="clip_boxes_to_image",
    configs=st.fixed_dictionaries({"n": st.sampled_from([0, 9]), "size": st.sampled_from([(16, 24), (4, 40)])}),
    arrays=AREA.arrays,
    ours=lambda c, boxes: gm.clip_boxes_to_image(boxes, c.size),
    eager=lambda c, boxes: clipped(boxes, *c.size),
    dtypes=NUMBERS,
    gradients=("boxes",),
)
REMOVE = Differential(
    name="remove_small_boxes",
    configs=st.fixed_dictionaries({"n": st.sampled_from([0, 9]), "min_size": st.sampled_from([4, 12.5]),
                                   "capacity": st.sampled_from([1, 5, 12])}),
    arrays=AREA.arrays,
    ours=lambda c, boxes: gm.remove_small_boxes(boxes, c.min_size, capacity=c.capacity),
    eager=lambda c, boxes: padded(
        torch.where((boxes[:, 2] - boxes[:, 0] >= c.min_size) & (boxes[:, 3] - boxes[:, 1] >= c.min_size))[0],
        c.capacity,
        c.n,
    ),
    dtypes=NUMBERS,
)  # fmt: skip


def masks_of(rng, c, dtype):
    masks = rng.random((c.n, 5, 7)) < rng.choice([0.05, 0.5, 1.0])
    masks[np.arange(c.n), rng.integers(5, size=c.n), rng.integers(7, size=c.n)] = True
    return {"masks": masks if dtype == "bool" else (masks * -2).astype(dtype)}


def around(masks):
    corners = [[t.min() if half == 0 else t.max() for half in (0, 1) for t in torch.where(m)[::-1]] for m in masks != 0]
    return torch.tensor(corners, dtype=torch.float32).reshape(-1, 4)


MASKS = Differential(
    name="masks_to_boxes",
    configs=ROWS,
    arrays=masks_of,
    ours=lambda c, masks: gm.masks_to_boxes(masks),
    eager=lambda c, masks: around(masks),
    dtypes=("float32", "int32", "bool"),
)
TABLE = [*OVERLAPS, EXACTLY, AREA, CONVERT, CLIP, REMOVE, MASKS]


@pytest.mark.parametrize(("one", "dtype", "examples"), cases(TABLE))
def test_agrees_with_eager_pytorch(one, dtype, examples):
    run(one, dtype, examples)


def plain_arithmetic(c, one, two):
    """Without `rounded`: contracted to a multiply-add."""
    first, last = jnp.maximum(one[:, None, :2], two[:, :2]), jnp.minimum(one[:, None, 2:], two[:, 2:])
    sides = jnp.maximum(last - first, 0)
    inter = sides[..., 0] * sides[..., 1]
    size = [(b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1]) for b in (one, two)]
    return inter / (size[0][:, None] + size[1] - inter)


def half_a_gradient_at_the_border(c, boxes):
    height, width = c.size
    return jnp.clip(boxes, 0, jnp.array([width, height, width, height], boxes.dtype))


def one_more_pixel(c, masks):
    return gm.masks_to_boxes(masks) + jnp.array([0, 0, 1, 1], jnp.float32)


def strictly_larger(c, boxes):
    large = (boxes[:, 2] - boxes[:, 0] > c.min_size) & (boxes[:, 3] - boxes[:, 1] > c.min_size)
    return gm.compact(jnp.arange(c.n), large, capacity=c.capacity, fill_value=c.n)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "fault"),
    [
        (EXACTLY, plain_arithmetic),
        (CLIP, half_a_gradient_at_the_border),
        (MASKS, one_more_pixel),
        (REMOVE, strictly_larger),
    ],
)
def test_a_planted_fault_is_caught(one, fault):
    assert is_caught(dataclasses.replace(one, ours=fault))
    assert not is_caught(one)


def test_boxes_without_area_give_nan_as_in_pytorch_and_no_others_do():
    boxes = np.array([[1, 1, 1, 3], [2, 2, 2, 2], [0, 0, 4, 4]], np.float32)
    np.testing.assert_array_equal(gm.box_iou(boxes, boxes), iou(*[torch.from_numpy(boxes)] * 2).numpy())
    assert np.isnan(gm.box_iou(boxes, boxes)).sum() == 4


def test_small_integers_do_not_wrap():
    apart = np.array([[0, 0, 9, 9], [200, 200, 255, 255]], np.uint8)
    np.testing.assert_array_equal(gm.box_iou(apart, apart), np.eye(2, dtype=np.float32))
    assert gm.box_area(apart).tolist() == [81, 55 * 55]


def test_a_mask_of_zeros_has_no_box():
    assert np.isnan(gm.masks_to_boxes(np.zeros((1, 3, 4)))).all()
    assert gm.masks_to_boxes(np.zeros((0, 3, 4))).shape == (0, 4)
    assert np.isnan(gm.masks_to_boxes(np.zeros((1, 0, 4)))).all()


def test_images_of_many_sizes_share_one_graph():
    traces = []

    @jax.jit
    def clip(boxes, size):
        traces.append(size)
        return gm.clip_boxes_to_image(boxes, (size[0], size[1]))

    boxes = np.array([[-1, 2, 9, 7]], np.float32)
    assert clip(boxes, np.array([5, 8])).tolist() == [[0, 2, 8, 5]]
    assert clip(boxes, np.array([6, 7])).tolist() == [[0, 2, 7, 6]]
    assert gm.clip_boxes_to_image(boxes, np.array([6, 7])).tolist() == [[0, 2, 7, 6]]
    assert len(traces) == 1


def test_removing_shows_overflow_and_heeds_valid():
    boxes = np.array([[0, 0, 5, 5]] * 4, np.float32)
    valid = np.array([True, False, True, True])
    large = jax.jit(lambda b: gm.remove_small_boxes(b, 3, capacity=2, valid=valid))(boxes)
    assert (large.values.tolist(), int(large.count), bool(large.overflow)) == ([0, 2], 3, True)


def test_removing_too_many_raises_if_asked():
    def remove(boxes):
        jax.block_until_ready(gm.remove_small_boxes(boxes, 3, capacity=2, on_overflow="raise"))
        jax.effects_barrier()

    with pytest.raises(Exception, match="remove_small_boxes found 3 entries"):
        remove(np.array([[0, 0, 5, 5]] * 3, np.float32))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: gm.box_iou(np.zeros((3, 5)), np.zeros((2, 4))), ["boxes1", "(3, 5)"]),
        (lambda: gm.box_iou(np.zeros((3, 4)), np.zeros((2, 3, 4))), ["boxes2", "(2, 3, 4)", "vmap"]),
        (lambda: gm.box_area(np.zeros((3, 4), bool)), ["boxes", "bool"]),
        (lambda: gm.box_area(np.float32(1)), ["boxes", "()"]),
        (lambda: gm.box_convert(np.zeros((3, 4)), "xyxy", "xyhw"), ["out_fmt", "xyhw", "cxcywh"]),
        (lambda: gm.box_convert(np.zeros((3, 4)), "xywhr", "xywh"), ["in_fmt", "xywhr"]),
        (lambda: gm.clip_boxes_to_image(np.zeros((3, 4)), 5), ["size", "5"]),
        (lambda: gm.clip_boxes_to_image(np.zeros((3, 4)), (1, 2, 3)), ["size", "(1, 2, 3)"]),
        (lambda: gm.remove_small_boxes(np.zeros((3, 4)), 1, capacity=0), ["capacity", "0"]),
        (lambda: gm.remove_small_boxes(np.zeros((3, 4)), 1, capacity=2, valid=np.ones(4, bool)), ["valid", "(4,)"]),
        (lambda: gm.remove_small_boxes(np.zeros((3, 4)), 1, capacity=2, on_overflow="nan"), ["on_overflow", "int32"]),
        (lambda: gm.masks_to_boxes(np.zeros((3, 4))), ["masks", "(3, 4)"]),
    ],
)
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_bad_input_is_named(call, words, wrap):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        wrap(call)()
    assert all(word in str(error.value) for word in words), str(error.value)
