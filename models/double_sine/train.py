"""Moves a point until its double sine is one everywhere. The PyTorch twin is `train_reference.py`.

python -m graphmode.models.double_sine.train
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import graphmode as gm

from .model import DoubleSine

LENGTH, STEPS = 4096, 200


class Point(nnx.Module):
    """A point that is learned: `() -> [N]`, its double sine."""

    def __init__(self, start: jax.Array, rngs: nnx.Rngs):
        self.x = nnx.Param(start)
        self.double_sine = DoubleSine(rngs)

    def __call__(self) -> jax.Array:
        return self.double_sine(self.x[...])


def loss(model: Point, ones: jax.Array) -> jax.Array:
    return jnp.sum((model() - ones) ** 2)


def make_step(model: nnx.Module) -> gm.training.TrainStep:
    return gm.train_step(model, loss, gm.optim.adam(lr=0.1))


def main() -> None:
    start = np.random.default_rng(0).uniform(-0.7, 0.7, LENGTH).astype(np.float32)
    step = make_step(Point(jnp.asarray(start), nnx.Rngs(0)))
    run = gm.training.fit(step, [np.ones(LENGTH, np.float32)] * STEPS)
    print(f"loss {run.history['loss'][-1]:.3g} after {STEPS} steps")


if __name__ == "__main__":
    main()
