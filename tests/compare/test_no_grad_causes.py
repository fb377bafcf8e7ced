"""What a reference computes under `torch.no_grad`, and a port lets the gradient through."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from told_causes import causes
from told_lines import divergence_of

WIDTH = 4


def place_of(comment):
    lines = Path(__file__).read_text().splitlines()
    return f"{Path(__file__).name}:{next(i for i, text in enumerate(lines, 1) if text.endswith(comment))}"


class Reference(torch.nn.Module):
    """A target that learns by no gradient, from the reward or from a network of its own."""

    def __init__(self, by_network):
        super().__init__()
        self.online, self.target = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.by_network = by_network

    def forward(self, x, reward):
        with torch.no_grad():
            target = self.target(x) if self.by_network else reward.tanh() + self.target.bias
        return (self.online(x) - target) ** 2


class Port(nnx.Module):
    def __init__(self, rngs, by_network, stops):
        self.online, self.target = (nnx.Linear(WIDTH, WIDTH, rngs=rngs) for _ in range(2))
        self.by_network, self.stops = by_network, stops

    def __call__(self, x, reward):
        target = self.target(x) if self.by_network else jax.numpy.tanh(reward) + self.target.bias
        return (self.online(x) - (jax.lax.stop_gradient(target) if self.stops else target)) ** 2


def of_rows(reference, port):
    def inputs(rng):
        return tuple(rng.standard_normal((2, 5, WIDTH)).astype(np.float32))

    return Case(name="c", summary="s", reference=reference, model=port, inputs=inputs, adversarial=())


def checked(by_network, **settings):
    return check(of_rows(lambda: Reference(by_network), lambda rngs: Port(rngs, by_network, **settings)))


@pytest.mark.parametrize("by_network", [False, True])
def test_what_no_grad_keeps_from_learning_is_told(by_network):
    assert checked(by_network, stops=True).passed
    report = checked(by_network, stops=False)
    assert [each.module for each in report.divergences] == [""]
    (cause,) = report.divergences[0].causes
    assert (cause.id, "torch.no_grad" in cause.says) == ("stop-gradient", True)


class Adversary(torch.nn.Module):
    """A critic that learns by its own loss, and is frozen in the actor's."""

    def __init__(self):
        super().__init__()
        self.actor, self.critic = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, 1)

    def forward(self, x, reward):
        loss = (self.critic(reward) ** 2).mean()
        self.critic.requires_grad_(False)
        value = self.critic(self.actor(x).tanh()).mean()
        self.critic.requires_grad_(True)
        return loss, value


class AdversaryPort(nnx.Module):
    def __init__(self, rngs, freezes):
        self.actor, self.critic = nnx.Linear(WIDTH, WIDTH, rngs=rngs), nnx.Linear(WIDTH, 1, rngs=rngs)
        self.freezes = freezes

    def __call__(self, x, reward):
        graph, state = nnx.split(self.critic)
        critic = nnx.merge(graph, jax.lax.stop_gradient(state)) if self.freezes else self.critic
        return (self.critic(reward) ** 2).mean(), critic(jax.numpy.tanh(self.actor(x))).mean()


def test_a_call_in_which_the_reference_freezes_parameters_is_told():
    def case(freezes):
        return of_rows(Adversary, lambda rngs: AdversaryPort(rngs, freezes))

    assert check(case(freezes=True)).passed
    (each,) = check(case(freezes=False)).divergences
    (cause,) = each.causes
    assert cause.id == "stop-gradient"
    assert "that of a call (critic, call 2) in which the reference freezes them" in cause.says


class TwoTargets(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x, reward):
        y = self.fc(x)
        near = y - y.mean(0).detach()
        return near * y.std(1, keepdim=True).detach()  # the second


class OneTarget(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x, reward):
        y = self.fc(x)
        return (y - jax.lax.stop_gradient(y.mean(0))) * y.std(1, keepdims=True, ddof=1)


def test_of_two_that_are_detached_the_line_is_told():
    case = of_rows(TwoTargets, OneTarget)
    report = check(case)
    (cause,) = report.divergences[0].causes
    assert (cause.id, cause.reference) == ("stop-gradient", place_of("# the second"))
    assert f"(the reference's line is {cause.reference})" in " ".join(str(report).split())


class Adversaries(torch.nn.Module):
    """A generator and a critic, which is called on what is made with a gradient, and without."""

    def __init__(self):
        super().__init__()
        self.generator, self.critic = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, 1)

    def forward(self, x):
        fake = self.generator(x).tanh()
        loss = torch.relu(1 + self.critic(fake.detach())).mean()
        return fake, loss, -self.critic(fake).mean()


