"""State that goes wrong after more calls than a few, as a schedule that comes to its end; and state that rounding moves
further from call to call."""

import jax
import jax.numpy as jnp
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check

WIDTH, WARM, RATE = 5, 9, 3.9


class Warming(torch.nn.Module):
    """A factor that grows for `WARM` calls of training, which no tensor shows."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        share = min((1 + int(self.steps)) / WARM, 1.0)
        if self.training:
            self.steps += 1
        return share * self.fc(x)


class Port(nnx.Module):
    most = 1.0

    def __init__(self, rngs):
        self.fc = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.steps = nnx.BatchStat(jnp.zeros((), int))
        self.training = True

    def __call__(self, x):
        share = jnp.minimum((1 + self.steps[...]) / WARM, self.most)
        if self.training:
            self.steps[...] += 1
        return share * self.fc(x)


class GoesOn(Port):
    most = 2.0


class Reversing(Warming):
    """The share of the gradient that is turned round grows, which no output shows."""

    def forward(self, x):
        share = min((1 + int(self.steps)) / WARM, 1.0)
        if self.training:
            self.steps += 1
        h = self.fc(x)
        return h.detach() - share * (h - h.detach())


class ReversingPort(Port):
    def __call__(self, x):
        share = jnp.minimum((1 + self.steps[...]) / WARM, self.most)
        if self.training:
            self.steps[...] += 1
        h = self.fc(x)
        return jax.lax.stop_gradient(h) - share * (h - jax.lax.stop_gradient(h))


class ReversesOn(ReversingPort):
    most = 2.0


class Chaotic(torch.nn.Module):
    """Each value of it is a parabola of the one before."""

    def __init__(self):
        super().__init__()
        self.register_buffer("at", torch.linspace(0.1, 0.8, WIDTH))

    def forward(self, x):
        self.at.copy_(RATE * self.at * (1 - self.at))
        return x + self.at


class ChaoticPort(nnx.Module):
    def __init__(self, rngs):
        self.at = nnx.BatchStat(jnp.zeros(WIDTH))

    def __call__(self, x):
        now = self.at[...]
        self.at[...] = RATE * now - RATE * now * now
        return x + self.at[...]


def checked(reference, port):
    case = Case(
        name="c",
        summary="s",
        reference=reference,
        model=port,
        inputs=lambda rng: (rng.standard_normal((4, WIDTH)),),
        adversarial=(),
    )
    return check(case)


@pytest.mark.parametrize(("port", "is_right"), [(Port, True), (GoesOn, False)])
def test_a_schedule_that_does_not_end_where_the_reference_s_does_is_seen(port, is_right):
    report = checked(Warming, port)
    assert report.passed == is_right
    causes = [cause for each in report.divergences for cause in each.causes]
    assert [cause.id for cause in causes] == ([] if is_right else ["state-otherwise"])


@pytest.mark.parametrize(("port", "is_right"), [(ReversingPort, True), (ReversesOn, False)])
def test_a_schedule_that_gradients_alone_show_is_seen(port, is_right):
    report = checked(Reversing, port)
    assert report.passed == is_right
    kinds = {tensor.kind for parity in report.parity for tensor in parity.tensors if not tensor.equal}
    assert kinds <= {"parameter_gradient", "input_gradient"}


def test_what_rounding_moves_further_in_each_call_is_not_held_against_a_port():
    assert checked(Chaotic, ChaoticPort).passed
