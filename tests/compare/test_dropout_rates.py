"""Rates of dropout beside each other, and verdicts on tensors that are too small for one on their rounding."""

import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check

from graphmode import nn

WIDTH = 5


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.drop = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Dropout(0.1)

    def forward(self, x):
        return self.drop(self.fc(x))


def port(make):
    class Port(nnx.Module):
        def __init__(self, rngs: nnx.Rngs):
            self.fc, self.drop = nnx.Linear(WIDTH, WIDTH, rngs=rngs), make(rngs)

        def __call__(self, x):
            return self.drop(self.fc(x))

    return Port


class ByFunction(Reference):
    def forward(self, x):
        return torch.nn.functional.dropout(self.fc(x), 0.1, self.training)


class Twice(Reference):
    def forward(self, x):
        return self.again(super().forward(x))

    def __init__(self):
        super().__init__()
        self.again = torch.nn.Dropout(0.1)


def warnings(make, rows=40, reference=Reference, **fields):
    case = Case(
        name="c",
        summary="s",
        reference=reference,
        model=port(make),
        inputs=lambda rng: (rng.standard_normal((rows, WIDTH)),),
        adversarial=(),
        **fields,
    )
    report = check(case)
    assert report.passed
    return report.parity[0].warnings


def kept(rngs):
    return nnx.Dropout(0.9, rngs=rngs)


@pytest.mark.parametrize("make", [lambda rngs: nnx.Dropout(0.1, rngs=rngs), lambda rngs: nn.Dropout(0.1, rngs=rngs)])
def test_the_same_rate_is_no_matter(make):
    assert warnings(make) == []


@pytest.mark.parametrize(("make", "told"), [(kept, "0.9"), (lambda rngs: lambda x: x, "none")])
def test_another_rate_is_told(make, told):
    (warning,) = warnings(make)
    assert f"the rates are 0.1 in the reference, and {told} in the port" in warning


def test_a_rate_of_a_function_is_told_as_one_of_a_module_is():
    assert warnings(lambda rngs: nnx.Dropout(0.1, rngs=rngs), reference=ByFunction) == []
    (warning,) = warnings(kept, reference=ByFunction)
    assert "the rates are 0.1 in the reference, and 0.9 in the port" in warning


def test_where_modules_alone_drop_their_number_is_told():
    (warning,) = warnings(lambda rngs: nn.Dropout(0.1, rngs=rngs), reference=Twice)
    assert "the rates are 0.1 (2 times) in the reference, and 0.1 in the port" in warning


class Again(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.drop = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x):
        return self.drop(self.drop(x))


def test_one_that_is_called_twice_is_as_good_as_two():
    assert warnings(Again, reference=Twice) == []


def test_where_nothing_is_trained_dropout_is_no_matter():
    assert warnings(kept, modes=("inference",)) == []


def test_a_verdict_on_nothing_but_small_tensors_is_told_as_such():
    same = warnings(lambda rngs: nn.Dropout(0.1, rngs=rngs), rows=2)
    assert [warning.startswith("the precision of no tensor was judged") for warning in same] == [True]


def test_it_shows_in_the_text():
    case = Case(
        name="c",
        summary="s",
        reference=torch.nn.ReLU,
        model=lambda rngs: nn.ReLU(),
        inputs=lambda rng: (rng.standard_normal((2, 3)),),
        adversarial=(),
    )
    assert "equal, precision not judged" in str(check(case))
