"""Causes of a port that loses what some of a module's calls keep, as it calls a copy of it there."""

import jax
import jax.numpy as jnp
import pytest
import torch
from flax import nnx
from told_causes import causes

import graphmode as gm

SIZE, STEPS = 4, 3


class Normed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(SIZE)

    def forward(self, x):
        return torch.stack([self.norm(x[:, t]) for t in range(STEPS)], 1)


class NormedPort(nnx.Module):
    def __init__(self, rngs, copied):
        self.norm = gm.nn.BatchNorm1d(SIZE, rngs=rngs)
        self.copied = copied

    def __call__(self, x):
        norms = [nnx.clone(self.norm) if t in self.copied else self.norm for t in range(STEPS)]
        return jnp.stack([norm(x[:, t]) for t, norm in enumerate(norms)], 1)


@pytest.mark.parametrize(("copied", "words"), [((1, 2), "each but the first"), ((1,), "call 2")])
def test_what_the_calls_of_a_copy_keep_is_lost(copied, words):
    inputs = lambda rng: (rng.standard_normal((6, STEPS, SIZE)),)  # noqa: E731
    ((id, says),) = causes(Normed, lambda rngs: NormedPort(rngs, copied), inputs)
    kept = "norm.running_mean, norm.running_var, norm.num_batches_tracked"
    assert (id, says) == ("state-lost", f"loses what {words} of its {STEPS} calls writes into {kept}")


class Counted(torch.nn.Module):
    """Grows with each of its calls."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(SIZE, 1)
        self.register_buffer("calls", torch.ones(()))

    def forward(self, x):
        if self.training:
            self.calls.mul_(1.25)
        return torch.tanh(self.fc(x) * self.calls.clone())


class Penalised(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = Counted()

    def forward(self, x, y):
        real, x = self.critic(x), x.detach().requires_grad_(True)
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(self.critic(x).sum(), x, create_graph=True)
        return real.mean() + slope.square().mean() - self.critic(y).mean()


class CountedPort(nnx.Module):
    def __init__(self, rngs):
        self.fc = gm.nn.Linear(SIZE, 1, rngs=rngs)
        self.calls = nnx.BatchStat(jnp.ones(()))
        self.training = True

    def __call__(self, x):
        if self.training:
            self.calls[...] *= 1.25
        return jnp.tanh(self.fc(x) * self.calls[...])


class PenalisedPort(nnx.Module):
    def __init__(self, rngs):
        self.critic = CountedPort(rngs)

    def __call__(self, x, y):
        real = self.critic(x)
        slope = nnx.grad(lambda x, critic: critic(x).sum())(jax.lax.stop_gradient(x), nnx.clone(self.critic))
        return real.mean() + jnp.square(slope).mean() - self.critic(y).mean()


def test_what_a_call_within_a_transform_keeps_is_lost():
    inputs = lambda rng: (rng.standard_normal((5, SIZE)), rng.standard_normal((5, SIZE)))  # noqa: E731
    ((id, says),) = causes(Penalised, PenalisedPort, inputs)
    assert (id, says) == ("state-lost", "loses what call 2 of its 3 calls writes into critic.calls")
