"""`gm.nms` and `gm.batched_nms` against torchvision's CPU kernel, written out in eager PyTorch, index for index."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from differential import Differential, cases, is_caught, padded, run
from hypothesis import strategies as st

import graphmode as gm


def kernel(boxes, scores, iou_threshold, overlap="iou", offset=0):
    """torchvision/csrc/ops/cpu/nms_kernel.cpp: the inner loop as one vector, the arithmetic and its order the same."""
    x1, y1, x2, y2 = boxes.unbind(1)
    areas = (x2 - x1 + offset) * (y2 - y1 + offset)
    order = scores.sort(stable=True, descending=True)[1]
    suppressed = torch.zeros(len(boxes), dtype=torch.bool)
    keep = []
    for at, i in enumerate(order.tolist()):
        if suppressed[i]:
            continue
        keep.append(i)
        rest = order[at + 1 :]
        w = (torch.minimum(x2[i], x2[rest]) - torch.maximum(x1[i], x1[rest]) + offset).clamp(min=0)
        h = (torch.minimum(y2[i], y2[rest]) - torch.maximum(y1[i], y1[rest]) + offset).clamp(min=0)
        inter = w * h
        if overlap == "iou":
            share = inter / (areas[i] + areas[rest] - inter)
        else:
            share = inter / torch.minimum(areas[i], areas[rest])
        suppressed[rest[share.double() > iou_threshold]] = True
    return torch.tensor(keep, dtype=torch.int64)


def vanilla(boxes, scores, idxs, *options):
    """`_batched_nms_vanilla` of torchvision."""
    keep = torch.zeros(len(scores), dtype=torch.bool)
    for one in torch.unique(idxs):
        members = torch.where(idxs == one)[0]
        keep[members[kernel(boxes[members], scores[members], *options)]] = True
    kept = torch.where(keep)[0]
    return kept[scores[kept].sort(stable=True, descending=True)[1]]


def candidates_of(rng, c, dtype):
    """Crowds of boxes, ties in score and place, and at times an overlap exactly at a threshold of 1/4 or 1/2."""
    first = rng.uniform(0, rng.choice([20.0, 60.0, 300.0]), (c.n, 2)) - rng.choice([0, 200])
    sides = rng.uniform(4, 40, (c.n, 2))
    scores = rng.standard_normal(c.n)
    kind = rng.integers(4)
    if kind == 1:
        first, sides = np.round(first / 8) * 8, np.round(sides / 16) * 16  # halves and quarters; some without area
    if kind == 2:
        scores = np.round(scores * 2) / 2 * rng.choice([1, 0])
    if kind == 3:
        scores = np.where(rng.random(c.n) < 0.3, rng.choice([np.inf, -np.inf, np.nan, 0.0, -0.0], c.n), scores)
    boxes = np.concatenate([first, first + sides], axis=1)
    threshold = rng.choice([0.0, 0.25, 0.5, 0.7, 1.0])
    return {"boxes": boxes.astype(dtype), "scores": scores.astype(dtype), "threshold": np.asarray(threshold, dtype)}


CONFIGS = st.fixed_dictionaries({"n": st.sampled_from([0, 7, 300]), "capacity": st.sampled_from([7, 250])})
SMALL = st.fixed_dictionaries({"n": st.just(40), "capacity": st.sampled_from([1, 50])})
NMS = Differential(
    name="nms",
    configs=CONFIGS,
    arrays=candidates_of,
    ours=lambda c, boxes, scores, threshold: gm.nms(boxes, scores, iou_threshold=threshold, capacity=c.capacity),
    eager=lambda c, boxes, scores, threshold: padded(kernel(boxes, scores, float(threshold)), c.capacity, c.n),
    dtypes=("float32", "float64"),
    optimised=True,
)
MIN = Differential(
    name="nms, Min of facenet-pytorch",
    configs=SMALL,
    arrays=candidates_of,
    ours=lambda c, boxes, scores, threshold: gm.nms(
        boxes, scores, iou_threshold=threshold, capacity=c.capacity, overlap="min", offset=1
    ),
    eager=lambda c, boxes, scores, threshold: padded(
        kernel(boxes, scores, float(threshold), "min", 1), c.capacity, c.n
    ),
    dtypes=("float32", "float64"),
    optimised=True,
)


def classed(rng, c, dtype):
    return {**candidates_of(rng, c, dtype), "idxs": rng.integers(-2, rng.choice([0, 1, 5]), c.n).astype(np.int32)}


BATCHED = Differential(
    name="batched_nms",
    configs=SMALL,
    arrays=classed,
    ours=lambda c, boxes, scores, threshold, idxs: gm.batched_nms(
        boxes, scores, idxs, iou_threshold=threshold, capacity=c.capacity
    ),
    eager=lambda c, boxes, scores, threshold, idxs: padded(
        vanilla(boxes, scores, idxs, float(threshold)), c.capacity, c.n
    ),
    dtypes=("float32", "float64"),
    optimised=True,
)


def spoilt(rng, c, dtype):
    """Boxes that are not there are in the way of others, or hold NaN or infinity; their scores are the best."""
    arrays = candidates_of(rng, c, dtype)
    valid = rng.random(c.n) < rng.choice([0.0, 0.3, 0.9])
    garbage = rng.choice([np.nan, np.inf, 0.0])
    if garbage:
        arrays["boxes"][~valid] = garbage
    arrays["scores"] = np.where(valid, arrays["scores"], rng.choice([np.nan, np.inf, 9.0])).astype(dtype)
    return {**arrays, "valid": valid}


def of_those_there(c, boxes, scores, threshold, valid):
    there = torch.where(valid)[0]
    return padded(there[kernel(boxes[there], scores[there], float(threshold))], c.capacity, c.n)


VALID = Differential(
    name="nms of valid boxes",
    configs=SMALL,
    arrays=spoilt,
    ours=lambda c, boxes, scores, threshold, valid: gm.nms(
        boxes, scores, iou_threshold=threshold, capacity=c.capacity, valid=valid
    ),
    eager=of_those_there,
    dtypes=("float32", "float64"),
    optimised=True,
)
TABLE = [NMS, MIN, BATCHED, VALID]


@pytest.mark.parametrize(("one", "dtype", "examples"), cases(TABLE))
def test_agrees_with_eager_pytorch(one, dtype, examples):
    run(one, dtype, examples)


def not_strict(c, boxes, scores, threshold):
    return gm.nms(boxes, scores, iou_threshold=jnp.maximum(threshold - 1e-6, 0), capacity=c.capacity)


def ties_to_the_last(c, boxes, scores, threshold):
    kept = gm.nms(boxes[::-1], scores[::-1], iou_threshold=threshold, capacity=c.capacity)
    return dataclasses.replace(kept, values=jnp.where(kept.valid, c.n - 1 - kept.values, c.n))


def suppressed_ones_suppress(c, boxes, scores, threshold):
    order = jnp.argsort(scores, descending=True, stable=True)
    hits = gm.box_iou(boxes[order], boxes[order]) > threshold
    return gm.compact(order, ~jnp.any(jnp.triu(hits, 1), axis=0), capacity=c.capacity, fill_value=c.n)


def count_of_those_held(c, boxes, scores, threshold):
    kept = gm.nms(boxes, scores, iou_threshold=threshold, capacity=c.capacity)
    return dataclasses.replace(kept, count=jnp.sum(kept.valid, dtype=jnp.int32))


def padded_with_zero(c, boxes, scores, threshold):
    kept = gm.nms(boxes, scores, iou_threshold=threshold, capacity=c.capacity)
    return dataclasses.replace(kept, values=jnp.where(kept.valid, kept.values, 0))


def coordinate_trick(c, boxes, scores, threshold, idxs):
    moved = boxes + (idxs.astype(boxes.dtype) * (jnp.max(boxes, initial=0) + 1))[:, None]
    return gm.nms(moved, scores, iou_threshold=threshold, capacity=c.capacity)


def valid_only_at_the_end(c, boxes, scores, threshold, valid):
    kept = gm.nms(boxes, scores, iou_threshold=threshold, capacity=c.n)
    there = kept.valid & valid[jnp.minimum(kept.values, c.n - 1)]
    return gm.compact(kept.values, there, capacity=c.capacity, fill_value=c.n)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "fault"),
    [
        (NMS, not_strict),
        (NMS, ties_to_the_last),
        (NMS, suppressed_ones_suppress),
        (NMS, count_of_those_held),
        (NMS, padded_with_zero),
        (BATCHED, coordinate_trick),
        (VALID, valid_only_at_the_end),
    ],
)
def test_a_planted_fault_is_caught(one, fault):
    assert is_caught(dataclasses.replace(one, ours=fault, configs=SMALL))


def held(kept):
    return np.asarray(kept.values)[np.asarray(kept.valid)].tolist()


def crowd(n, seed, span=300.0):
    rng = np.random.default_rng(seed)
    first = rng.uniform(0, span, (n, 2))
    boxes = np.concatenate([first, first + rng.uniform(10, 60, (n, 2))], axis=1)
    return boxes.astype(np.float32), rng.random(n).astype(np.float32)


@pytest.mark.parametrize("n", [127, 128, 129, 700])
def test_thresholds_that_an_overlap_equals(n):
    """The oracle and we must round alike: a unit in the last place changes what is kept, and all after it."""
    boxes, scores = crowd(n, n)
    tensor = torch.from_numpy(boxes)
    area = (tensor[:, 2] - tensor[:, 0]) * (tensor[:, 3] - tensor[:, 1])
    sides = (
        torch.minimum(tensor[:, None, 2:], tensor[:, 2:]) - torch.maximum(tensor[:, None, :2], tensor[:, :2])
    ).clamp(min=0)
    inter = sides[..., 0] * sides[..., 1]
    overlaps = (inter / (area[:, None] + area - inter)).numpy()
    occurring = np.unique(overlaps[(overlaps > 0.1) & (overlaps < 1)])
    select = jax.jit(lambda b, s, t: gm.nms(b, s, iou_threshold=t, capacity=n))
    for threshold in np.random.default_rng(0).choice(occurring, 40):
        wanted = kernel(tensor, torch.from_numpy(scores), float(threshold)).tolist()
        assert held(select(boxes, scores, threshold)) == wanted


@pytest.mark.parametrize("threshold", [0.1, 0.3, 0.6, 0.7, 0.9])
def test_a_threshold_that_float32_cannot_hold_is_compared_as_the_double_that_it_is(threshold):
    # 1000 wide and `part` high: IoU is the nearest float32 of threshold, above or below it
    boxes = np.array([[0, 0, 1000, 1000], [0, 0, 1000, 1000 * threshold]], np.float32)
    scores = np.array([2, 1], np.float32)
    wanted = kernel(torch.from_numpy(boxes), torch.from_numpy(scores), threshold).tolist()
    assert held(gm.nms(boxes, scores, iou_threshold=threshold, capacity=2)) == wanted


def test_a_chain_in_which_every_box_hangs_on_the_one_before():
    n = 1000
    left = np.arange(n, dtype=np.float32) * 3
    boxes = np.stack([left, 0 * left, left + 10, 0 * left + 10], axis=1)
    kept = gm.nms(boxes, -left, iou_threshold=0.5, capacity=n)
    assert held(kept) == list(range(0, n, 2))


@pytest.mark.parametrize("span", [50.0, 3000.0])
def test_many_boxes(span):
    boxes, scores = crowd(5000, 1, span)
    kept = jax.jit(lambda b, s: gm.nms(b, s, iou_threshold=0.5, capacity=5000))(boxes, scores)
    assert held(kept) == kernel(torch.from_numpy(boxes), torch.from_numpy(scores), 0.5).tolist()


def test_without_a_matrix_of_all_pairs_also_under_vmap():
    def largest(jaxpr):
        inner = [p.jaxpr for eqn in jaxpr.eqns for p in eqn.params.values() if hasattr(p, "jaxpr")]
        sizes = [np.prod(v.aval.shape, dtype=int) for eqn in jaxpr.eqns for v in eqn.outvars]
        return max([*sizes, *map(largest, inner)], default=0)

    n, lanes = 4000, 2
    boxes, scores = jnp.zeros((lanes, n, 4)), jnp.zeros((lanes, n))
    select = jax.vmap(lambda b, s: gm.nms(b, s, iou_threshold=0.5, capacity=10))
    assert largest(jax.make_jaxpr(select)(boxes, scores).jaxpr) < lanes * n * n / 50


def test_nan_and_infinite_coordinates_suppress_nothing():
    boxes = np.array([[0, 0, 9, 9], [0, np.nan, 9, 9], [0, 0, np.inf, np.inf], [0, 0, 9, 8]], np.float32)
    scores = np.array([3, 4, 5, 1], np.float32)
    wanted = kernel(torch.from_numpy(boxes), torch.from_numpy(scores), 0.5).tolist()
    assert held(gm.nms(boxes, scores, iou_threshold=0.5, capacity=4)) == wanted == [2, 1, 0]


@pytest.mark.parametrize(("capacity", "values", "overflow"), [(2, [2, 1], True), (3, [2, 1, 0], False)])
def test_overflow_is_seen(capacity, values, overflow):
    boxes = np.array([[0, 0, 1, 1], [2, 2, 3, 3], [4, 4, 5, 5]], np.float32)
    kept = jax.jit(lambda b: gm.nms(b, np.arange(3.0), iou_threshold=0.5, capacity=capacity))(boxes)
    assert (kept.values.tolist(), int(kept.count), bool(kept.overflow)) == (values, 3, overflow)


@pytest.mark.parametrize("operation", ["nms", "batched_nms"])
def test_overflow_raises_if_asked(operation):
    boxes, scores = np.array([[0, 0, 1, 1], [2, 2, 3, 3]], np.float32), np.arange(2.0)

    def select(*more):
        options = {"iou_threshold": 0.5, "capacity": 1, "on_overflow": "raise"}
        jax.block_until_ready(getattr(gm, operation)(boxes, scores, *more, **options))
        jax.effects_barrier()

    with pytest.raises(Exception, match=f"{operation} found 2 entries"):
        select(*([np.arange(2)] if operation == "batched_nms" else []))


def test_padded_input_keeps_what_it_lost_in_sight():
    boxes, scores = crowd(6, 0, 5000.0)
    picked = gm.compact((boxes, scores), np.arange(6) != 2, capacity=4)
    lossless = gm.compact((boxes, scores), np.arange(6) < 3, capacity=4)
    for found, count, overflow in ((picked, 5, True), (lossless, 3, False)):
        both = [gm.Padded(values, found.valid, found.count) for values in found.values]
        kept = gm.nms(*both, iou_threshold=0.5, capacity=4)
        assert (int(kept.count), bool(kept.overflow)) == (count, overflow)
        plain = gm.nms(*found.values, iou_threshold=0.5, capacity=4, valid=found.valid)
        np.testing.assert_array_equal(kept.values, plain.values)


def test_bfloat16_boxes_are_computed_in_float32():
    boxes, scores = crowd(50, 0, 100.0)
    boxes, scores = jnp.asarray(boxes, jnp.bfloat16), jnp.asarray(scores, jnp.bfloat16)
    widened = [torch.from_numpy(np.asarray(a, np.float32)) for a in (boxes, scores)]
    assert held(gm.nms(boxes, scores, iou_threshold=0.5, capacity=50)) == kernel(*widened, 0.5).tolist()


def test_gradients_flow_through_what_the_indices_gather():
    boxes, scores = crowd(20, 0)

    def loss(boxes, scores):
        kept = gm.nms(boxes, scores, iou_threshold=0.5, capacity=8)
        best = scores.at[kept.values].get(mode="fill", fill_value=0)
        return jnp.sum(jnp.where(kept.valid, best, 0) ** 2)

    to_boxes, to_scores = jax.jit(jax.grad(loss, argnums=(0, 1)))(boxes, scores)
    wanted = np.zeros(20, np.float32)
    chosen = kernel(torch.from_numpy(boxes), torch.from_numpy(scores), 0.5).numpy()[:8]
    wanted[chosen] = 2 * scores[chosen]
    np.testing.assert_array_equal(to_scores, wanted)
    assert not to_boxes.any()
    jax.jvp(loss, (boxes, scores), (boxes, scores))


def test_one_compilation_for_all_values():
    traces = []

    @jax.jit
    def select(boxes, scores, threshold):
        traces.append(boxes.shape)
        return gm.nms(boxes, scores, iou_threshold=threshold, capacity=5)

    for seed in range(3):
        select(*crowd(30, seed), np.float32(seed / 4))
    assert len(traces) == 1


BOXES, SCORES = np.zeros((3, 4), np.float32), np.zeros(3, np.float32)
GOOD = {"boxes": BOXES, "scores": SCORES, "iou_threshold": 0.5, "capacity": 3}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"boxes": np.zeros((3, 5), np.float32)}, ["boxes", "(3, 5)"]),
        ({"boxes": np.zeros((1, 3, 4), np.float32)}, ["boxes", "(1, 3, 4)", "vmap"]),
        ({"boxes": np.zeros((3, 4), np.int32)}, ["boxes", "int32", "float"]),
        ({"scores": np.zeros(4, np.float32)}, ["scores", "(4,)", "(3,)"]),
        ({"scores": np.zeros((3, 1), np.float32)}, ["scores", "(3, 1)"]),
        ({"scores": np.zeros(3, np.int32)}, ["scores", "int32"]),
        ({"iou_threshold": 1.5}, ["iou_threshold", "1.5"]),
        ({"iou_threshold": -0.1}, ["iou_threshold", "-0.1"]),
        ({"iou_threshold": float("nan")}, ["iou_threshold", "nan"]),
        ({"iou_threshold": None}, ["iou_threshold", "None"]),
        ({"iou_threshold": np.zeros(2)}, ["iou_threshold", "one number"]),
        ({"overlap": "giou"}, ["overlap", "giou", "'min'"]),
        ({"offset": float("nan")}, ["offset", "nan"]),
        ({"capacity": 0}, ["capacity", "0"]),
        ({"on_overflow": "nan"}, ["on_overflow", "int32"]),
        ({"on_overflow": "ignore"}, ["on_overflow", "ignore"]),
        ({"valid": np.ones(4, bool)}, ["valid", "(4,)", "boxes"]),
        ({"valid": np.ones(3)}, ["valid", "float", "bool"]),
        ({"idxs": np.zeros(2, np.int32)}, ["idxs", "(2,)"]),
        ({"idxs": np.zeros(3, np.float32)}, ["idxs", "float32", "integers"]),
    ],
)
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_bad_input_is_named(change, words, wrap):
    operation = gm.batched_nms if "idxs" in change else gm.nms
    with pytest.raises(ValueError) as error:  # noqa: PT011
        wrap(lambda: operation(**{**GOOD, **change}))()
    assert all(word in str(error.value) for word in words), str(error.value)


def test_a_traced_capacity_is_named():
    with pytest.raises(TypeError, match="capacity is traced"):
        jax.jit(lambda k: gm.nms(BOXES, SCORES, iou_threshold=0.5, capacity=k))(3)
