"""Modules that give what the reference gives, in another shape."""

import jax
import jax.numpy as jnp
import torch
from flax import nnx
from graphmode.compare import Case, check


class Quantizer(torch.nn.Module):
    """The nearest of four, and which one: `[B, T]`."""

    def __init__(self):
        super().__init__()
        self.codes = torch.nn.Parameter(torch.randn(4, 3))

    def forward(self, x):
        nearest = torch.cdist(x, self.codes.expand(len(x), -1, -1)).argmin(-1)
        return x + (self.codes[nearest] - x).detach(), nearest


class QuantizerPort(nnx.Module):
    def __init__(self):
        self.codes = nnx.Param(jnp.zeros((4, 3)))

    def __call__(self, x):
        apart = jnp.sum((x[..., None, :] - self.codes[...]) ** 2, -1)
        nearest = jnp.argmin(apart, -1)
        return x + jax.lax.stop_gradient(self.codes[...][nearest] - x), nearest.reshape(-1)


class Holder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Quantizer()

    def forward(self, x):
        return self.inner(x)


class HolderPort(nnx.Module):
    def __init__(self, rngs):
        self.inner = QuantizerPort()

    def __call__(self, x):
        return self.inner(x)


def test_a_module_that_gives_another_shape_is_accused_and_not_the_case():
    case = Case(
        name="c",
        summary="s",
        reference=Holder,
        model=HolderPort,
        inputs=lambda rng: (rng.standard_normal((2, 5, 3)),),
        adversarial=(),
        modes=("inference",),
    )
    (each,) = check(case).divergences
    assert (each.module, each.outside) == ("inner", False)
    assert each.findings[0].note == "shape (10,), and the reference has (2, 5)"


class Mixed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 4)

    def forward(self, x, seeds):
        return x * torch.tanh(self.fc(seeds)).sum(0)


class Mixing(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mixed, self.out = Mixed(), torch.nn.Linear(4, 2)

    def forward(self, x, seeds):
        return self.out(self.mixed(x, seeds))


class KernelPort(nnx.Module):
    """What the reference's module multiplies by, which the model multiplies by here."""

    def __init__(self, rngs):
        self.fc = nnx.Linear(3, 4, rngs=rngs)

    def __call__(self, seeds):
        return jnp.tanh(self.fc(seeds))


class MixingPort(nnx.Module):
    def __init__(self, rngs):
        self.mixed, self.out = KernelPort(rngs), nnx.Linear(4, 2, rngs=rngs)

    def __call__(self, x, seeds):
        return self.out(x * self.mixed(seeds).mean(0))


def test_what_is_done_outside_of_a_module_of_another_structure_is_not_blamed_on_it_backward():
    case = Case(
        name="c",
        summary="s",
        reference=Mixing,
        model=MixingPort,
        inputs=lambda rng: (rng.standard_normal((2, 4)), rng.standard_normal((5, 3))),
        adversarial=(),
    )
    assert [(each.module, each.mode) for each in check(case).divergences] == [("", "inference")]
