"""Causes that make the outputs right are held against the gradients."""

import jax
import jax.numpy as jnp
import torch
from flax import nnx
from graphmode.compare import Case, check


class StraightThrough(torch.nn.Module):
    """Rounds, and lets the gradient through as if it did not."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)

    def forward(self, x):
        z = self.fc(x)
        return z + (torch.round(z) - z).detach()


class Port(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.fc = nnx.Linear(4, 4, rngs=rngs)

    def rounded(self, z):
        q = jnp.round(z)
        return q + jax.lax.stop_gradient(q - z)

    def __call__(self, x):
        return self.rounded(self.fc(x))


class Twice(Port):
    def rounded(self, z):
        return z + 2 * jax.lax.stop_gradient(jnp.round(z) - z)


def causes(port, modes):
    case = Case(
        name="c",
        summary="s",
        reference=StraightThrough,
        model=port,
        inputs=lambda rng: (3 * rng.standard_normal((5, 4)),),
        adversarial=(),
        modes=modes,
    )
    return {cause.id for each in check(case).divergences for cause in each.causes}


def test_a_cause_that_leaves_the_gradients_wrong_is_none():
    assert "residual-twice" in causes(Port, ("inference",))
    assert "residual-twice" not in causes(Port, ("inference", "forward_backward"))


def test_a_cause_that_makes_them_right_stays():
    assert "residual-twice" in causes(Twice, ("inference", "forward_backward"))
