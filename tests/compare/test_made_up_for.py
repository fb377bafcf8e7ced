"""What another module makes up for is no fault, and what comes from outside of a module is none of its own."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from looked_into import look
from told_lines import divergence_of


class Causal(torch.nn.Module):
    """Padded at both ends by the convolution, and cut after it."""

    def __init__(self):
        super().__init__()
        self.conv, self.out = torch.nn.Conv1d(4, 4, 3, padding=2), torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.out(torch.tanh(self.conv(x)[..., : x.shape[-1]]).transpose(1, 2))


class PortCausal(nnx.Module):
    """Padded at one end, so that nothing is left to cut."""

    def __init__(self, rngs):
        self.conv = nnx.Conv(4, 4, (3,), padding="CAUSAL", rngs=rngs)
        self.out = nnx.Linear(4, 4, rngs=rngs)

    def act(self, x):
        return jnp.tanh(x)

    def __call__(self, x):
        return self.out(self.act(self.conv(x.transpose(0, 2, 1))))


class WrongCausal(PortCausal):
    def act(self, x):
        return jnp.sin(x)


class Cut(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.out = torch.nn.Conv1d(4, 4, 3, padding=1), torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.out(torch.tanh(self.conv(x)).transpose(1, 2))


class PortCut(PortCausal):
    """Padded more than the reference, and cut after it: the reference's output is cut to another shape."""

    def __init__(self, rngs):
        super().__init__(rngs)
        self.conv = nnx.Conv(4, 4, (3,), padding=[(2, 2)], rngs=rngs)

    def __call__(self, x):
        return self.out(self.act(self.conv(x.transpose(0, 2, 1))[:, 1:-1]))


class WrongCut(PortCut):
    def act(self, x):
        return jnp.sin(x)


@pytest.mark.parametrize(("reference", "right", "wrong"), [(Causal, PortCausal, WrongCausal), (Cut, PortCut, WrongCut)])
def test_an_output_of_another_shape_that_is_made_up_for_is_no_fault(reference, right, wrong):
    case = Case(
        name="c",
        summary="s",
        reference=reference,
        model=right,
        inputs=lambda rng: (rng.standard_normal((3, 4, 9)),),
        adversarial=(),
    )
    assert not look(case).divergences()
    found = look(dataclasses.replace(case, model=wrong))
    assert list(found.suspects) == [""]
    assert found.unlike[0] == "conv"


