"""A port of one's own: an eager PyTorch model with an `if`, its Flax port, and the case that binds the two."""

import jax
import jax.numpy as jnp
import torch
from flax import nnx
from graphmode.compare import Case

LIMIT = 6.0


class TinyMLP(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Linear(16, 32)
        self.head = torch.nn.Linear(32, 4)

    def forward(self, x):
        h = torch.relu(self.hidden(x))
        if h.norm() > LIMIT:
            h = h * (LIMIT / h.norm())
        return self.head(h)


class TinyMLPPort(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.hidden = nnx.Linear(16, 32, rngs=rngs)
        self.head = nnx.Linear(32, 4, rngs=rngs)

    def __call__(self, x):
        h = jax.nn.relu(self.hidden(x))
        h = jax.lax.cond(jnp.linalg.norm(h) > LIMIT, lambda h: h * (LIMIT / jnp.linalg.norm(h)), lambda h: h, h)
        return self.head(h)


CASE = Case(
    name="tiny_mlp",
    summary="a branch on the data becomes lax.cond",
    reference=TinyMLP,
    model=TinyMLPPort,
    inputs=lambda rng: (rng.standard_normal((8, 16)),),
    edge_inputs={
        "below the limit": lambda rng: (0.01 * rng.standard_normal((8, 16)),),
        "far above it": lambda rng: (100 * rng.standard_normal((8, 16)),),
        "a batch of one": lambda rng: (rng.standard_normal((1, 16)),),
    },
    expected={"torch.trace": "a trace records one branch"},
)
