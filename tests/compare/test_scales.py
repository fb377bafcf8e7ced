"""What an error is a fraction of: neither another input's huge outputs nor a mask's fill hide one."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check


def parity(reference, port, **settings):
    case = Case(
        name="small", summary="", reference=reference, model=port, modes=("inference",), adversarial=(), **settings
    )
    return check(case, seed=0).parity[0]


class Triples(torch.nn.Module):
    def forward(self, x):
        return 3 * x


class PortOfTriples(nnx.Module):
    shift = 0.0

    def __init__(self, rngs):
        pass

    def __call__(self, x):
        return 3 * x + self.shift


def test_an_edge_input_of_huge_numbers_hides_no_error_on_the_others():
    inputs = {
        "inputs": lambda rng: (rng.standard_normal(200),),
        "edge_inputs": {"huge": lambda rng: (1e30 * rng.standard_normal(200),)},
    }
    assert parity(Triples, PortOfTriples, **inputs).equal
    assert not parity(Triples, type("Shifted", (PortOfTriples,), {"shift": 1e-3}), **inputs).equal


class MaskedScores(torch.nn.Module):
    fill: ClassVar[float] = -1e9

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.fc(x).masked_fill(x > 1, self.fill)


class AddedMask(MaskedScores):
    def forward(self, x):
        return self.fc(x) + torch.where(x > 1, self.fill, 0.0)


class PortOfMasked(nnx.Module):
    fill, added, shift, rounded = -1e9, False, 0.0, False

    def __init__(self, rngs):
        self.fc = nnx.Linear(8, 8, rngs=rngs)

    def __call__(self, x):
        y = self.fc(x) + self.shift
        if self.rounded and y.dtype == jnp.float32:
            y = y.astype(jnp.bfloat16).astype(jnp.float32)
        return y + jnp.where(x > 1, self.fill, 0.0) if self.added else jnp.where(x > 1, self.fill, y)


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("fill", [-1e4, -1e9, float(np.finfo(np.float32).min)])
def test_what_a_mask_writes_hides_no_error_in_the_rest(fill, added):
    reference = type("Reference", (AddedMask if added else MaskedScores,), {"fill": fill})

    def verdict(**wrong):
        port = type("Port", (PortOfMasked,), {"fill": fill, "added": added, **wrong})
        return parity(reference, port, inputs=lambda rng: (rng.standard_normal((16, 8)).astype(np.float32),))

    assert verdict().passed
    assert not verdict(shift=1e-6).equal
    assert verdict(rounded=True).precise is False


class LostDigits(torch.nn.Module):
    """A difference by a step of 1e-8 has eight digits left in float64."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(64, 64)

    def forward(self, x):
        return (self.fc(x + 1e-8) - self.fc(x)) / 1e-8


class PortOfLostDigits(nnx.Module):
    shift = 0.0

    def __init__(self, rngs):
        self.fc = nnx.Linear(64, 64, rngs=rngs)

    def __call__(self, x):
        first, second = (3 * (x @ (self.fc.kernel[...] / 3)) for x in (x + 1e-8, x))  # other rounding
        return (first - second) / 1e-8 + self.shift


def test_rounding_that_the_reference_has_in_float64_as_well_is_no_error_and_more_than_that_is():
    inputs = {"inputs": lambda rng: (rng.standard_normal((64, 64)),)}
    right = parity(LostDigits, PortOfLostDigits, **inputs)
    assert right.equal
    assert any("rounding alone" in note for note in right.notes)
    for shift in (1e-5, 2e-6):
        assert not parity(LostDigits, type("Shifted", (PortOfLostDigits,), {"shift": shift}), **inputs).equal


def test_an_error_as_small_as_that_is_one_where_the_reference_has_all_its_digits():
    inputs = {"inputs": lambda rng: (rng.standard_normal(200),)}
    assert not parity(Triples, type("Shifted", (PortOfTriples,), {"shift": 1e-8}), **inputs).equal


class Chosen(torch.nn.Module):
    """Which of two is larger rounding decides, and so how large the output is."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(8, 8)

    def forward(self, x):
        return x + (self.fc(x) > self.fc(x)).to(x.dtype)


class PortOfChosen(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(8, 8, rngs=rngs)

    def __call__(self, x):
        return x + (self.fc(x) > self.fc(x)) + 1e-8


def test_what_rounding_decides_forgives_no_error():
    assert not parity(Chosen, PortOfChosen, inputs=lambda rng: (rng.standard_normal((64, 8)),)).equal
