"""A number that values are compared with, and what inputs tell on which the port is right."""

import jax
import jax.numpy as jnp
import pytest
import torch
from flax import nnx
from told_causes import causes

ROWS, WIDTH = 6, 4


class Chosen(torch.nn.Module):
    """Only rows of a large sum are scaled."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        y = x.clone()
        chosen = x.sum(1) > 0.25
        y[chosen] = self.layer(x[chosen])
        return y


class Port(nnx.Module):
    def __init__(self, rngs, limit=0.7):
        self.layer, self.limit = nnx.Linear(WIDTH, WIDTH, rngs=rngs), limit

    def __call__(self, x):
        return jnp.where((x.sum(1) > self.limit)[:, None], self.layer(x), x)


def inputs(rng):
    return (rng.normal(size=(ROWS, WIDTH)),)


def test_another_number_is_found_by_what_it_makes_of_the_values():
    ((id, says),) = causes(Chosen, Port, inputs)
    assert id == "threshold"
    assert "for 0.25" in says


class Seldom(Chosen):
    """Of few rows, so that on many inputs nothing is chosen, or the same."""

    def forward(self, x):
        return super().forward(x[:3])


class SeldomPort(Port):
    def __call__(self, x):
        return super().__call__(x[:3])


def test_a_cause_that_other_inputs_speak_against_is_not_told():
    told = causes(Seldom, lambda rngs: SeldomPort(rngs, limit=0.75), inputs)
    assert [id for id, _ in told] in ([], ["threshold"])


class Rejecting(torch.nn.Module):
    """Counts those of the rows that a mask leaves which are not small."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(WIDTH, 1)
        self.register_buffer("rejected", torch.tensor(0))

    def forward(self, x, seen):
        y, total = self.layer(x)[:, 0], x.new_zeros(())
        for i in range(len(x)):
            if seen[i]:
                total = total + (y[i] if y[i] < 0.2 else 0)
                self.rejected += int(y[i] >= 0.2)
        return torch.tanh(total)


class RejectsAll(nnx.Module):
    def __init__(self, rngs):
        self.layer, self.rejected = nnx.Linear(WIDTH, 1, rngs=rngs), nnx.BatchStat(jnp.array(0))

    def __call__(self, x, seen):
        y = self.layer(x)[:, 0]
        small = y < 0.2
        self.rejected[...] += jnp.sum(~small)
        return jnp.tanh(jnp.sum(jnp.where(seen & small, y, 0)))


def test_of_a_number_that_is_compared_with_rightly_none_other_is_told_by_a_count_alone():
    def masked(rng):
        return rng.standard_normal((8, WIDTH)), rng.random(8) < 0.7

    assert causes(Rejecting, RejectsAll, masked, modes=("forward_backward",)) == []


class Picked(torch.nn.Module):
    """Of a row's parts the one with the largest sum of scores."""

    def __init__(self):
        super().__init__()
        self.score = torch.nn.Linear(3, 3)

    def forward(self, x):
        scores = (self.score(x) - 0.5 * x).sum(-1)
        return x[torch.arange(len(x)), scores.argmax(-1)]


class PickedByOthers(nnx.Module):
    def __init__(self, rngs):
        self.score = nnx.Linear(3, 3, rngs=rngs)

    def __call__(self, x):
        scores = (self.score(x) + 0.5 * x).sum(-1)
        return jnp.take_along_axis(x, scores.argmax(-1)[:, None, None], 1)[:, 0]


def test_what_decides_a_choice_alone_is_told_as_one_of_several():
    parts = lambda rng: (rng.standard_normal((12, 5, 3)),)  # noqa: E731
    ((_, says), *_) = causes(Picked, PickedByOthers, parts)
    assert says.endswith(", or something else by which the same is chosen: nothing but a choice hangs on it here")


class Softplus(torch.nn.Module):
    def __init__(self, threshold):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(WIDTH))
        self.softplus = torch.nn.Softplus(threshold=threshold)

    def forward(self, x):
        return self.softplus(x * self.weight)


class SoftplusPort(nnx.Module):
    def __init__(self, rngs):
        self.weight = nnx.Param(jnp.ones(WIDTH))

    def __call__(self, x):
        return jax.nn.softplus(x * self.weight[...])


@pytest.mark.parametrize("threshold", [5, 20])
def test_a_softplus_without_a_threshold_is_named_however_little_that_changes(threshold):
    """Beyond 20 a gradient differs by 2e-9, and an output by less than that counts."""
    told = causes(lambda: Softplus(threshold), SoftplusPort, lambda rng: (25 * rng.random((ROWS, WIDTH)),))
    says = f"computes softplus everywhere, as jax.nn.softplus does; the reference's is x where x > {threshold}"
    assert told == [("softplus-threshold", says)]
