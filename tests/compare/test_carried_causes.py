"""Parameters that a port holds with other numbers, or in another order, than the reference."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check

from graphmode.weights import Rule

WIDTH = 8
ORDER = np.array([3, 0, 5, 1, 7, 2, 6, 4])


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, 3)

    def forward(self, x):
        return self.two(torch.tanh(self.one(x)))


class Port(nnx.Module):
    def __init__(self, rngs):
        self.one, self.two = nnx.Linear(WIDTH, WIDTH, rngs=rngs), nnx.Linear(WIDTH, 3, rngs=rngs)

    def __call__(self, x):
        return self.two(jnp.tanh(self.one(x)))


class Carried:
    """A linear layer's weight, transposed, with its inputs by a function's order."""

    def __init__(self, order, back):
        self.order, self.back = order, back

    def to_model(self, weight):
        return [weight[:, self.order].T]

    def to_reference(self, kernel):
        return [kernel.T[:, self.back]]

    gradient_to_reference = to_reference


def case(**changes):
    usual = {
        "name": "c",
        "summary": "s",
        "reference": Reference,
        "model": Port,
        "inputs": lambda rng: (rng.standard_normal((5, WIDTH)),),
        "adversarial": (),
    }
    return Case(**{**usual, **changes})


@pytest.mark.parametrize("back", [np.argsort(ORDER), np.arange(WIDTH)], ids=["there and back", "there alone"])
def test_an_order_that_a_transform_makes_is_told(back):
    report = check(case(weights=(Rule("one.weight", "one.kernel", Carried(ORDER, back)),)), hasty=True)
    (cause,) = report.divergences[0].causes
    assert cause.id == "pieces-order"
    assert cause.says == "has the elements of weight along axis 1 in the order 3, 0, 5, 1, 7, 2 ..."
    assert report.divergences[0].module == "one"


class Scaled(Carried):
    def __init__(self):
        super().__init__(slice(None), slice(None))

    def to_model(self, weight):
        weight = weight.copy()
        weight[1, 2] = 0.5
        return [weight.T]


def test_numbers_that_a_transform_changes_are_told():
    (cause,) = check(case(weights=(Rule("one.weight", "one.kernel", Scaled()),)), hasty=True).divergences[0].causes
    assert cause.id == "weight-values"
    assert cause.says.startswith("holds other numbers in weight than the reference: 0.5 for ")
    assert cause.says.endswith(" at [1, 2]")


def test_a_transform_that_is_right_is_no_cause_of_another_fault():
    class Wrong(Port):
        def __call__(self, x):
            return self.two(jnp.tanh(jnp.sin(self.one(x)) * 1.2345))

    report = check(
        case(model=Wrong, weights=(Rule("one.weight", "one.kernel", Carried(slice(None), slice(None))),)), hasty=True
    )
    assert report.divergences[0].module == ""
    assert not [cause for each in report.divergences for cause in each.causes]
