"""What the first weights hide shows with others."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from graphmode.compare.draw import random_inputs

LABEL = "random 0, other weights"
FIRST, SECOND = 1.54, 0.66  # what PyTorch draws with the seeds 0 and 1, about
BETWEEN = 1.0


class Gated(torch.nn.Module):
    """Doubles what it is given where a parameter is small, which it is with the second seed alone."""

    def __init__(self):
        super().__init__()
        self.gate = torch.nn.Parameter(torch.randn(()))

    def small(self, x):
        return 2 * x

    def forward(self, x):
        return self.gate * (self.small(x) if self.gate < BETWEEN else x)


class Undefined(Gated):
    def small(self, x):
        return x / 0


class Failing(Gated):
    def small(self, x):
        raise ValueError("not for small ones")


class Fixed(Gated):
    """Draws nothing."""

    def __init__(self):
        super().__init__()
        torch.nn.init.constant_(self.gate, FIRST)


class Port(nnx.Module):
    factor, traces = 2, 0

    def __init__(self, rngs):
        self.gate = nnx.Param(jnp.zeros(()))

    def __call__(self, x):
        type(self).traces += 1
        return self.gate[...] * jnp.where(self.gate[...] < BETWEEN, self.factor * x, x)


class Thrice(Port):
    factor = 3


def case(reference=Gated, port=Port, **fields):
    return Case(
        name="c",
        summary="s",
        reference=reference,
        model=port,
        inputs=lambda rng: (rng.standard_normal((4, 3)),),
        modes=("inference",),
        adversarial=(),
        **fields,
    )


def asked(report):
    return [label for label in report.parity[0].inputs if label.endswith("other weights")]


def test_a_branch_that_the_first_weights_do_not_take_is_seen():
    right = check(case())
    assert right.passed, right
    assert asked(right) == [LABEL]
    wrong = check(case(port=Thrice))
    assert not wrong.equal
    (each,) = wrong.divergences
    assert each.input == LABEL
    assert [cause.id for cause in each.causes] == ["scale"], each.causes


def test_no_graph_is_compiled_for_it():
    before = Port.traces
    check(case(), draws=1)
    whole, before = Port.traces - before, Port.traces
    check(case(reference=Fixed), draws=1)
    assert whole == Port.traces - before


@pytest.mark.parametrize("reference", [Undefined, Failing, Fixed])
def test_what_is_not_defined_there_or_the_same_is_not_asked(reference):
    report = check(case(reference, Thrice))
    assert report.passed, report
    assert not asked(report)


def test_weights_of_the_cases_own_stay():
    report = check(case(port=Thrice, pretrained=lambda: {"gate": torch.tensor(FIRST)}))
    assert report.passed, report
    assert not asked(report)


class Averaged(torch.nn.Module):
    """Answers by an average of its weights, which begins as a copy of them."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3, 3))
        self.register_buffer("average", self.weight.detach().clone())

    def forward(self, x):
        if self.training:
            self.average.mul_(0.9).add_(self.weight.detach(), alpha=0.1)
            return x @ self.weight
        return x @ self.average


class PortOfAveraged(nnx.Module):
    share = 0.1

    def __init__(self, rngs):
        self.weight = nnx.Param(jnp.zeros((3, 3)))
        self.average = nnx.BatchStat(jnp.zeros((3, 3)))
        self.training = True

    def __call__(self, x):
        if self.training:
            now = jax.lax.stop_gradient(self.weight[...])
            self.average[...] = (1 - self.share) * self.average[...] + self.share * now
            return x @ self.weight[...]
        return x @ self.average[...]


class OtherShare(PortOfAveraged):
    share = 0.2


@pytest.mark.parametrize(("port", "is_right"), [(PortOfAveraged, True), (OtherShare, False)])
def test_an_average_of_the_weights_is_seen_beside_others(port, is_right):
    case = Case(
        name="c",
        summary="s",
        reference=Averaged,
        model=port,
        inputs=lambda rng: (rng.standard_normal((4, 3)),),
        adversarial=(),
    )
    report = check(case)
    assert report.passed == is_right
    wrong = {(t.name, t.input) for parity in report.parity for t in parity.tensors if not t.equal}
    assert is_right or ("average", LABEL) in wrong


