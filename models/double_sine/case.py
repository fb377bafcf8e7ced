"""`sin(2 x)`: its forward and gradient, and its training loop as one graph."""

import jax.numpy as jnp
import numpy as np
from graphmode.compare.case import Case
from graphmode.compare.training import Training

from . import model, reference, train, train_reference

LENGTH = 4096


def squared_distance_to_ones(y):
    return ((y - 1) ** 2).sum()


def trainable(rng: np.random.Generator, length: int = LENGTH):
    """Within the basin of the minimum at pi/4. At its edges the gradient is rounding noise, of which Adam makes steps
    of full size: nothing that runs in float32 is near the float64 result from there."""
    return (rng.uniform(-0.7, 0.7, length),)


CASE = Case(
    name="double_sine",
    summary="two elementwise operations and the gradient of a loss on them, in one kernel each way",
    reference=reference.DoubleSine,
    model=model.DoubleSine,
    inputs=lambda rng: (rng.standard_normal(LENGTH),),
    loss=(squared_distance_to_ones, squared_distance_to_ones),
    sweep=lambda rng, batch: (rng.standard_normal(batch),),
    tags=("small",),
)

CAPTURABLE = "Adam refuses to be captured unless it is made with capturable=True, which works on a GPU only"
ROUNDED = "computes Adam's bias correction 1 - beta**t in float32, which costs a factor of 45 in precision"

TRAINING_CASE = Case(
    name="double_sine_training",
    summary="a training loop, gradients and Adam included, becomes one graph by lax.scan",
    reference=reference.DoubleSineTraining,
    model=model.DoubleSineTraining,
    inputs=trainable,
    edge_inputs={"at the minimum": lambda rng: (np.full(LENGTH, np.pi / 4) + rng.uniform(0.01, 0.02, LENGTH),)},
    modes=("inference",),
    expected={
        "torch.script": "TorchScript has no optimizer and no enable_grad",
        "torch.cudagraph": CAPTURABLE,
        "torch.graphed_callables": CAPTURABLE,
        "torch.compile": ROUNDED,
        "torch.compile.reduce_overhead": ROUNDED,
        "torch.compile.cudagraph": ROUNDED,
        "torch.aoti": ROUNDED,
        "onnxruntime": ROUNDED,
    },
    tags=("small", "training"),
)


def start(length: int = LENGTH):
    """Within the basin of the minimum, the same on both sides whatever the seed."""
    import torch

    return torch.from_numpy(np.random.default_rng(0).uniform(-0.7, 0.7, length).astype(np.float32))


TRAINING = Training(
    name="double_sine",
    summary="two elementwise operations, their gradient and Adam, in one kernel",
    reference=lambda: train_reference.Point(start()),
    model=lambda rngs: train.Point(jnp.zeros(LENGTH), rngs),
    reference_step=train_reference.make_step,
    model_step=train.make_step,
    batches=lambda rng, count: (np.ones(LENGTH, np.float32) for _ in range(count)),
)
