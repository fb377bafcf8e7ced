"""What a module holds besides its parameters: a first state, a permutation, a mean; and tensors of one number."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from told_causes import causes

WIDTH = 6
ORDER = [2, 0, 3, 5, 1, 4]


def rows(rng):
    return (rng.standard_normal((5, WIDTH)).astype(np.float32),)


class Shuffled(torch.nn.Module):
    """Elements in another order, between a mean that is taken away and one that is added; the second is no buffer."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)
        order = torch.tensor(ORDER)
        self.register_buffer("perm", order, persistent=False)
        self.register_buffer("inv", order.argsort(), persistent=False)
        self.register_buffer("mean", torch.linspace(-1.0, 2.0, WIDTH))
        self.register_buffer("size", torch.linspace(0.5, 1.0, WIDTH))
        self.shift = torch.linspace(3.0, 1.0, WIDTH)

    def forward(self, x):
        x = torch.tanh(self.fc(x) / self.size + self.mean) * self.mean
        return torch.stack([x[:, self.perm], x[:, self.inv] * self.shift.to(x.dtype)])


def port(perm="perm", inv="inv", mean=lambda x: x, shift=lambda x: x, size="size"):
    class Port(nnx.Module):
        def __init__(self, rngs):
            self.fc = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
            self.mean = nnx.BatchStat(jnp.zeros(WIDTH))
            self.size = nnx.BatchStat(jnp.zeros(WIDTH))

        def __call__(self, x):
            orders = {"perm": jnp.array(ORDER), "inv": jnp.argsort(jnp.array(ORDER))}
            middle = mean(self.mean[...])
            x = jnp.tanh(self.fc(x) / getattr(self, size)[...] + middle) * middle
            first, second = (x[:, orders[name]] for name in (perm, inv))
            return jnp.stack([first, second * shift(jnp.linspace(3.0, 1.0, WIDTH, dtype=x.dtype))])

    return Port


@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        ({"inv": "perm"}, ("swapped-buffers", "uses perm for inv")),
        ({"perm": "inv", "inv": "perm"}, ("swapped-buffers", "swaps perm and inv")),
        ({"size": "mean"}, ("swapped-buffers", "uses mean for size")),
        ({"perm": "inv"}, ("swapped-buffers", "uses inv for perm")),
        ({"mean": jnp.negative}, ("sign", "has the sign of mean turned")),
        ({"shift": jnp.ones_like}, ("factor-missing", "leaves shift out")),
        ({"mean": jnp.zeros_like}, ("buffer-missing", "does not use mean (zero)")),
    ],
    ids=["for-another", "swapped", "of-numbers", "inverse", "sign", "attribute", "zero"],
)
def test_what_is_wrong_with_a_buffer_is_told_by_its_name(wrong, cause):
    found = causes(Shuffled, port(**wrong), rows)
    assert cause in found
    assert all(id != "inverse-permutation" for id, _ in found)  # the same as what is told


class Filtered(torch.nn.Module):
    """A state that a buffer starts and each step moves; the buffer is none of the port's."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)
        self.register_buffer("start", torch.full((WIDTH,), 0.5), persistent=False)

    def first(self, x):
        return self.start.expand(x.shape)

    def forward(self, x):
        state, moves = self.first(x), self.fc(x)
        for _ in range(3):
            state = torch.tanh(0.5 * state + moves)
        return state


class FilledFirst(Filtered):
    def first(self, x):
        return torch.zeros(x.shape, dtype=x.dtype)


def filtered(first):
    class Port(nnx.Module):
        def __init__(self, rngs):
            self.fc = nnx.Linear(WIDTH, WIDTH, rngs=rngs)

        def __call__(self, x):
            moves = self.fc(x)
            state = jnp.full(x.shape, first, x.dtype)
            for _ in range(3):
                state = jnp.tanh(0.5 * state + moves)
            return state

    return Port


@pytest.mark.parametrize(
    ("reference", "first", "cause"),
    [
        (Filtered, 0.0, ("buffer-missing", "does not use start (zero)")),
        (FilledFirst, 1.0, ("constant", "has 1 in all of what zeros gives, where the reference has 0")),
        (FilledFirst, 0.3, ("constant", "has 0.3 in all of what zeros gives, where the reference has 0")),
    ],
    ids=["buffer", "ones", "number"],
)
def test_another_first_state_is_named(reference, first, cause):
    assert causes(reference, filtered(first), rows)[0] == cause


class Counted(Shuffled):
    """It writes to a buffer that it reads: another one in its place is written to, and none outside of it."""

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.mean += x.mean(0)
        return super().forward(x)


def test_a_buffer_that_is_not_the_ports_fault_stays_as_it_is():
    reference = Counted()
    before = {name: x.clone() for name, x in reference.named_buffers()}
    causes(lambda: reference, port(inv="perm"), rows, modes=("inference",))
    assert all(torch.equal(x, before[name]) for name, x in reference.named_buffers())


class TwoViews(torch.nn.Module):
    """One norm for both inputs, as in BYOL and SimSiam: what it keeps is of both."""

    def __init__(self):
        super().__init__()
        self.bn = torch.nn.BatchNorm1d(WIDTH)

    def forward(self, a, b):
        return 2 * self.bn(a) + self.bn(b)


class PortOfTwoViews(nnx.Module):
    momentum = 0.9

    def __init__(self, rngs):
        self.bn = nnx.BatchNorm(WIDTH, momentum=self.momentum, epsilon=1e-5, rngs=rngs)

    def __call__(self, a, b):
        return 2 * self.bn(a) + self.bn(b)


def test_what_two_calls_of_a_module_keep_together_is_explained():
    ((cause, says),) = causes(TwoViews, PortOfTwoViews, lambda rng: rows(rng) + rows(rng))
    assert cause == "variance"
    assert "biased" in says
