"""Digits: a training run of a convolutional network with batch norm, on real images, and what it has learned."""

import numpy as np
from graphmode.compare.case import channels_last
from graphmode.compare.training import Training

from . import train, train_reference
from .images import digits
from .model import DigitNet
from .reference import DigitNet as Reference


def batches(rng: np.random.Generator, count: int):
    (images, labels), _ = digits()
    order: list[int] = []
    for _ in range(count):
        if len(order) < train.BATCH:
            order = list(rng.permutation(len(labels)))
        rows, order = order[: train.BATCH], order[train.BATCH :]
        yield images[rows], labels[rows]


def reference_score(model):
    import torch

    kind = next(model.parameters())
    images, labels = digits()[1]
    return {
        "test accuracy": train_reference.accuracy(
            model, torch.from_numpy(images).to(kind), torch.from_numpy(labels).to(kind.device)
        )
    }


def score(model):
    images, labels = channels_last(digits()[1])
    return {"test accuracy": train.accuracy(model, (images.astype(model.fc.weight.dtype), labels))["accuracy"]}


TRAINING = Training(
    name="digits",
    summary="forward, backward, Adam and running statistics as one donated graph",
    reference=Reference,
    model=DigitNet,
    reference_step=train_reference.make_step,
    model_step=train.make_step,
    batches=batches,
    to_model=channels_last,
    scores=(reference_score, score),
)
