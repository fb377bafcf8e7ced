"""The verdict arithmetic, by examples worked out by hand and by properties."""

import ml_dtypes
import numpy as np
import pytest
from graphmode.compare.parity.precision import gross_fault
from graphmode.compare.parity.yardstick import (
    HALF_ULP,
    difference,
    error_ratio,
    filled,
    magnitude,
    rms,
    rms_error,
)
from hypothesis import given
from hypothesis import strategies as st

NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("port", "reference", "equal"),
    [
        ([1.0, 2.0], [1.0, 2.0], True),
        ([1.0, 2.0 + 1e-11], [1.0, 2.0], True),
        ([1.0, 2.0 + 1e-9], [1.0, 2.0], False),
        ([NAN, 2.0], [NAN, 2.0], True),
        ([NAN, 2.0], [1.0, 2.0], False),
        ([1.0, 2.0], [NAN, 2.0], False),
        ([INF, 2.0], [INF, 2.0], True),
        ([-INF, 2.0], [INF, 2.0], False),
        ([0.0, 0.0], [0.0, 0.0], True),
        ([-0.0, 0.0], [0.0, 0.0], True),
        ([1e-30, 0.0], [0.0, 0.0], False),
        ([], [], True),
    ],
)
def test_difference_of_floats(port, reference, equal):
    assert difference(np.array(port), np.array(reference)).equal is equal


def test_difference_points_at_the_largest_error():
    found = difference(np.array([[1.0, 5.0], [3.0, 4.0]]), np.array([[1.0, 2.0], [3.0, 4.5]]))
    assert (found.index, found.port, found.reference) == ((0, 1), "5", "2")
    assert found.error == pytest.approx(3 / 4.5)


LEAST = float(np.finfo(np.float32).min)


@pytest.mark.parametrize("fill", [-1e9, -1e4, 1e6, -1e30, LEAST, float(np.finfo(np.float64).min)])
@pytest.mark.parametrize("count", [1, 3])
def test_what_is_filled_hides_nothing_of_the_rest(fill, count):
    reference = np.concatenate([np.full(count, fill), np.linspace(-5e-3, 9e-3, 80)])
    port = reference.copy()
    assert difference(port, reference).equal
    port[-1] += 1e-8
    assert not difference(port, reference).equal
    assert magnitude(reference) == 9e-3
    assert rms(reference) == pytest.approx(np.sqrt(np.square(reference[count:]).mean()))
    assert rms_error(port, reference) == pytest.approx(1e-8 / np.sqrt(80))
    port[-1] = reference[-1]
    port[0] = 0.999 * fill
    assert difference(port, reference, 1e4).error == pytest.approx(1e-3)


def test_a_mask_that_is_added_hides_nothing_of_the_rest_and_may_round():
    scores = np.random.default_rng(0).standard_normal(80)
    reference = scores + np.where(np.arange(80) < 9, -1e9, 0.0)
    port = reference.copy()
    port[3] += 2.4e-7  # two of its ulps
    assert difference(port, reference).equal
    port[70] += 1e-9
    found = difference(port, reference)
    assert (found.equal, found.index) == (False, (70,))


@pytest.mark.parametrize(
    "array",
    [
        [1e9, 9.3e8, 0.5],
        [1.3e9, 0.5],
        [1e9, 1e9, 1e-6],  # no larger than what rounding leaves of it
        [1e9, -1e9, 0.5],
        [1e9, 1e9, 0.0],
        [1e3, 1e3, 1e-5],
        [NAN, INF, 3e3],
        [],
    ],
)
def test_what_is_not_filled(array):
    assert filled(np.array(array)) is None


@pytest.mark.parametrize(
    ("port", "reference", "word"),
    [
        (np.zeros((2, 1)), np.zeros((1, 2)), "shape"),
        (np.zeros(2, np.int32), np.zeros(2), "dtype"),
        (np.zeros(2, bool), np.zeros(2, np.int64), "dtype"),
        (np.array([1, 2]), np.array([1, 3]), "1 of 2 elements differ"),
    ],
)
def test_difference_that_no_tolerance_excuses(port, reference, word):
    found = difference(port, reference)
    assert found.error == np.inf
    assert word in found.note


def test_integers_of_another_width_are_the_same_kind():
    assert difference(np.array([1, 2], np.int32), np.array([1, 2], np.int64)).equal
    assert difference(np.array([1, 2], np.uint8), np.array([1, 2], np.int64)).equal


@given(st.floats(1e-3, 1e3), st.floats(1e-12, 1.0))
def test_the_error_is_relative_to_the_scale(scale, relative):
    reference = np.linspace(-1, 1, 7) * scale
    port = reference.copy()
    port[3] += relative * scale
    assert difference(port, reference).error == pytest.approx(relative, rel=1e-3)


def test_error_ratio_compares_errors_and_not_values():
    rng = np.random.default_rng(0)
    reference = [rng.standard_normal(1000) for _ in range(3)]

    def noisy(size):
        return [r + size * rng.standard_normal(1000) for r in reference]

    assert error_ratio(noisy(3e-6), noisy(1e-6), reference) == pytest.approx(3, rel=0.1)
    assert error_ratio(reference, noisy(1e-6), reference) == 0


def test_an_exact_pytorch_does_not_make_roundings_look_wrong():
    reference = [np.random.default_rng(0).standard_normal(1000)]
    rounded = [reference[0].astype(np.float32)]
    assert 0 < error_ratio(rounded, reference, reference) < 1
    assert rms_error(rounded[0], reference[0]) < 2 * HALF_ULP["float32"] * magnitude(reference[0])


def test_one_flip_in_a_gradient_does_not_accuse_and_a_steady_error_does():
    rng = np.random.default_rng(0)
    reference = [rng.standard_normal(100) for _ in range(3)]
    torch = [r + 1e-7 * rng.standard_normal(100) for r in reference] * 3
    flipped = [reference[0] + 1e-2, reference[1] + 1e-7, reference[2] + 1e-2]
    steady = [r + 1e-5 * rng.standard_normal(100) for r in reference]
    assert error_ratio(flipped, torch, reference, kinked=True) < 5
    assert error_ratio(steady, torch, reference, kinked=True) > 50
    assert error_ratio(flipped, torch[:3], reference) > 1e3  # an output has no kink to excuse it


def test_what_is_not_judged():
    small = [np.zeros(63)]
    assert error_ratio(small, small, small) is None
    integers = [np.zeros(100, np.int32)]
    assert error_ratio(integers, integers, integers) is None


def test_bfloat16_counts_as_floating():
    a = np.ones(3, ml_dtypes.bfloat16)
    assert difference(a, a).equal
    assert magnitude(a) == 1


@pytest.mark.parametrize(
    ("port", "torch", "reference", "fault"),
    [
        ([1.0, NAN], [1.0, 2.0], [1.0, 2.0], True),
        ([1.0, NAN], [1.0, NAN], [1.0, NAN], False),
        ([1.0, INF], [1.0, INF], [1.0, 1e39], False),
        ([1, 3], [1, 2], [1, 2], True),
        ([1, 3], [1, 1], [1, 2], False),  # PyTorch's own rounding misses it as well
        ([1.0], [1.0, 2.0], [1.0, 2.0], True),
    ],
)
def test_gross_faults(port, torch, reference, fault):
    assert bool(gross_fault(np.array(port), np.array(torch), np.array(reference))) is fault
