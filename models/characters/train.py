"""Learns to spell Python. The PyTorch twin is `train_reference.py`.

python -m graphmode.models.characters.train
"""

import jax
import numpy as np
from flax import nnx

import graphmode as gm
import graphmode.nn.functional as F

from .model import CharacterModel
from .text import SYMBOLS, windows

BATCH, LENGTH, STEPS = 32, 64, 400


def loss(model: nnx.Module, batch: tuple[jax.Array, jax.Array]) -> jax.Array:
    symbols, following = batch
    return F.cross_entropy(model(symbols).reshape(-1, SYMBOLS), following.reshape(-1))


def make_step(model: nnx.Module) -> gm.training.TrainStep:
    optimizer = gm.optim.adamw(lr=3e-3, weight_decay=0.01)
    return gm.train_step(model, loss, optimizer, clip_norm=1.0)


def main() -> None:
    step = make_step(CharacterModel(rngs=nnx.Rngs(0)))
    rng = np.random.default_rng(0)
    data = (windows(rng, BATCH, LENGTH) for _ in range(STEPS))
    run = gm.training.fit(step, data, steps=STEPS)
    print(f"{run.history['loss'][-20:].mean() / np.log(2):.2f} bits a character after {STEPS} steps")


if __name__ == "__main__":
    main()
