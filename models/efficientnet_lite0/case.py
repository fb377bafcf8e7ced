"""EfficientNet-lite0 on real weights and photographs: padding computed from the size is a constant of the graph."""

from __future__ import annotations

import numpy as np
from flax import nnx
from graphmode.compare import Case, channels_last

from ..optimizers import momentum
from .model import EfficientNetLite0
from .photographs import photographs, readings, varied

LOOPED = "XLA on a CPU computes the gradient of a convolution inside a loop without its fast kernel, ten times slower"


def _inputs(rng: np.random.Generator) -> tuple[np.ndarray]:
    return (varied(rng)[rng.integers(4)][None],)


def _batch(rng: np.random.Generator, batch: int) -> tuple[np.ndarray]:
    return (np.concatenate([varied(rng) for _ in range(-(-batch // 4))])[:batch],)


def _photographs(rng: np.random.Generator) -> tuple[np.ndarray]:
    return (photographs(),)


def _one_photograph(rng: np.random.Generator) -> tuple[np.ndarray]:
    return (photographs()[:1],)


def _reference():
    from .reference import EfficientNetLite0

    return EfficientNetLite0()


def _weights():
    from .reference import pretrained_weights

    return pretrained_weights()


def _model(rngs: nnx.Rngs) -> EfficientNetLite0:
    return EfficientNetLite0(rngs=rngs)


CASE = Case(
    name="efficientnet_lite0",
    summary="a mobile image classifier with ImageNet weights: padding computed from the size becomes a constant",
    reference=_reference,
    pretrained=_weights,
    model=_model,
    inputs=_inputs,
    edge_inputs={"photographs": _photographs, "one_photograph": _one_photograph},
    to_model=channels_last,
    optimizer=momentum(1e-5),
    modes=("inference", "forward_backward"),  # its steps of training take minutes: `--mode train_step`
    expected={
        "jax.eager": "compiles each distinct operation by itself before it first runs",
        "jax.scan": LOOPED,
    },
    # Inductor needs more than the budget for the training pass, on two processors
    patience={
        "forward_backward/torch.compile": 5.0,
        "forward_backward/jax.nnx_jit": 60.0,  # it compiles for 17 to 25 s
        "jax.eager": 1.5,
        "jax.scan": 4.0,
    },
    interpret={"photographs": readings},
    sweep=_batch,
    tags=("vision", "pretrained", "training"),
)
