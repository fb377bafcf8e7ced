"""Every operation with a capacity, one beyond it: the true count is seen in `jit`, under `vmap` and after export."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import graphmode as gm

SIX = np.array([3.0, 1, 2, 6, 5, 4], np.float32)
MASK = np.array([True, True, False, True, True, True])
FEW = np.array([True, False, False, False, False, False])
BOXES = np.array([[10.0 * i, 0, 10.0 * i + 5, 5] for i in range(6)], np.float32)
KEY = np.asarray(jax.random.key_data(jax.random.key(0)))


@dataclass(frozen=True)
class Beyond:
    """`call(array, n)` finds `count` entries, and has room for one less, or for as many where it is given `fits`."""

    call: Callable
    array: np.ndarray
    count: int
    fits: np.ndarray


def masked(operation, **options):
    return Beyond(lambda m: operation(m, capacity=4, **options), MASK, 5, FEW)


def valued(operation, **options):
    return Beyond(lambda x: operation(x, capacity=5, **options), SIX, 6, np.minimum(SIX, 5))


def numbered(operation):
    return Beyond(operation, np.int32(5), 5, np.int32(4))


def first(result):
    return result[0]


CASES = {
    "append": Beyond(lambda m: gm.append(gm.compact(SIX, m, capacity=6), SIX[:2]), MASK, 7, FEW),
    "arange": numbered(lambda n: gm.arange(n, capacity=4)),
    "argwhere": masked(gm.argwhere),
    "batched_nms": Beyond(
        lambda v: gm.batched_nms(BOXES, SIX, np.zeros(6, int), iou_threshold=0.5, capacity=4, valid=v), MASK, 5, FEW
    ),
    "bincount": Beyond(lambda x: gm.bincount(x, capacity=4), np.array([0, 4, 1]), 5, np.array([0, 3, 1])),
    "compact": Beyond(lambda m: gm.compact(SIX, m, capacity=4), MASK, 5, FEW),
    "flatnonzero": masked(gm.flatnonzero),
    "full": numbered(lambda n: gm.full(n, SIX, capacity=4)),
    "group_by": valued(lambda x, capacity: first(gm.group_by(x, capacity=capacity))),
    "intersect1d": valued(lambda x, capacity: gm.intersect1d(x, SIX, capacity=capacity)),
    "nms": Beyond(lambda v: gm.nms(BOXES, SIX, iou_threshold=0.5, capacity=4, valid=v), MASK, 5, FEW),
    "nonzero": masked(gm.nonzero),
    "one_hot": Beyond(lambda x: gm.one_hot(x, capacity=4), np.array([0, 4, 1]), 5, np.array([0, 3, 1])),
    "random_permutation": numbered(lambda n: gm.random_permutation(jax.random.wrap_key_data(KEY), n, capacity=4)),
    "random_subset": Beyond(lambda m: gm.random_subset(jax.random.wrap_key_data(KEY), m, capacity=4), MASK, 5, FEW),
    "remove_small_boxes": Beyond(lambda v: gm.remove_small_boxes(BOXES, 1.0, capacity=4, valid=v), MASK, 5, FEW),
    "repeat_interleave": Beyond(
        lambda r: gm.repeat_interleave(SIX[:2], r, capacity=4), np.array([2, 3]), 5, np.array([1, 3])
    ),
    "segment_ids": Beyond(lambda n: gm.segment_ids(n, capacity=4), np.array([2, 3]), 5, np.array([1, 3])),
    "setdiff1d": valued(lambda x, capacity: gm.setdiff1d(x, SIX[:0], capacity=capacity)),
    "setxor1d": valued(lambda x, capacity: gm.setxor1d(x, SIX[:0], capacity=capacity)),
    "split": Beyond(
        lambda n: jax.tree.map(lambda leaf: leaf[0], gm.split(SIX, n, capacity=4)),
        np.array([5, 1]),
        5,
        np.array([4, 2]),
    ),
    "take_slice": numbered(lambda n: gm.take_slice(SIX, 0, n, capacity=4)),
    "topk": numbered(lambda k: gm.topk(SIX, jnp.asarray(k), k_max=4)),
    "union1d": valued(lambda x, capacity: gm.union1d(x, SIX[:0], capacity=capacity)),
    "unique": valued(gm.unique),
    "unique_consecutive": Beyond(
        lambda x: gm.unique_consecutive(x, capacity=5), SIX, 6, np.array([1, 1, 2, 2, 3, 3], np.float32)
    ),
    "Padded.compact": Beyond(lambda m: gm.compact(SIX, SIX > 0, capacity=6).compact(m, capacity=4), MASK, 5, FEW),
    "Padded.concat": Beyond(
        lambda m: gm.compact(SIX, m, capacity=6).concat(gm.compact(SIX, FEW, capacity=2), capacity=5), MASK, 6, FEW
    ),
}
LIMITED = {
    "while_loop": lambda n: gm.while_loop(lambda i: i < n, lambda i: i + 1, 0, max_steps=4),
    "fori": lambda n: gm.fori(0, n, lambda i, total: total + i, 0, max_steps=4),
    "fixed_point": lambda n: gm.fixed_point(lambda x: jnp.minimum(x + 1.0, n + 0.0), jnp.zeros(()), max_steps=5),
}


def with_parameter(*wanted):
    members = {name: getattr(gm, name) for name in gm.__all__}
    members |= {f"Padded.{name}": member for name, member in vars(gm.Padded).items() if not name.startswith("_")}
    functions = {name: member for name, member in members.items() if inspect.isfunction(member)}
    return {name for name, member in functions.items() if set(wanted) & set(inspect.signature(member).parameters)}


def under_vmap(call):
    def one_lane(array):
        return jax.tree.map(lambda leaf: leaf[1], jax.jit(jax.vmap(call))(jnp.stack([array, array])))

    return one_lane


def exported(call):
    def again(array):
        graph = jax.export.export(jax.jit(call))(jnp.asarray(array)).serialize()
        return jax.export.deserialize(bytearray(graph)).call(jnp.asarray(array))

    return again


def out_of_range(ids):
    return gm.segment_sum(SIX, ids, num_segments=3)


def test_plain_ids_out_of_range_raise_since_a_sum_cannot_tell():
    ids = jnp.array([0, 2, 0, 1, 1, 2])
    assert gm.checked(jax.jit(out_of_range))(ids).tolist() == [5.0, 11.0, 5.0]
    for wrong in (3, -1):
        with pytest.raises(ValueError, match=r"1 rows have an id that is not in 0 \.\.\. 2"):
            gm.checked(jax.jit(out_of_range))(ids.at[4].set(wrong))
    padded = gm.Padded(SIX, MASK, 5)
    assert gm.segment_sum(padded, ids.at[2].set(99), num_segments=3).tolist() == [3.0, 11.0, 5.0]
    with pytest.raises(TypeError, match="give num_segments with it"):
        gm.segment_sum(SIX, ids)
    with pytest.raises(TypeError, match="leave it out"):
        gm.segment_sum(SIX, gm.segments(ids, num_segments=3), num_segments=3)


WAYS = {"eager": lambda call: call, "jit": jax.jit, "vmap": under_vmap, "export": exported}


def test_every_operation_with_a_capacity_is_here():
    assert with_parameter("capacity", "k_max") | {"append"} == set(CASES)
    assert with_parameter("max_steps") == set(LIMITED)


def seen(result):
    return int(result.count), bool(result.overflow)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CASES)
def test_one_beyond_the_capacity_is_seen(name, way):
    case = CASES[name]
    count, overflow = seen(WAYS[way](case.call)(case.array))
    assert count == case.count
    assert overflow
    assert not seen(WAYS[way](case.call)(case.fits))[1]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", LIMITED)
def test_a_loop_that_is_cut_short_is_seen(name, way):
    run = WAYS[way](LIMITED[name])
    assert bool(run(jnp.int32(5))[1])
    assert not bool(run(jnp.int32(4))[1])


def test_every_collection_comes_back_from_export_as_itself():
    def call(x):
        stack = gm.Stack.empty(jnp.float32(0), capacity=2).push(x[0])
        return gm.topk(x, 2, k_max=3), gm.segments(x.astype(int), num_segments=4, on_overflow="nan"), stack

    for ours, back in zip(call(jnp.asarray(SIX)), exported(call)(SIX), strict=True):
        assert type(back) is type(ours)
        assert jax.tree.structure(back) == jax.tree.structure(ours)
        jax.tree.map(np.testing.assert_array_equal, back, ours)