class Words(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(6, 4, padding_idx=0)
        self.head = torch.nn.Linear(4, 3)

    def forward(self, words):
        return self.head(self.embed(words)).tanh()


class PortWords(nnx.Module):
    """Its embedding has a gradient for the row of padding, which goes no further than what is around it."""

    def __init__(self, rngs):
        self.embed = nnx.Embed(6, 4, rngs=rngs)
        self.head = nnx.Linear(4, 3, rngs=rngs)

    def masked(self, words, x):
        return jnp.where((words == 0)[..., None], jax.lax.stop_gradient(x), x)

    def last(self, x):
        return jnp.tanh(x)

    def __call__(self, words):
        return self.last(self.head(self.masked(words, self.embed(words))))


class WrongLast(PortWords):
    def last(self, x):
        return 0.9 * jnp.tanh(x)


class WrongMask(PortWords):
    def masked(self, words, x):
        return jnp.where((words == 1)[..., None], jax.lax.stop_gradient(x), x)


@pytest.mark.parametrize(("port", "wrong"), [(PortWords, set()), (WrongLast, {""}), (WrongMask, {"", "embed"})])
def test_a_gradient_that_is_made_up_for_is_no_fault(port, wrong):
    def words(rng):
        return (rng.integers(0, 3, (4, 5)),)

    found = look(Case(name="words", summary="s", reference=Words, model=port, inputs=words))
    assert {each.module for each in found.divergences()} == wrong


class Largest(torch.nn.Module):
    def forward(self, x):
        return x.max(1).values


class Pooled(torch.nn.Module):
    """Behind a relu many of the largest are zero, and tied."""

    def __init__(self, act=torch.relu):
        super().__init__()
        self.fc, self.pool, self.act = torch.nn.Linear(6, 6), Largest(), act

    def forward(self, x):
        return torch.tanh(self.pool(self.act(self.fc(x))))


class PortLargest(nnx.Module):
    """Shares the gradient out among ties."""

    def __call__(self, x):
        return x.max(1)


class PortPooled(nnx.Module):
    def __init__(self, rngs, act=jax.nn.relu):
        self.fc, self.pool, self.act = nnx.Linear(6, 6, rngs=rngs), PortLargest(), act

    def __call__(self, x):
        return jnp.tanh(self.pool(self.act(self.fc(x))))


class WrongPooled(PortPooled):
    def __call__(self, x):
        return 0.9 * super().__call__(x)


def _signs(x):
    return 0.1 * x - 0.1 * x.detach() + x.detach().sign()


def _port_signs(x):
    return 0.1 * x - 0.1 * jax.lax.stop_gradient(x) + jnp.sign(jax.lax.stop_gradient(x))


@pytest.mark.parametrize(
    ("port", "acts", "wrong"),
    [
        (PortPooled, (torch.relu, jax.nn.relu), set()),
        (WrongPooled, (torch.relu, jax.nn.relu), {""}),
        (WrongPooled, (_signs, _port_signs), {"", "pool"}),
    ],
)
def test_a_gradient_among_ties_that_goes_no_further_is_no_fault(port, acts, wrong):
    found = look(
        Case(
            name="pooled",
            summary="s",
            reference=lambda: Pooled(acts[0]),
            model=lambda rngs: port(rngs, acts[1]),
            inputs=lambda rng: (rng.standard_normal((3, 2, 6)),),
        )
    )
    assert {each.module for each in found.divergences()} == wrong


class ScaledByWeight(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(6, 6)

    def forward(self, x):
        return torch.tanh(self.fc(x)) * self.fc.weight.detach().sum(0) + self.fc(-x)


class PortOfScaledByWeight(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(6, 6, rngs=rngs)

    def __call__(self, x):
        return jnp.tanh(self.fc(x)) * self.fc.kernel[...].sum(1) + self.fc(-x)


class PortOfStoppedWeight(PortOfScaledByWeight):
    def __call__(self, x):
        return jnp.tanh(self.fc(x)) * jax.lax.stop_gradient(self.fc.kernel[...].sum(1)) + self.fc(-x)


def test_a_module_is_not_blamed_for_a_gradient_by_its_parameter_that_comes_from_outside():
    def report(port):
        inputs = {"inputs": lambda rng: (rng.standard_normal((8, 6)),), "adversarial": ()}
        return check(Case(name="c", summary="s", reference=ScaledByWeight, model=port, **inputs))

    assert report(PortOfStoppedWeight).passed
    (found,) = report(PortOfScaledByWeight).divergences
    assert found.module == ""


class WordsByTheirOwnTable(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(7, 4)

    def forward(self, words, more):
        h = torch.tanh(self.embed(words)) + self.embed(more)
        return torch.nn.functional.linear(h / 2, self.embed.weight)


class PortByItsOwnTable(nnx.Module):
    def __init__(self, rngs, *, factor=0.5, stopped=False):
        self.embed = nnx.Embed(7, 4, rngs=rngs)
        self.factor, self.stopped = factor, stopped

    def __call__(self, words, more):
        table = self.embed.embedding[...]
        h = jnp.tanh(self.embed(words)) + self.embed(more)
        return self.factor * h @ (jax.lax.stop_gradient(table) if self.stopped else table).T


@pytest.mark.parametrize("wrong", [{"factor": 0.6}, {"stopped": True}], ids=str)
def test_a_table_that_the_model_reads_besides_is_not_blamed_for_what_the_model_does_with_it(wrong):
    case = Case(
        name="words",
        summary="s",
        reference=WordsByTheirOwnTable,
        model=lambda rngs: PortByItsOwnTable(rngs, **wrong),
        inputs=lambda rng: (rng.integers(0, 7, (2, 3)), rng.integers(0, 7, (2, 3))),
    )
    assert [each.module for each in look(case).divergences()] == [""]


class Gate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(6, 6)

    def forward(self, x):
        return torch.relu(self.fc(x))


class Magnitude(torch.nn.Module):
    """Of what is zero where a relu lets no gradient through, times a scale that has none."""

    def __init__(self):
        super().__init__()
        self.gate, self.scale = Gate(), torch.nn.Parameter(torch.ones(6))

    def forward(self, x):
        return self.gate(x).abs() * self.scale.detach()


class PortGate(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(6, 6, rngs=rngs)

    def __call__(self, x):
        return jax.nn.relu(self.fc(x))


class WrongMagnitude(nnx.Module):
    """Its magnitude has another gradient at zero, and its scale has one."""

    def __init__(self, rngs):
        self.gate, self.scale = PortGate(rngs), nnx.Param(jnp.ones(6))

    def __call__(self, x):
        return jnp.abs(self.gate(x)) * self.scale[...]


def test_a_gradient_at_a_kink_that_goes_no_further_hides_no_cause():
    inputs = lambda rng: (rng.standard_normal((5, 6)),)  # noqa: E731
    divergence = divergence_of(Magnitude, WrongMagnitude, inputs, modes=("forward_backward",))
    assert [finding.tensor for finding in divergence.findings] == ["scale"]
    assert [cause.id for cause in divergence.causes] == ["stop-gradient"]
