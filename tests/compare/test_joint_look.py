"""A module that goes wrong and gives another tensor in another form, which what is around it makes up for."""

import jax
import jax.numpy as jnp
import torch
from flax import nnx
from graphmode.compare import Case, check

from graphmode import nn

WIDTH, STEPS = 6, 2


class Coupling(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(WIDTH // 2, WIDTH)

    def forward(self, x, determinant):
        kept, moved = x.chunk(2, -1)
        shift, scale = self.net(kept).chunk(2, -1)
        scale = torch.sigmoid(scale + 2)
        return torch.cat([(moved + shift) * scale, kept], -1), determinant + scale.log().sum(-1)


class Flow(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = torch.nn.ModuleList(Coupling() for _ in range(STEPS))

    def forward(self, x):
        determinant = x.new_zeros(len(x))
        for step in self.steps:
            x, determinant = step(x, determinant)
        return x, determinant


class PortCoupling(nnx.Module):
    """Gives its own share of the determinant."""

    def __init__(self, rngs):
        self.net = nn.Linear(WIDTH // 2, WIDTH, rngs=rngs)

    def __call__(self, x):
        kept, moved = jnp.split(x, 2, -1)
        shift, scale = jnp.split(self.net(kept), 2, -1)
        scale = jax.nn.sigmoid(scale + 2)
        return jnp.concatenate([self.moved(moved, shift, scale), kept], -1), jnp.log(scale).sum(-1)

    def moved(self, x, shift, scale):
        return (x + shift) * scale


class Scaled(PortCoupling):
    def moved(self, x, shift, scale):
        return x * scale + shift


def flow(kind):
    class PortFlow(nnx.Module):
        def __init__(self, rngs):
            self.steps = nnx.List([kind(rngs) for _ in range(STEPS)])

        def __call__(self, x):
            total = jnp.zeros(len(x))
            for step in self.steps:
                x, share = step(x)
                total += share
            return x, total

    return Case(name="flow", summary="s", reference=Flow, model=PortFlow, inputs=rows, adversarial=())


def rows(rng):
    return (rng.standard_normal((4, WIDTH)),)


def test_a_right_port_of_another_form_passes():
    assert check(flow(PortCoupling), draws=1).passed


def test_modules_that_are_wrong_and_of_another_form_are_explained_together():
    report = check(flow(Scaled), compiled=False, hasty=True)
    told = {each.module: [cause.id for cause in each.causes] for each in report.divergences}
    assert told == {"steps.0": ["calls-order"], "steps.1": ["calls-order"]}, report
