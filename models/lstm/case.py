"""A recurrent layer: a Python loop over time, and the fused kernel, against one `lax.scan`.

The judge is PyTorch's own layer. Its float32 bias gradients, one long sum each, are five times as far from the float64
ones as those of the loop or of the port; all else is alike.
"""

import numpy as np
from graphmode.compare.case import Case

from ..optimizers import adam
from .model import LSTM
from .reference import FusedLSTM, HandwrittenLSTM

UNROLLS = "unrolls the loop, and compiles a hundred steps for a minute"
LAUNCH = "ten steps in one launch take some seconds on a CPU"
STEPS, BATCH, IN_FEATURES = 100, 64, 512


def normal(rng: np.random.Generator, steps: int = STEPS, batch: int = BATCH):
    return (rng.standard_normal((steps, batch, IN_FEATURES)),)


CASE = Case(
    name="lstm",
    summary="a loop over time becomes lax.scan, and what needs no earlier step runs once for a block of steps",
    reference={"fused": FusedLSTM, "handwritten": HandwrittenLSTM},
    model=LSTM,
    inputs=normal,
    check_inputs=lambda rng: normal(rng, steps=20, batch=5),
    edge_inputs={
        "batch of one": lambda rng: normal(rng, steps=7, batch=1),
        "one step": lambda rng: normal(rng, steps=1, batch=3),
        "saturated gates": lambda rng: (30 * rng.standard_normal((5, 3, IN_FEATURES)),),
    },
    optimizer=adam(1e-3),
    modes=("inference", "forward_backward"),
    expected={
        "handwritten/torch.trace": "records the loop unrolled at the length of the example",
        "handwritten/torch.compile": UNROLLS,
        "handwritten/torch.aoti": UNROLLS,
        "handwritten/onnxruntime": UNROLLS,
        "fused/torch.script": "TorchScript has no super()",
        "jax.scan": LAUNCH,
    },
    patience={
        "handwritten/torch.trace": 1.5,
        "handwritten/torch.compile": 1.5,
        "handwritten/torch.aoti": 2.0,
        "handwritten/onnxruntime": 2.0,
        "jax.scan": 6.0,
    },
    sweep=lambda rng, batch: normal(rng, batch=batch),
    tags=("recurrent",),
)
