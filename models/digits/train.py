"""Learns to read digits. The PyTorch twin is `train_reference.py`.

python -m graphmode.models.digits.train
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import ArrayLike

import graphmode as gm
import graphmode.nn.functional as F

from .images import digits
from .model import DigitNet

BATCH, EPOCHS = 64, 15


def loss(model: nnx.Module, batch: tuple[jax.Array, jax.Array]) -> jax.Array:
    images, labels = batch
    return F.cross_entropy(model(images), labels)


def make_step(model: nnx.Module) -> gm.training.TrainStep:
    return gm.train_step(model, loss, gm.optim.adam(lr=1e-3))


def accuracy(model: nnx.Module, batch: tuple[ArrayLike, ArrayLike]) -> dict[str, jax.Array]:
    images, labels = batch
    return {"accuracy": jnp.mean(model(images).argmax(-1) == labels)}


def main() -> None:
    train, test = ((np.moveaxis(images, 1, -1), labels) for images, labels in digits())
    step = make_step(DigitNet(rngs=nnx.Rngs(0)))
    data = gm.training.from_arrays(train, batch_size=BATCH)
    run = gm.training.fit(step, data, epochs=EPOCHS, evaluation=gm.training.Evaluation([test], accuracy))
    print(f"test accuracy {run.evaluations[-1][1]['accuracy']:.1%} after {int(run.state.step)} steps")


if __name__ == "__main__":
    main()
