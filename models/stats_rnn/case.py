"""A loop with a print in it: `lax.scan`, `lax.cond` and `jax.debug.print`."""

import numpy as np
import optax
from graphmode.compare.case import Case

from . import model
from .reference import StatsRNN

STEPS, BATCH, IN_FEATURES = 30, 16, 12
PRINTS = "printing a statistic reads it back to the host, which capture forbids"
NOT_EXPORTABLE = "torch.export cannot turn a value into the Python number that is printed"


def momentum(parameters):
    import torch

    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


def normal(rng: np.random.Generator, steps: int = STEPS, batch: int = BATCH):
    return (rng.standard_normal((steps, batch, IN_FEATURES)),)


CASE = Case(
    name="stats_rnn",
    summary="a loop that prints every tenth step becomes a scan with a debug print under a cond, or after it",
    reference=StatsRNN,
    model={"in the loop": model.StatsRNN, "after it": model.CollectedStatsRNN},
    inputs=normal,
    optimizer=(momentum, optax.sgd(0.01, momentum=0.9)),
    modes=("inference", "forward_backward"),  # its steps of training take a minute: `--mode train_step`
    edge_inputs={
        "batch of one": lambda rng: normal(rng, batch=1),
        "one step": lambda rng: normal(rng, steps=1),
        "nine steps, no print": lambda rng: normal(rng, steps=9),
    },
    expected={
        "torch.trace": "records the loop unrolled at the length of the example, and prints while it records",
        "torch.cudagraph": PRINTS,
        "torch.graphed_callables": PRINTS,
        "torch.aoti": NOT_EXPORTABLE,
    },
    patience={"torch.trace": 3.0},
    tags=("recurrent", "host"),
)
