"""Modules that give what the reference gives, in another shape."""

import jax
import jax.numpy as jnp
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, channels_last, check

from graphmode.weights import Rule


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
    (each,) = check(case, hasty=True).divergences
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
    assert [(each.module, each.mode) for each in check(case, hasty=True).divergences] == [("", "inference")]


class Gate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.slope = torch.nn.Parameter(torch.rand(3) + 0.5)

    def forward(self, x):
        return x * torch.sigmoid(self.slope[:, None, None] * x.detach())


class Flattening(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.fc = Gate(), torch.nn.Linear(3 * 4 * 5, 2)

    def forward(self, x):
        return self.fc(self.gate(x).flatten(1))


class GatePort(nnx.Module):
    def __init__(self, wrong: str):
        self.slope, self.wrong = nnx.Param(jnp.ones(3)), wrong

    def __call__(self, x):
        inside = x if self.wrong == "backward" else jax.lax.stop_gradient(x)
        given = x * jax.nn.sigmoid(self.slope[...] * inside)
        return given * 1.1 if self.wrong == "forward" else given


class UnflattenedPort(nnx.Module):
    """Its layer takes the image as it lies, with a kernel in that order."""

    def __init__(self, wrong: str, rngs: nnx.Rngs):
        self.gate = GatePort(wrong)
        self.fc = nnx.LinearGeneral((4, 5, 3), 2, axis=(-3, -2, -1), rngs=rngs)

    def __call__(self, x):
        return self.fc(self.gate(x))


class FromChannelsFirst:
    def to_model(self, weight):
        return (weight.reshape(2, 3, 4, 5).transpose(2, 3, 1, 0),)

    def to_reference(self, kernel):
        return (kernel.transpose(3, 2, 0, 1).reshape(2, 60),)

    gradient_to_reference = to_reference


@pytest.mark.parametrize("wrong", ["forward", "backward"])
def test_a_layer_that_takes_an_image_where_the_references_takes_it_flattened_is_not_accused(wrong):
    case = Case(
        name="c",
        summary="s",
        reference=Flattening,
        model=lambda rngs: UnflattenedPort(wrong, rngs),
        inputs=lambda rng: (rng.standard_normal((2, 3, 4, 5)),),
        to_model=channels_last,
        weights=[Rule("fc.weight", "fc.kernel", FromChannelsFirst())],
        adversarial=(),
    )
    (each,) = check(case, draws=1).divergences
    assert each.module == "gate"


class Named(torch.nn.Module):
    """Its outputs by names that are in no order."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 4)

    def forward(self, x):
        y = self.linear(x)
        return {"tokens": y, "accepted": y.sum(0), "mean": y.mean()}


class NamedPort(nnx.Module):
    def __init__(self, rngs):
        self.linear = nnx.Linear(3, 4, rngs=rngs)

    def __call__(self, x):
        y = self.linear(x)
        return {"tokens": y[:1], "accepted": y.sum(1), "mean": y.mean(0)}


def test_outputs_of_other_shapes_are_told_by_their_own_names():
    case = Case(
        name="c",
        summary="s",
        reference=Named,
        model=NamedPort,
        inputs=lambda rng: (rng.standard_normal((2, 3)),),
        adversarial=(),
        modes=("inference",),
    )
    (each,) = check(case, hasty=True).divergences
    assert {finding.tensor.split()[0]: finding.note for finding in each.findings} == {
        "tokens": "shape (1, 4), and the reference has (2, 4)",
        "accepted": "shape (2,), and the reference has (4,)",
        "mean": "shape (4,), and the reference has ()",
    }
