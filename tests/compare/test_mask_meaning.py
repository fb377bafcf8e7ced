"""Masks of the opposite meaning: True for what counts on one side, and for the padding on the other."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from looked_into import look

import graphmode as gm

WIDTH, LENGTH = 6, 5


class Pool(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.score = torch.nn.Linear(WIDTH, 1)

    def forward(self, x, padding):
        scores = self.score(x)[..., 0].masked_fill(padding, -torch.inf)
        return (torch.softmax(scores, -1)[..., None] * x).sum(1)


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.pool, self.last = torch.nn.Linear(WIDTH, WIDTH), Pool(), torch.nn.Linear(WIDTH, 2)

    def forward(self, x, lengths):
        padding = torch.arange(LENGTH) >= lengths[:, None]
        return self.last(self.pool(torch.tanh(self.first(x)), padding))


class PortPool(nnx.Module):
    def __init__(self, rngs, bug):
        self.score, self.bug = gm.nn.Linear(WIDTH, 1, rngs=rngs), bug

    def __call__(self, x, mask):
        counts = mask if self.bug != "reads padding" else ~mask
        scores = jnp.where(counts, self.score(x)[..., 0], -jnp.inf)
        weights = jax.nn.softmax(scores * (0.5 if self.bug == "pool" else 1.0), -1)
        return (weights[..., None] * x).sum(1)


class Port(nnx.Module):
    def __init__(self, rngs, bug=""):
        self.first, self.pool = gm.nn.Linear(WIDTH, WIDTH, rngs=rngs), PortPool(rngs, bug)
        self.last, self.bug = gm.nn.Linear(WIDTH, 2, rngs=rngs), bug

    def __call__(self, x, lengths):
        counts = jnp.arange(LENGTH) < lengths[:, None]
        counts = counts.at[0, 0].set(self.bug != "mask")
        hidden = self.first(x)
        return self.last(self.pool(jnp.sin(hidden) if self.bug == "model" else jnp.tanh(hidden), counts))


RIGHT = Case(
    name="pool",
    summary="a pooling of what counts",
    reference=Reference,
    model=Port,
    inputs=lambda rng: (rng.standard_normal((4, LENGTH, WIDTH)), rng.integers(1, LENGTH, 4)),
)


def wrong(bug):
    return dataclasses.replace(RIGHT, model=lambda rngs: Port(rngs, bug))


@pytest.mark.parametrize(("bug", "module"), [("model", ""), ("pool", "pool"), ("reads padding", ""), ("mask", "")])
def test_the_one_that_is_wrong_is_accused_alone(bug, module):
    """A module that reads the reference's mask is right, and who hands it the opposite, or another one, is not."""
    found = look(wrong(bug)).divergences()
    assert [each.module for each in found] == [module]
    handed = {each.tensor for each in found[0].findings if each.what == "received"}
    of_mask = {"1 of pool"}
    assert handed == {"model": {"0 of pool"}, "pool": set(), "reads padding": of_mask, "mask": of_mask}[bug]


class Attending(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(WIDTH, 2)

    def forward(self, x, mask):
        return x + self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]


class Causal(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = Attending()

    def forward(self, x):
        return self.layer(x, torch.triu(torch.ones(len(x), len(x), dtype=torch.bool), diagonal=1))


class PortAttending(nnx.Module):
    def __init__(self, rngs):
        self.attention = gm.nn.MultiheadAttention(WIDTH, 2, rngs=rngs)

    def __call__(self, x, mask):
        return x + self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]


class PortCausal(nnx.Module):
    def __init__(self, rngs, below):
        self.layer, self.below = PortAttending(rngs), below

    def __call__(self, x):
        return self.layer(x, jnp.tril(jnp.ones((len(x), len(x)), bool), k=self.below))


@pytest.mark.parametrize(
    ("below", "cause"),
    [(0, ("mask-polarity", "has the mask the other way round")), (-1, ("causal-mask", "masks the past"))],
)
def test_a_mask_of_another_meaning_is_told_of_who_makes_it_and_not_of_who_hands_it_on(below, cause):
    case = Case(
        name="causal",
        summary="a layer that hands its mask on",
        reference=Causal,
        model=lambda rngs: PortCausal(rngs, below),
        inputs=lambda rng: (rng.standard_normal((LENGTH, 2, WIDTH)),),
        adversarial=(),
    )
    (found,) = check(case, compiled=False, hasty=True).divergences
    assert (found.module, [(each.id, each.says) for each in found.causes]) == ("", [cause]), found