class AdversariesPort(nnx.Module):
    def __init__(self, rngs, stops):
        self.generator, self.critic = nnx.Linear(WIDTH, WIDTH, rngs=rngs), nnx.Linear(WIDTH, 1, rngs=rngs)
        self.stops = stops

    def __call__(self, x):
        fake = jax.numpy.tanh(self.generator(x))
        handed = jax.lax.stop_gradient(fake) if self.stops else fake
        loss = jax.nn.relu(1 + self.critic(handed)).mean()
        return fake, loss, -self.critic(fake).mean()


@pytest.mark.parametrize("stops", [True, False])
def test_a_module_that_is_handed_what_the_reference_detaches_is_named(stops):
    report = check(
        Case(
            name="adversaries",
            summary="a critic that trains on what a generator makes",
            reference=Adversaries,
            model=lambda rngs: AdversariesPort(rngs, stops),
            inputs=lambda rng: (rng.standard_normal((9, WIDTH)).astype(np.float32),),
        )
    )
    assert report.passed == stops, report
    if not stops:
        (divergence,) = report.parity[0].divergences
        (cause,) = divergence.causes
        assert (divergence.module, cause.id) == ("", "detach")
        assert "hands to 0 of critic, where the reference detaches" in cause.says
        assert cause.fix == "hand it jax.lax.stop_gradient(x)"


class Returns(torch.nn.Module):
    """What is aimed at is made of values that are known, one of which has a gradient outside."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x, reward):
        value = self.fc(x)
        with torch.no_grad():
            gain = reward + 0.9 * value.roll(1, 0)
            aim = gain + value  # the one that the port lets through
            spread = (gain - gain.mean()) / gain.std()
        return ((value.tanh() - aim) ** 2).mean(), (spread * value).mean()


class ReturnsPort(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x, reward):
        value = self.fc(x)
        gain = jax.lax.stop_gradient(reward + 0.9 * jax.numpy.roll(value, 1, 0))
        spread = (gain - gain.mean()) / gain.std(ddof=1)
        aim = gain + value  # where the port lets it through
        return ((jax.numpy.tanh(value) - aim) ** 2).mean(), (spread * value).mean()


def test_of_many_calls_without_gradients_the_one_with_a_gradient_is_named():
    case = of_rows(Returns, ReturnsPort)
    divergence = check(case).divergences[0]
    (cause, *_) = divergence.causes
    assert (cause.id, cause.reference) == ("stop-gradient", place_of("# the one that the port lets through"))
    assert divergence.astray.port == [f"{place_of('# where the port lets it through')} (add)"]
    assert cause.says == "lets the gradient through add, which the reference computes under torch.no_grad"


class Running(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, x):
        with torch.no_grad():
            self.mean.add_(x.mean(0) * 0.5)
        return x - self.mean


class Critic(torch.nn.Module):
    """Values what comes last by what a module inside has just written."""

    def __init__(self):
        super().__init__()
        self.norm, self.value = Running(), torch.nn.Linear(WIDTH, 1)

    def forward(self, x, last):
        x = self.norm(x)
        with torch.no_grad():
            target = 0.9 * self.value(last - self.norm.mean) + 1.0
        gain = target / target.std(0)
        return ((self.value(x) - target) ** 2).mean() + gain.mean()


class RunningPort(nnx.Module):
    def __init__(self):
        self.mean = nnx.BatchStat(jnp.zeros(WIDTH))

    def __call__(self, x):
        self.mean[...] += jax.lax.stop_gradient(x.mean(0)) * 0.5
        return x - self.mean[...]


class CriticPort(nnx.Module):
    def __init__(self, rngs, ddof, stops):
        self.norm, self.value = RunningPort(), nnx.Linear(WIDTH, 1, rngs=rngs)
        self.ddof, self.stops = ddof, stops

    def __call__(self, x, last):
        x = self.norm(x)
        target = 0.9 * self.value(last - self.norm.mean[...]) + 1.0
        target = jax.lax.stop_gradient(target) if self.stops else target
        gain = target / target.std(0, ddof=self.ddof)
        return ((self.value(x) - target) ** 2).mean() + gain.mean()


@pytest.mark.parametrize(("ddof", "stops", "id"), [(1, True, None), (0, True, "ddof"), (1, False, "stop-gradient")])
def test_what_a_module_inside_has_just_written_is_there_for_what_is_tried(ddof, stops, id):
    usual = of_rows(Critic, lambda rngs: CriticPort(rngs, ddof, stops))
    report = check(dataclasses.replace(usual, modes=("forward_backward",)), hasty=True)
    assert report.passed == (id is None)
    assert [cause.id for each in report.divergences for cause in each.causes] == ([] if id is None else [id])


class Update(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x, place):
        return torch.tanh(self.fc(torch.cat([x, place], -1)))


class Refined(torch.nn.Module):
    """Each turn begins at what the one before has found, and sends nothing back to it."""

    def __init__(self):
        super().__init__()
        self.update = Update()

    def forward(self, x):
        place, found = torch.zeros_like(x), []
        for _ in range(3):
            place = place.detach()
            place = place + self.update(x, place)
            found.append(place * x)
        return torch.stack(found)


class PortUpdate(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(2 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x, place):
        return jnp.tanh(self.fc(jnp.concatenate([x, place], -1)))


class SendsBack(nnx.Module):
    def __init__(self, rngs):
        self.update = PortUpdate(rngs)

    def __call__(self, x):
        place, found = jnp.zeros_like(x), []
        for _ in range(3):
            place = place + self.update(x, place)
            found.append(place * x)
        return jnp.stack(found)


def test_a_loop_that_sends_gradients_back_through_a_module_inside_is_told():
    found = causes(Refined, SendsBack, lambda rng: (rng.standard_normal((4, WIDTH)),))
    assert ("stop-gradient", "lets the gradient through where the reference detaches") in found, found


class Kept(torch.nn.Module):
    """A scale by a running mean of norms, of which neither is learnt."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mean", torch.ones(1))

    def forward(self, x, reward):
        h = self.fc(x)
        size = h.norm(dim=1, keepdim=True).detach()
        with torch.no_grad():
            self.mean = 0.5 * size.mean() + 0.5 * self.mean
        return h * torch.tanh(size - self.mean) + reward


