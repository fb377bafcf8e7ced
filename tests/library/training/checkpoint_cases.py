"""Small training steps for the tests of checkpoints: one of each thing that a state may hold."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import graphmode as gm


class Model(nnx.Module):
    """With running statistics and random numbers."""

    def __init__(self, rngs: nnx.Rngs, *, hidden: int = 16, bias: bool = True, norm: bool = True):
        self.first = gm.nn.Linear(8, hidden, bias=bias, rngs=rngs)
        self.norm = gm.nn.BatchNorm1d(hidden) if norm else None
        self.dropout = gm.nn.Dropout(0.3, rngs=rngs)
        self.second = gm.nn.Linear(hidden, 1, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.first(x.astype(self.first.weight.dtype))
        return self.second(self.dropout(jax.nn.relu(self.norm(x) if self.norm is not None else x)))


def squared_error(model: Model, batch: dict[str, jax.Array]) -> jax.Array:
    return jnp.mean((model(batch["x"]) - batch["y"]) ** 2)


def halves(model: Model) -> Model:
    """The same with parameters in bfloat16."""
    nnx.update(model, jax.tree.map(lambda x: x.astype(jnp.bfloat16), nnx.state(model, nnx.Param)))
    return model


def make(model: Model | None = None, tx: Any = None, **options: Any) -> gm.training.TrainStep:
    model = Model(nnx.Rngs(0)) if model is None else model
    return gm.train_step(model, squared_error, gm.optim.adam(lr=1e-2) if tx is None else tx, **options)


CASES: dict[str, Callable[[], gm.training.TrainStep]] = {
    "adam": make,
    "bfloat16 parameters": lambda: make(halves(Model(nnx.Rngs(0), norm=False)), gm.optim.sgd(lr=1e-2, momentum=0.9)),
    "loss scale": lambda: make(
        precision="float16", loss_scaling=gm.training.LossScaling(init_scale=2.0**24, growth_interval=3)
    ),
    "schedule": lambda: make(tx=gm.optim.adamw(lr=optax.cosine_decay_schedule(0.1, 12))),
    "optax chain": lambda: make(tx=optax.chain(optax.clip(0.1), optax.adamw(optax.linear_schedule(0.1, 0, 12)))),
    "averages": lambda: make(averaging=gm.optim.ema(0.9)),
    "accumulated": lambda: make(accumulate=2, clip_norm=0.5),
    "frozen": lambda: make(frozen="first"),
}


def batch(number: int) -> dict[str, np.ndarray]:
    x = np.random.default_rng(number).normal(size=(16, 8)).astype(np.float32)
    return {"x": x, "y": np.sin(x.sum(1, keepdims=True))}


def run(step: gm.training.TrainStep, state: Any, numbers: range) -> tuple[Any, list[bytes]]:
    losses = []
    for number in numbers:
        state, metrics = step(state, batch(number))
        losses.append(np.asarray(metrics["loss"]).tobytes())
    return state, losses


def bits(state: Any) -> list[tuple[str, str, tuple[int, ...], bytes]]:
    """Every array of a state: path, dtype, shape and bits."""
    found = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        array = np.asarray(jax.random.key_data(leaf) if is_key else leaf)
        found.append((jax.tree_util.keystr(path), str(leaf.dtype), leaf.shape, array.tobytes()))
    return found
