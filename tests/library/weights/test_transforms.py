"""Transforms are inverses to the bit, and their gradients are the transposes of their maps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from graphmode.weights import (
    CONV,
    IDENTITY,
    LINEAR,
    ConvTransposeKernel,
    Counter,
    GruBiases,
    LinearGeneral,
    Permute,
    Scalar,
    SplitGates,
    SumBiases,
)

SIDES = {"min_side": 1, "max_side": 4}


def bits(shape) -> st.SearchStrategy[np.ndarray]:
    """float32 arrays of any bits, NaN payloads among them."""
    return hnp.arrays(np.uint32, shape).map(lambda a: a.view(np.float32))


REVERSIBLE = {
    "Identity": (IDENTITY, hnp.array_shapes(min_dims=0, **SIDES)),
    "Permute": (Permute((2, 0, 1)), hnp.array_shapes(min_dims=3, max_dims=3, **SIDES)),
    "Linear": (LINEAR, hnp.array_shapes(min_dims=2, max_dims=2, **SIDES)),
    "ConvKernel": (CONV, hnp.array_shapes(min_dims=3, max_dims=5, **SIDES)),
    "ConvTransposeKernel": (ConvTransposeKernel(), hnp.array_shapes(min_dims=3, max_dims=5, **SIDES)),
    "ConvTransposeKernel, flipped": (ConvTransposeKernel(flipped=True), hnp.array_shapes(min_dims=3, **SIDES)),
    "LinearGeneral": (LinearGeneral((2, 3), (4, 5)), st.just((20, 6))),
    "LinearGeneral, bias": (LinearGeneral((), (4, 5)), st.just((20,))),
    "SplitGates": (SplitGates(3, LINEAR), st.tuples(st.just(6), st.integers(1, 4))),
    "Scalar": (Scalar(), st.just((1,))),
}


@pytest.mark.parametrize(("transform", "shapes"), REVERSIBLE.values(), ids=REVERSIBLE)
def test_the_way_back_gives_the_same_bits(transform, shapes):
    @given(shapes.flatmap(bits))
    def check(array):
        (back,) = transform.to_reference(*transform.to_model(array))
        assert back.shape == array.shape
        assert back.tobytes() == array.tobytes()

    check()


TRANSPOSED = REVERSIBLE | {"SumBiases": (SumBiases(4), st.just((8,)))}


@pytest.mark.parametrize(("transform", "shapes"), TRANSPOSED.values(), ids=TRANSPOSED)
def test_gradients_go_by_the_transpose(transform, shapes):
    @given(shapes, st.integers(0, 1000))
    def check(shape, seed):
        generator = np.random.default_rng(seed)
        arrays = [generator.standard_normal(shape) for _ in range(1 + isinstance(transform, SumBiases))]
        values = transform.to_model(*arrays)
        cotangents = [generator.standard_normal(value.shape) for value in values]
        gradients = transform.gradient_to_reference(*cotangents)
        inner = sum(np.vdot(a, b) for a, b in zip(values, cotangents, strict=True))
        np.testing.assert_allclose(sum(np.vdot(a, b) for a, b in zip(arrays, gradients, strict=True)), inner)

    check()


def test_sums_of_biases_go_back_as_the_sum_and_zero():
    one, other = np.arange(6.0), np.arange(6.0) * 10
    total, zero = SumBiases(3).to_reference(*SumBiases(3).to_model(one, other))
    np.testing.assert_array_equal(total, one + other)
    np.testing.assert_array_equal(zero, np.zeros(6))


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


REFUSED = {
    "Permute, rank": (LINEAR, [zeros(3)]),
    "ConvKernel, rank": (CONV, [zeros(2, 3)]),
    "ConvTransposeKernel, rank": (ConvTransposeKernel(), [zeros(2, 3)]),
    "LinearGeneral, transposed": (LinearGeneral((4,), (2, 3)), [zeros(4, 6)]),
    "LinearGeneral, bias of two axes": (LinearGeneral((), (2, 3)), [zeros(2, 3)]),
    "SplitGates, indivisible": (SplitGates(4, LINEAR), [zeros(6, 2)]),
    "SplitGates, no axis": (SplitGates(4, LINEAR), [zeros()]),
    "SumBiases, indivisible": (SumBiases(4), [zeros(6), zeros(6)]),
    "SumBiases, one broadcast": (SumBiases(1), [zeros(6), zeros(1)]),
    "SumBiases, two dtypes": (SumBiases(1), [zeros(6), zeros(6, dtype=np.float16)]),
    "GruBiases, hidden bias of the new gate": (GruBiases(), [zeros(6), np.ones(6, np.float32)]),
    "Counter, too large": (Counter(), [np.array(2**31)]),
    "Counter, no integer": (Counter(), [np.array(1.5)]),
}


@pytest.mark.parametrize(("transform", "arrays"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_meant_is_a_value_error(transform, arrays):
    with pytest.raises(ValueError, match=r"."):
        transform.to_model(*arrays)


@pytest.mark.parametrize("transform", [case[0] for case in TRANSPOSED.values()], ids=TRANSPOSED)
def test_transforms_can_be_metadata(transform):
    assert hash(transform) == hash(transform)