class Leaky(torch.nn.Module):
    """A gate that is above zero at first, and below as soon as it is trained."""

    def __init__(self):
        super().__init__()
        self.fc, self.gate = torch.nn.Linear(3, 3), torch.nn.Parameter(torch.full((3,), 0.001))

    def forward(self, x):
        return self.fc(x) * torch.where(self.gate > 0, self.gate, 0.1 * self.gate)


class OtherSlope(nnx.Module):
    def __init__(self, rngs):
        self.fc, self.gate = nnx.Linear(3, 3, rngs=rngs), nnx.Param(jnp.zeros(3))

    def __call__(self, x):
        gate = self.gate[...]
        return self.fc(x) * jnp.where(gate > 0, gate, 0.2 * gate)


def test_the_weights_after_steps_are_asked_before_the_optimizer_is_accused():
    case = Case(
        name="c",
        summary="s",
        reference=Leaky,
        model=OtherSlope,
        inputs=lambda rng: (rng.standard_normal((4, 3)),),
        optimizer=(lambda parameters: torch.optim.SGD(parameters, lr=0.1), optax.sgd(0.1)),
        adversarial=(),
    )
    report = check(case)
    assert report.divergences, report
    assert all(each.input.endswith(", after steps of training") for each in report.divergences), report
    assert "scale" in {cause.id for each in report.divergences for cause in each.causes}


class Cancels(torch.nn.Module):
    """Whose terms cancel but for their rounding where it is given one, as it is on some draws."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3))

    def forward(self, x, y, s):
        scale = torch.exp(self.weight)
        return scale * x + scale * y - scale * (x + y) * s


class PortOfCancels(nnx.Module):
    def __init__(self, rngs):
        self.weight = nnx.Param(jnp.zeros(3))

    def __call__(self, x, y, s):
        return jnp.exp(self.weight[...]) * ((x + y) - (x + y) * s)


def test_what_cancels_on_one_draw_is_judged_beside_the_others():
    def inputs(rng):
        return *rng.standard_normal((2, 4, 3)), np.float64(rng.integers(1, 3))

    made = Case(name="a", summary="s", reference=Cancels, model=PortOfCancels, inputs=inputs, adversarial=())
    drawn = [random_inputs(made, 0, i)[2] for i in range(3)]
    assert drawn[0] == 1 < max(drawn)
    report = check(made)
    assert report.passed, report
    assert asked(report) == [LABEL]


class Scheduled(torch.nn.Module):
    """Reads a table that it computes, and one that it draws."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3))
        self.register_buffer("table", torch.linspace(0, 1, 3))
        self.register_buffer("noise", torch.randn(3))
        self.register_buffer("count", torch.ones(()))

    def forward(self, x):
        return x * self.weight + self.table + self.noise * self.count


class PortOfScheduled(nnx.Module):
    table, count = (0.0, 0.5, 1.0), 1.0

    def __init__(self, rngs):
        self.weight = nnx.Param(jnp.zeros(3))
        self.table, self.noise = nnx.BatchStat(jnp.array(self.table)), nnx.BatchStat(jnp.arange(3.0))
        self.count = nnx.BatchStat(jnp.array(self.count))

    def __call__(self, x):
        return x * self.weight[...] + self.table[...] + self.noise[...] * self.count[...]


class OtherTable(PortOfScheduled):
    table = (0.0, 0.25, 0.75)


class OtherCount(PortOfScheduled):
    count = 0.0


class Placeholder(PortOfScheduled):
    table = (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("port", "told"),
    [
        (PortOfScheduled, ""),
        (Placeholder, ""),
        (OtherTable, "builds table (0.25 for 0.5 at [1])"),
        (OtherCount, "builds count (0 for 1)"),
    ],
)
def test_a_buffer_that_the_port_builds_otherwise_is_told(port, told):
    report = check(case(Scheduled, port))
    assert report.passed, report
    found = [each for each in report.parity[0].warnings if "with other values than the reference" in each]
    assert len(found) == bool(told)
    assert all(told in each for each in found), found
