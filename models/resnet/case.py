"""ResNet-18 and 50, both ways: no control flow to rewrite; what is left is layout, fusion and the cost of a launch."""

from __future__ import annotations

import dataclasses

import numpy as np
from flax import nnx
from graphmode.compare import Case, channels_last

from ..optimizers import momentum
from .config import ResNetConfig
from .model import ResNet

LOOPED = "XLA on a CPU computes the gradient of a convolution inside a loop without its fast kernel, ten times slower"


def _images(rng: np.random.Generator, batch: int) -> tuple[np.ndarray]:
    return (rng.standard_normal((batch, 3, 224, 224)).astype(np.float32),)


def _inputs(rng: np.random.Generator) -> tuple[np.ndarray]:
    # A batch of one, and so no edge input has to be.
    return _images(rng, 1)


def _small_images(rng: np.random.Generator, batch: int) -> tuple[np.ndarray]:
    return (rng.standard_normal((batch, 3, 64, 64)).astype(np.float32),)


def _small(rng: np.random.Generator) -> tuple[np.ndarray]:
    return _small_images(rng, 2)


def _black(rng: np.random.Generator) -> tuple[np.ndarray]:
    # One of two images is all zeros. Both would leave training a variance of next to nothing to divide by.
    image = rng.standard_normal((1, 3, 64, 64)).astype(np.float32)
    return (np.concatenate([image, np.zeros_like(image)]),)


def _reference(depth: int):
    def build():
        from .reference import ResNet as Reference

        return Reference(ResNetConfig.of_depth(depth))

    return build


def _model(depth: int):
    def build(rngs: nnx.Rngs) -> ResNet:
        return ResNet(ResNetConfig.of_depth(depth), rngs=rngs)

    return build


CASE = Case(
    name="resnet18",
    summary="a deep convolutional network: channels-last layout, fused normalisation, running statistics as state",
    reference=_reference(18),
    model=_model(18),
    inputs=_inputs,
    check_inputs=_small,
    edge_inputs={"black": _black},
    to_model=channels_last,
    # The default loss sums a thousand logits. At 1e-3 one relu that a rounding flips moves later outputs by 1 %.
    optimizer=momentum(1e-5),
    modes=("inference", "forward_backward"),  # its steps of training take a minute: `--mode train_step`
    expected={
        "jax.eager": "compiles each distinct operation by itself before it first runs",
        "jax.scan": LOOPED,
    },
    patience={"jax.eager": 1.5, "jax.scan": 4.0},
    sweep=_images,
    tags=("vision", "training"),
)

RESNET50 = dataclasses.replace(
    CASE,
    name="resnet50",
    summary="sixteen bottlenecks: a graph whose length costs compilation and nothing else",
    reference=_reference(50),
    model=_model(50),
    inputs=_small,
    check_inputs=None,
    # All zeros leave training next to no variance to divide by, fifty times over: half an ulp in the weights moves the
    # reference's own running variances by 6e-11. A batch of one would be one more graph to compile.
    adversarial=("a large mean", "all positive", "all negative"),
    sweep=_small_images,
)