class PortOfKept(nnx.Module):
    def __init__(self, rngs, stops):
        self.fc = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.mean = nnx.BatchStat(jnp.ones(1))
        self.stops = stops

    def __call__(self, x, reward):
        h = self.fc(x)
        size = jnp.linalg.norm(h, axis=1, keepdims=True)
        size = jax.lax.stop_gradient(size) if self.stops else size
        self.mean[...] = 0.5 * size.mean() + 0.5 * self.mean[...]
        return h * jnp.tanh(size - self.mean[...]) + reward


@pytest.mark.slow
def test_what_is_detached_and_goes_on_in_a_running_mean_is_told():
    assert check(of_rows(Kept, lambda rngs: PortOfKept(rngs, True))).passed
    report = check(of_rows(Kept, lambda rngs: PortOfKept(rngs, False)))
    (cause,) = report.divergences[0].causes
    assert cause.id == "stop-gradient"
    assert "detaches, and through what of it is under torch.no_grad" in cause.says


class Renormed(torch.nn.Module):
    """By a running scale, which it writes in place after that, and from the second call on alone where it is late."""

    def __init__(self, late):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)
        self.register_buffer("scale", torch.ones(WIDTH))
        self.register_buffer("calls", torch.full((), 0.0 if late else 3.0))

    def forward(self, x):
        x = self.fc(x)
        std = x.std(0) + 1.0
        most = 1 + self.calls / 3
        ratio = (std.detach() / self.scale).clamp(1 / most, most)  # which is kept from a gradient
        if self.training:
            self.scale += 0.1 * (std.detach() - self.scale)
            self.calls += 1
        return x / std * ratio


class RenormedPort(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.scale, self.calls = nnx.BatchStat(jax.numpy.ones(WIDTH)), nnx.BatchStat(jax.numpy.zeros(()))
        self.training = True

    def __call__(self, x):
        x = self.fc(x)
        std = x.std(0, ddof=1) + 1.0
        most = 1 + self.calls[...] / 3
        ratio = jax.numpy.clip(std / self.scale[...], 1 / most, most)
        if self.training:
            self.scale[...] += 0.1 * (jax.lax.stop_gradient(std) - self.scale[...])
            self.calls[...] += 1
        return x / std * ratio


@pytest.mark.parametrize("late", [False, True])
def test_a_gradient_by_what_is_written_in_place_is_named(late):
    inputs = lambda rng: (rng.standard_normal((7, WIDTH)) * 2,)  # noqa: E731
    reference = lambda: Renormed(late)  # noqa: E731
    divergence = divergence_of(reference, RenormedPort, inputs, modes=("forward_backward",))
    assert ("later" in divergence.input or "again" in divergence.input) == late
    assert [cause.id for cause in divergence.causes] == ["stop-gradient"]


class Twice(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = Renormed(late=False)

    def forward(self, x):
        return self.norm(x) + self.norm(x * 0.5)


class TwicePort(nnx.Module):
    def __init__(self, rngs):
        self.norm = RenormedPort(rngs)

    def __call__(self, x):
        return self.norm(x) + self.norm(x * 0.5)


def test_likewise_in_each_of_several_calls():
    inputs = lambda rng: (rng.standard_normal((7, WIDTH)) * 2,)  # noqa: E731
    divergence = divergence_of(Twice, TwicePort, inputs, modes=("forward_backward",))
    (cause,) = divergence.causes
    assert (cause.says, cause.reference) == (
        "lets the gradient through where the reference detaches",
        place_of("# which is kept from a gradient"),
    )
