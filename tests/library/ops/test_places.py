"""Prefix sums over masks against `numpy.cumsum`, at the lengths where words and rows of words end."""

import jax
import numpy as np
import pytest

from graphmode.ops.selection.places import in_order_of_groups, picked_before, places, prefix_sum


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 1023, 1024, 4095, 4096, 4097, 140_000])
@pytest.mark.parametrize("share", [0.0, 0.03, 0.5, 1.0])
def test_each_entry_has_the_place_that_a_stable_sort_gives_it(size, share):
    mask = np.random.default_rng(size).random(size) < share
    target, count = jax.jit(places)(mask)
    wanted = np.empty(size, np.int32)
    wanted[np.argsort(~mask, kind="stable")] = np.arange(size)
    np.testing.assert_array_equal(target, wanted)
    before, _ = picked_before(mask)
    np.testing.assert_array_equal(before, np.cumsum(mask) - mask)
    assert int(count) == mask.sum()
    assert target.dtype == before.dtype == count.dtype == np.int32


@pytest.mark.parametrize("size", [0, 1, 128, 129, 5000])
def test_prefix_sums(size):
    numbers = np.random.default_rng(0).integers(-9, 9, size).astype(np.int32)
    np.testing.assert_array_equal(prefix_sum(numbers), np.cumsum(numbers))


def test_a_mask_beyond_int32_is_refused():
    with pytest.raises(ValueError, match="int32"):
        jax.eval_shape(places, jax.ShapeDtypeStruct((2**31 - 1,), np.bool_))


@pytest.mark.parametrize("size", [0, 1, 33, 1000, 5000])
@pytest.mark.parametrize("groups", [1, 9, 300])
def test_rows_stand_by_group_as_a_stable_sort_has_them(size, groups):
    ids = np.random.default_rng(size).integers(0, groups, size).astype(np.int32)
    place, order = jax.jit(in_order_of_groups, static_argnums=1)(ids, groups)
    wanted = np.argsort(ids, kind="stable")
    np.testing.assert_array_equal(order, wanted)
    np.testing.assert_array_equal(np.asarray(place)[wanted], np.arange(size))
    assert place.dtype == order.dtype == np.int32
