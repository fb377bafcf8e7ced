"""A buffer that a call reads and writes: a port that does so in the other order."""

import jax
import jax.numpy as jnp
import pytest
import torch
from flax import nnx
from told_causes import causes

WIDTH = 4


class Following(torch.nn.Module):
    """A mean that is moved before it is used, and a memory that is used before it is written."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mean", torch.randn(WIDTH))
        self.register_buffer("memory", torch.randn(6, WIDTH))

    @torch.no_grad()
    def follow(self, h):
        self.mean.mul_(0.9).add_(h.mean(0), alpha=0.1)

    def forward(self, x):
        h = self.fc(x)
        self.follow(h)
        scores = (h - self.mean) @ self.memory.clone().T
        with torch.no_grad():
            self.memory[: len(h)] = h
        return scores


def port(late=False, early=False):
    class Port(nnx.Module):
        def __init__(self, rngs):
            self.fc = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
            self.mean, self.memory = nnx.BatchStat(jnp.zeros(WIDTH)), nnx.BatchStat(jnp.zeros((6, WIDTH)))

        def __call__(self, x):
            h = self.fc(x)
            fixed = jax.lax.stop_gradient(h)
            mean, memory = 0.9 * self.mean[...] + 0.1 * fixed.mean(0), self.memory[...].at[: len(h)].set(fixed)
            scores = (h - (self.mean[...] if late else mean)) @ (memory if early else self.memory[...]).T
            self.mean[...], self.memory[...] = mean, memory
            return scores

    return Port


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"late": True}, "computes with what mean held before this call"),
        ({"early": True}, "computes with what memory will hold after this call"),
    ],
)
def test_a_buffer_that_is_read_on_the_other_side_of_its_write_is_told(wrong, says):
    found = causes(Following, port(**wrong), lambda rng: (rng.standard_normal((3, WIDTH)),))
    assert {(id, words.startswith(says)) for id, words in found} == {("buffer-order", True)}, found
