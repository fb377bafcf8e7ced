"""A hook on what a module gives, or is given: it changes the gradient on its way, outside of that module or inside."""

import jax
import jax.numpy as jnp
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check

WIDTH, LIMIT = 6, 0.1


class Hooked(torch.nn.Module):
    """What the first layer gives has its gradient clipped."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        h = self.first(x)
        if h.requires_grad:
            h.register_hook(lambda gradient: gradient.clamp(-LIMIT, LIMIT))
        return torch.tanh(self.second(h)), h * 0.7


@jax.custom_vjp
def clipped(x):
    return x


clipped.defvjp(lambda x: (x, None), lambda _, gradient: (jnp.clip(gradient, -LIMIT, LIMIT),))


class Port(nnx.Module):
    def __init__(self, hooked: bool, factor: float, rngs: nnx.Rngs):
        self.first, self.second = (nnx.Linear(WIDTH, WIDTH, rngs=rngs) for _ in range(2))
        self.hooked, self.factor = hooked, factor

    def __call__(self, x):
        h = self.first(x)
        h = clipped(h) if self.hooked else h
        return jnp.tanh(self.second(h)), h * self.factor


@pytest.mark.parametrize(
    ("hooked", "factor", "causes"), [(True, 0.7, []), (False, 0.7, ["hook-missing"]), (True, 0.6, ["scale"])]
)
def test_the_gradient_behind_a_hook_is_the_one_that_a_module_gets(hooked, factor, causes):
    case = Case(
        name="c",
        summary="s",
        reference=Hooked,
        model=lambda rngs: Port(hooked, factor, rngs),
        inputs=lambda rng: (rng.standard_normal((4, WIDTH)),),
        adversarial=(),
    )
    report = check(case, draws=1)
    assert [each.module for each in report.divergences] == [""] * len(causes), report
    assert [cause.id for cause in report.causes] == causes, report
