"""Causes that would give what the port gives, and that the port shows to be untrue."""

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx
from graphmode.compare.parity.causes.target import Aim, Target
from graphmode.compare.parity.causes.wrong_call import WrongCall
from told_causes import causes

import graphmode as gm


class Counting(torch.nn.Module):
    """Each second step is another one."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        y = self.linear(x)
        if self.training:
            self.steps += 1
        return y + torch.tanh(y) if self.steps % 2 == 0 else y


class CountingLate(nnx.Module):
    def __init__(self, rngs):
        self.linear = gm.nn.Linear(3, 3, rngs=rngs)
        self.steps = nnx.BatchStat(jnp.zeros((), int))
        self.training = True

    def __call__(self, x):
        y = self.linear(x)
        due = self.steps[...] % 2 == 0
        if self.training:
            self.steps[...] = self.steps[...] + 1
        return jnp.where(due, y + jnp.tanh(y), y)


def test_a_comparison_that_the_port_does_not_make_is_no_cause():
    found = causes(Counting, CountingLate, lambda rng: (rng.standard_normal((8, 3)),))
    assert {id for id, _ in found} == {"buffer-order"}


class Chosen(torch.nn.Module):
    """Of each row the element with the largest score, and of it no more than which it is."""

    def forward(self, x, y):
        scores = 3 * x + y
        return torch.zeros_like(x).scatter(-1, scores.argmax(-1, keepdim=True), 1.0)


class ChosenByMore(nnx.Module):
    """Has the scores; others choose."""

    def __call__(self, x, y):
        scores = 3 * x + y
        return jax.nn.one_hot(jnp.argmax(scores + 3 * jnp.sinh(x), axis=-1), x.shape[-1], dtype=x.dtype)


def test_arithmetic_that_the_port_has_unchanged_is_not_told_to_be_another_where_it_only_chooses():
    found = causes(
        Chosen,
        lambda rngs: ChosenByMore(),
        lambda rng: (rng.standard_normal((6, 5)), rng.standard_normal((6, 5))),
    )
    assert not [says for id, says in found if id.partition("-")[0] in ("factor", "summand", "scale", "constant")]


def test_a_loss_and_a_sum_that_it_is_a_term_of_are_one_error():
    def aim(reference, port):
        return Aim(np.array(port), np.array(reference), 1.0)

    one = {("output", "0"): aim(3.5, 3.75), ("output", "1"): aim(1.5, 1.75)}
    assert Target(one).kinds_of_error() == 1
    assert Target({**one, ("output", "2"): aim(1.5, 1.25)}).kinds_of_error() == 2
    assert Target({("output", "0"): aim([1.0, 2.0], [1.5, 2.5])}).kinds_of_error() == 2


def test_a_single_bool_that_is_off_is_counted_as_others_are():
    flag = Target({("output", "done"): Aim(np.array(True), np.array(False), 1.0)})
    assert flag.kinds_of_error() == 1


class Doubled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x):
        return torch.tanh(self.linear(x)).clamp(-0.5, 0.5) * x


class NotLimited(nnx.Module):
    def __init__(self, rngs):
        self.linear = gm.nn.Linear(3, 3, rngs=rngs)

    def __call__(self, x):
        return jnp.tanh(self.linear(x)) * x


def test_what_cannot_be_tried_backward_refutes_nothing(monkeypatch):
    usual = WrongCall.settle
    monkeypatch.setattr(WrongCall, "settle", lambda call: not call.replay.module.training and usual(call))
    found = causes(Doubled, NotLimited, lambda rng: (rng.standard_normal((8, 3)),))
    assert {id for id, _ in found} == {"limits"}
