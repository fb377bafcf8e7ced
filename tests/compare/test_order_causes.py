"""Modules called elsewhere than in the reference, parameters that are no longer shared, numbers of masks and losses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check

WIDTH = 8


class Block(torch.nn.Module):
    def __init__(self, *, first):
        super().__init__()
        self.norm, self.inner = torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.first = first

    def forward(self, x):
        if self.first:
            return x + torch.tanh(self.inner(self.norm(x)))
        return self.norm(x + torch.tanh(self.inner(x)))


class PortBlock(nnx.Module):
    def __init__(self, rngs, *, first):
        self.norm = nnx.LayerNorm(WIDTH, epsilon=1e-5, use_fast_variance=False, rngs=rngs)
        self.inner = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.first = first

    def __call__(self, x):
        if self.first:
            return x + jnp.tanh(self.inner(self.norm(x)))
        return self.norm(x + jnp.tanh(self.inner(x)))


def case(reference, port, shape=(5, WIDTH)):
    return Case(
        name="c",
        summary="s",
        reference=reference,
        model=port,
        inputs=lambda rng: (rng.standard_normal(shape),),
        adversarial=(),
    )


@pytest.mark.parametrize(
    ("first", "on"), [(True, "what add gives"), (False, "what inner is given")], ids=["post-norm", "pre-norm"]
)
def test_a_norm_at_the_other_end_of_a_block_is_named(first, on):
    found = check(
        case(lambda: Block(first=first), lambda rngs: PortBlock(rngs, first=not first)), hasty=True
    ).divergences
    (cause,) = found[0].causes
    assert (cause.id, cause.says) == ("module-order", f"calls norm on {on}, and not where the reference calls it")


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(WIDTH, WIDTH)

    def forward(self, words):
        return torch.tanh(self.embed(words)) @ self.embed.weight.T


class Stopped(nnx.Module):
    """Its second use hands no gradient on."""

    def __init__(self, rngs):
        self.embed = nnx.Embed(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, words):
        return jnp.tanh(self.embed(words)) @ jax.lax.stop_gradient(self.embed.embedding[...]).T


def test_a_gradient_that_does_not_come_from_a_second_use_is_named():
    words = lambda rng: (rng.integers(0, WIDTH, (4, 6)),)  # noqa: E731
    stopped = Case(name="c", summary="s", reference=Tied, model=Stopped, inputs=words, adversarial=())
    (divergence,) = check(stopped, hasty=True).divergences
    assert [cause.id for cause in divergence.causes] == ["stop-gradient"]
    assert "embed.weight" in divergence.causes[0].says


class TiedTwice(Tied):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, words):
        return self.head(torch.tanh(self.embed(words)))


class Untied(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(WIDTH, WIDTH, rngs=rngs)
        self.head = nnx.Linear(WIDTH, WIDTH, use_bias=False, rngs=rngs)

    def __call__(self, words):
        return self.head(jnp.tanh(self.embed(words)))


def test_a_parameter_that_is_no_longer_shared_is_named():
    words = lambda rng: (rng.integers(0, WIDTH, (4, 6)),)  # noqa: E731
    untied = Case(name="c", summary="s", reference=TiedTwice, model=Untied, inputs=words, adversarial=())
    found = check(untied, hasty=True).divergences
    assert {cause.id for each in found for cause in each.causes} == {"untied"}


class Masked(torch.nn.Module):
    def __init__(self, least=False):
        super().__init__()
        self.register_buffer("hidden", torch.arange(WIDTH) % 3 == 0)
        self.least = least

    def forward(self, x):
        return x.masked_fill(self.hidden, torch.finfo(x.dtype).min if self.least else float("-inf")).softmax(-1)


class PortMasked(nnx.Module):
    def __init__(self, rngs):
        self.hidden = nnx.BatchStat(jnp.zeros(WIDTH, bool))

    def __call__(self, x):
        return jax.nn.softmax(jnp.where(self.hidden[...], -7.5, x), -1)


@pytest.mark.parametrize(("least", "value"), [(False, "-inf"), (True, "jnp.finfo(x.dtype).min")])
def test_another_number_under_a_mask_is_named(least, value):
    (divergence,) = check(case(lambda: Masked(least), PortMasked), hasty=True).divergences[:1]
    assert [(cause.id, cause.says, cause.fix) for cause in divergence.causes] == [
        ("mask-value", "fills with -7.5", f"fill with {value}")
    ]


class Scaled(nnx.Module):
    """Multiplies what comes back by two, and what goes on by nothing."""

    def __init__(self, rngs):
        self.inner = nnx.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        y = self.inner(x)
        return 2 * y - jax.lax.stop_gradient(y)


class Plain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.inner(x)


def test_a_gradient_that_is_multiplied_is_named_though_the_values_round_otherwise():
    (divergence,) = check(case(Plain, Scaled), hasty=True).divergences
    assert [cause.id for cause in divergence.causes] == ["gradient-scale"]


class Mean(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x).mean(-1)


class Halved(nnx.Module):
    def __init__(self, rngs):
        pass

    def __call__(self, x):
        return jnp.tanh(x).mean(-1) * np.float64(0.75)


def test_a_factor_of_what_a_function_gives_is_named():
    (divergence,) = check(case(Mean, Halved), hasty=True).divergences[:1]
    (cause,) = divergence.causes
    assert cause.says in ("multiplies what tanh gives by 0.75", "multiplies what mean gives by 0.75")


class Counting(torch.nn.Module):
    """Keeps the mean of what it was given last."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)
        self.register_buffer("last", torch.ones(WIDTH))

    def forward(self, x):
        y = self.fc(x) * self.last.clone()
        with torch.no_grad():
            self.last.copy_(x.mean(0))
        return y


