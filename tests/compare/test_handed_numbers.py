"""Numbers that modules are handed as arguments, such as the time of a step."""

import jax
import jax.numpy as jnp
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check

WIDTH, STEPS = 4, 3


class Slope(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH + 1, WIDTH)

    def forward(self, t, x, scale=1.0):
        return torch.tanh(self.fc(torch.cat([x, torch.full_like(x[:, :1], t)], 1))) * scale


class Flow(torch.nn.Module):
    """Two slopes in each step, the second half a step later."""

    def __init__(self):
        super().__init__()
        self.slope = Slope()

    def forward(self, x):
        for step in range(STEPS):
            middle = x + 0.5 / STEPS * self.slope(step / STEPS, x)
            x = x + 1 / STEPS * self.slope((step + 0.5) / STEPS, middle, scale=2.0)
        return x


class SlopePort(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(WIDTH + 1, WIDTH, rngs=rngs)

    def __call__(self, t, x, scale=1.0):  # the scale divides here
        return jnp.tanh(self.fc(jnp.concatenate([x, jnp.full_like(x[:, :1], t)], 1))) / scale


class FlowPort(nnx.Module):
    later, order = 0.5, 1.0

    def __init__(self, rngs):
        self.slope = SlopePort(rngs)

    def step(self, x, step):
        middle = x + self.order * 0.5 / STEPS * self.slope(step / STEPS, x)
        return x + 1 / STEPS * self.slope((step + self.later) / STEPS, middle, scale=0.5)

    def __call__(self, x):
        for step in range(STEPS):
            x = self.step(x, step)
        return x


class Scanned(FlowPort):
    def __call__(self, x):
        return jax.lax.scan(lambda x, step: (self.step(x, step), None), x, jnp.arange(STEPS))[0]


class SameTime(FlowPort):
    later = 0.0


class SameTimeScanned(Scanned):
    later = 0.0


class WholeStep(FlowPort):
    order = 2.0


def checked(port):
    def inputs(rng):
        return (rng.standard_normal((5, WIDTH)),)

    return check(Case(name="c", summary="s", reference=Flow, model=port, inputs=inputs, adversarial=()), hasty=True)


@pytest.mark.parametrize("port", [FlowPort, Scanned])
def test_a_number_that_means_something_else_in_a_right_port_is_no_error(port):
    assert checked(port).passed


@pytest.mark.parametrize("port", [SameTime, SameTimeScanned])
def test_another_number_is_the_fault_of_who_hands_it(port):
    (divergence,) = checked(port).divergences
    assert divergence.module == ""
    (cause,) = divergence.causes
    assert (cause.id, cause.says.split(",")[0]) == ("number", "hands t=0 to slope")
    assert cause.says.endswith("call 2, where the reference hands 0.166666666667")


def test_a_number_that_means_something_else_is_not_blamed_for_another_fault():
    (divergence,) = checked(WholeStep).divergences
    assert divergence.module == ""
    assert not [cause for cause in divergence.causes if cause.id == "number"]
    assert all("scale" not in finding.tensor for finding in divergence.findings)
