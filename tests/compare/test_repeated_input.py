"""A tensor that the reference hands to a module in several places, and the port in fewer."""

import jax
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from looked_into import look

WIDTH = 4


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (torch.nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, q, k, v):
        return torch.softmax(self.q(q) @ self.k(k).transpose(1, 2), -1) @ self.v(v)


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.out = Attention(), torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return torch.relu(self.out(x + self.attention(x, x, x)))


class AttentionPort(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.q, self.k, self.v = (nnx.Linear(WIDTH, WIDTH, rngs=rngs) for _ in range(3))

    def keys(self, x):
        return self.k(x)

    def __call__(self, x, y=None):
        y = x if y is None else y
        return jax.nn.softmax(self.q(x) @ self.keys(y).swapaxes(1, 2), -1) @ self.v(y)


class Stopped(AttentionPort):
    def keys(self, x):
        return jax.lax.stop_gradient(self.k(x))


class Once(nnx.Module):
    attention_of = AttentionPort

    def __init__(self, rngs: nnx.Rngs):
        self.attention, self.out = self.attention_of(rngs), nnx.Linear(WIDTH, WIDTH, rngs=rngs)

    def attend(self, x):
        return self.attention(x)

    def __call__(self, x):
        return jax.nn.relu(self.out(x + self.attend(x)))


class Twice(Once):
    def attend(self, x):
        return self.attention(x, x)


class StoppedOnce(Once):
    attention_of = Stopped


class StoppedTwice(Twice):
    attention_of = Stopped


def case(port):
    def inputs(rng):
        return (rng.standard_normal((2, 3, WIDTH)),)

    return Case(name="c", summary="s", reference=Layer, model=port, inputs=inputs, adversarial=())


@pytest.mark.parametrize("port", [Once, Twice])
def test_a_right_port_has_the_gradient_of_all_places(port):
    assert not look(case(port)).suspects


@pytest.mark.parametrize("port", [StoppedOnce, StoppedTwice])
def test_a_gradient_that_is_wrong_in_one_place_is_explained(port):
    (divergence,) = check(case(port), hasty=True).divergences
    assert divergence.module == "attention"
    assert [cause.id for cause in divergence.causes] == ["stop-gradient"]
