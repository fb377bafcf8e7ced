"""Parameters that the reference has with `requires_grad=False`, beside ports that leave them alone and that do not."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check

WIDTH = 5


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.base, self.head = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, 2)
        self.base.requires_grad_(False)

    def forward(self, x):
        return self.head(torch.tanh(self.base(x)))


class Port(nnx.Module):
    stops = True

    def __init__(self, rngs):
        self.base, self.head = nnx.Linear(WIDTH, WIDTH, rngs=rngs), nnx.Linear(WIDTH, 2, rngs=rngs)

    def __call__(self, x):
        kernel, bias = self.base.kernel[...], self.base.bias[...]
        if self.stops:
            kernel, bias = jax.lax.stop_gradient((kernel, bias))
        return self.head(jnp.tanh(x @ kernel + bias))


class Trains(Port):
    stops = False


def case(port, **changes):
    return Case(
        name="c",
        summary="s",
        reference=Reference,
        model=port,
        inputs=lambda rng: (rng.standard_normal((4, WIDTH)).astype(np.float32),),
        adversarial=(),
        **changes,
    )


STEPS = {"optimizer": (lambda p: torch.optim.SGD(p, lr=0.1), optax.sgd(0.1)), "modes": ("inference", "train_step")}


@pytest.mark.parametrize("changes", [{}, STEPS], ids=["gradients", "steps"])
def test_a_port_that_stops_their_gradient_passes_without_a_word(changes):
    report = check(case(Port, **changes))
    assert report.passed
    assert "freezes" not in str(report)


def test_a_gradient_by_them_is_warned_of():
    report = check(case(Trains))
    assert report.passed
    (warning,) = (each for each in report.parity[-1].warnings if "freezes" in each)
    assert warning.startswith("the port has a gradient by base.bias, base.weight, which the reference freezes")


def test_a_step_that_trains_them_fails_and_is_explained():
    report = check(case(Trains, **STEPS), hasty=True)
    assert not report.passed
    (cause,) = report.divergences[0].causes
    assert (cause.id, cause.says) == (
        "frozen",
        "trains base.bias, base.weight, which the reference freezes (requires_grad=False)",
    )


class Position(torch.nn.Module):
    """A fixed position, as a parameter that is not trained."""

    def __init__(self):
        super().__init__()
        self.proj = torch.nn.Linear(WIDTH, WIDTH)
        self.position = torch.nn.Parameter(torch.randn(4, WIDTH), requires_grad=False)

    def forward(self, x):
        return torch.tanh(self.proj(x) + self.position)


class Fixed(nnx.Variable):
    pass


class PositionPort(nnx.Module):
    moves = False

    def __init__(self, rngs):
        self.proj = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.position = Fixed(jnp.zeros((4, WIDTH)))

    def __call__(self, x):
        y = jnp.tanh(self.proj(x) + self.position[...])
        if self.moves:
            self.position[...] = self.position[...] + 1
        return y


class PositionMoves(PositionPort):
    moves = True


def test_it_may_be_held_as_no_parameter_and_must_then_stay():
    def position(port):
        return check(dataclasses.replace(case(port, **STEPS), reference=Position, modes=MODES))

    assert position(PositionPort).passed
    report = position(PositionMoves)
    assert not report.passed
    assert {t.name for t in report.parity[0].tensors if not t.equal and t.kind == "buffer"} == {"position"}


MODES = ("inference", "forward_backward", "train_step")
