"""One value for the bits of an array, wherever it lies; another where a bit has changed."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from torch_loops import in_double

from graphmode.training import checksums

DTYPES = ["float32", "float16", "bfloat16", "float64", "int8", "int64", "uint32", "bool", "complex64", "complex128"]
DTYPES += ["float8_e4m3fn", "int4"]


def sums_of(array):
    on_device = int(checksums.on_device(jnp.asarray(array)))
    assert checksums.on_host_memory(array) == on_device
    assert checksums.checksums({"x": jnp.asarray(array)}) == {"x": on_device}
    return on_device


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_bit_counts_on_host_and_device(dtype):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    array = np.random.default_rng(0).integers(0, 2, (3, 4, 5)).astype(kind)
    with in_double():
        before = sums_of(array)
        if dtype == "int4":
            array[1, 2, 3] += 1
            assert sums_of(array) != before
            return
        for byte in range(kind.itemsize):
            for bit in range(1 if dtype == "bool" else 8):
                changed = array.copy()
                changed.view(np.uint8).reshape(-1)[7 * kind.itemsize + byte] ^= 1 << bit
                assert sums_of(changed) != before
                assert not np.array_equal(changed.view(np.uint8), array.view(np.uint8))
        moved = array.copy()
        moved[0], moved[1] = array[1], array[0]
        assert sums_of(moved) != before


def test_numbers_that_are_equal_or_not_are_told_by_their_bits():
    zero, minus = np.zeros(3, np.float32), -np.zeros(3, np.float32)
    assert sums_of(zero) != sums_of(minus)
    quiet, other = (np.array([bits], np.uint32).view(np.float32) for bits in (0x7FC00000, 0x7FC00001))
    assert sums_of(quiet) != sums_of(other)
    assert sums_of(np.array(1.5, np.float32)) == sums_of(np.array([1.5], np.float32))


def test_arrays_of_more_than_a_chunk():
    array = np.random.default_rng(0).normal(size=(3, checksums.CHUNK // 2 + 5)).astype(np.float32)
    before = sums_of(array)
    array[2, -1] += 1
    assert sums_of(array) != before
    assert sums_of(array.T.copy()) != sums_of(array)


def test_keys_and_what_has_no_elements():
    key = jax.random.key(3)
    found = checksums.checksums({"key": key, "none": jnp.zeros((0, 2)), "data": jax.random.key_data(key)})
    assert found.keys() == {"key", "data"}
    assert found["key"] == found["data"]
