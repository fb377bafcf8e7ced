"""Characters: a training run of an embedding, an LSTM and a head, on real text."""

import numpy as np
from graphmode.compare.training import Training

from . import train, train_reference
from .model import CharacterModel
from .reference import CharacterModel as Reference
from .text import windows


def batches(rng: np.random.Generator, count: int):
    return (windows(rng, train.BATCH, train.LENGTH) for _ in range(count))


TRAINING = Training(
    name="characters",
    summary="backpropagation through time, clipping and AdamW as one donated graph",
    reference=Reference,
    model=CharacterModel,
    reference_step=train_reference.make_step,
    model_step=train.make_step,
    batches=batches,
)