class CountingPort(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.last = nnx.BatchStat(jnp.ones(WIDTH))

    def __call__(self, x):
        y = self.fc(x) * self.last[...]
        self.last[...] = jax.lax.stop_gradient(x.mean(0))
        return y


class Both(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.make, self.critic = torch.nn.Linear(WIDTH, WIDTH), Counting()

    def forward(self, x):
        fake = torch.tanh(self.make(x))
        real, made = self.critic(x), self.critic(fake.detach())
        return real - made, self.critic(fake)


class BothPort(nnx.Module):
    def __init__(self, rngs, real_first):
        self.make, self.critic = nnx.Linear(WIDTH, WIDTH, rngs=rngs), CountingPort(rngs)
        self.real_first = real_first

    def __call__(self, x):
        fake = jnp.tanh(self.make(x))
        if self.real_first:
            real = self.critic(x)
            made = self.critic(jax.lax.stop_gradient(fake))
        else:
            made = self.critic(jax.lax.stop_gradient(fake))
            real = self.critic(x)
        return real - made, self.critic(fake)


def test_calls_of_a_module_that_keeps_something_in_another_order_are_named():
    assert check(case(Both, lambda rngs: BothPort(rngs, True)), hasty=True).passed
    found = check(case(Both, lambda rngs: BothPort(rngs, False)), hasty=True).divergences
    told = [(each.module, cause.id, cause.says) for each in found for cause in each.causes]
    assert told == [
        ("", "call-order", "calls critic in another order: on what the reference's calls 2, 1, 3 are given")
    ]


class Kept(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x, before, one, other):
        new = torch.tanh(self.fc(x + before))
        return torch.where(one, before, new), torch.where(other, x, new)


class KeptPort(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x, before, one, other):
        new = jnp.tanh(self.fc(x + before))
        return jnp.where(one, before, new), jnp.where(other, x, new)


class KeptOtherwise(KeptPort):
    """Takes its masks in another order."""

    def __call__(self, x, before, other, one):
        return super().__call__(x, before, one, other)


class Keeping(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = Kept()

    def forward(self, x, masks):
        state, given = torch.zeros_like(x[0]), []
        for t in range(len(x)):
            state, found = self.cell(x[t], state, masks[t, 0], masks[t, 1])
            given.append(found)
        return torch.stack(given), state


class KeepingPort(nnx.Module):
    def __init__(self, rngs, cell):
        self.cell = cell(rngs)

    def __call__(self, x, masks):
        state, given = jnp.zeros_like(x[0]), []
        for t in range(len(x)):
            state, found = self.cell(x[t], state, masks[t, 1], masks[t, 0])
            given.append(found)
        return jnp.stack(given), state


@pytest.mark.parametrize(("cell", "is_right"), [(KeptPort, False), (KeptOtherwise, True)])
def test_arguments_that_are_handed_the_other_way_round_are_the_fault_of_who_hands_them(cell, is_right):
    case = Case(
        name="c",
        summary="s",
        reference=Keeping,
        model=lambda rngs: KeepingPort(rngs, cell),
        inputs=lambda rng: (rng.standard_normal((2, 3, WIDTH)), rng.random((2, 2, 3, WIDTH)) < 0.4),
        adversarial=(),
    )
    report = check(case, compiled=False, hasty=True)
    assert report.passed == is_right
    found = [(each.module, cause.says) for each in report.divergences for cause in each.causes]
    assert found == ([] if is_right else [("", "hands 2 and 3 of cell the other way round")])
