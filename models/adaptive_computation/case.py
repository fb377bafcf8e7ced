"""Adaptive computation time: a data-dependent exit for each example, and the gradient through it."""

from __future__ import annotations

import numpy as np
from graphmode.compare import Case

from ..optimizers import adamw
from .model import AdaptiveComputation as Port

TIME, BATCH, IN_FEATURES = 4, 5, 7
EXITS = "leaves the loop by a score that is read back to the host"


def _reference():
    from .reference import AdaptiveComputation

    return AdaptiveComputation()


def normal(rng: np.random.Generator, batch: int = BATCH, time: int = TIME, urgency: float | None = None):
    """Inputs, and the urgency of each: of about one to six steps where it is None."""
    x = rng.standard_normal((time, batch, IN_FEATURES)).astype(np.float32)
    drawn = rng.uniform(-3, 3, (time, batch)) if urgency is None else np.full((time, batch), urgency)
    return x, drawn.astype(np.float32)


def mixed(rng: np.random.Generator):
    """In one batch, one that halts at once, one that never does, and some between."""
    x, urgency = normal(rng)
    urgency[:, 0], urgency[:, 1] = 20, -20
    return x, urgency


CASE = Case(
    name="adaptive_computation",
    summary="a loop that each example ends itself is a bounded while_loop under vmap, with its gradient",
    reference=_reference,
    model=lambda rngs: Port(rngs=rngs),
    inputs=normal,
    edge_inputs={
        "halts at once": lambda rng: normal(rng, urgency=20),
        "halts at the bound": lambda rng: normal(rng, urgency=-20),
        "mixed": mixed,
    },
    optimizer=adamw(1e-3),
    modes=("inference", "forward_backward"),
    expected={
        "torch.trace": "records the steps of the example",
        "torch.script": "cannot type a sum that begins as a number and becomes a tensor",
        "torch.cudagraph": EXITS,
        "torch.graphed_callables": EXITS,
        "torch.aoti": EXITS,
        "onnxruntime": EXITS,
    },
    sweep=normal,
    tags=("recurrent", "control", "training"),
)
