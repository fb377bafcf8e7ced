"""What `layers.py` times: each layer with its arguments, at three sizes of input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

SIZES = ("small", "medium", "large")

Shape = tuple[int, ...]
Make = Callable[[np.random.Generator, Shape], tuple[np.ndarray, ...]]


def normal(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, ...]:
    return (rng.standard_normal(shape).astype(np.float32),)


@dataclass(frozen=True)
class Entry:
    """One layer as it is timed.

    Attributes:
      name: of the class, with what sets this use apart.
      cls: name of the class, PyTorch's and ours.
      args, kwargs: of both constructors.
      shapes: of the input in PyTorch's layout, small, medium and large.
      make: `(rng, shape)` -> the arrays of a call, in PyTorch's layout.
      image: number of spatial axes where an input has channels; None where the layout is the same on both sides.
      targets: how many arrays at the end are targets, by which nobody asks for a gradient.
      ours: further arguments of our constructor.
      backward: whether it has gradients.
    """

    name: str
    cls: str
    shapes: tuple[Shape, Shape, Shape]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    make: Make = normal
    image: int | None = None
    targets: int = 0
    ours: Mapping[str, Any] = field(default_factory=dict)
    backward: bool = True

    def inputs(self, rng: np.random.Generator, size: str) -> tuple[np.ndarray, ...]:
        return self.make(rng, self.shapes[SIZES.index(size)])


def pair(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, ...]:
    return (*normal(rng, shape), *normal(rng, shape))


def triple(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, ...]:
    return (*pair(rng, shape), *normal(rng, shape))


def thrice(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, ...]:
    """One array as query, key and value."""
    (x,) = normal(rng, shape)
    return x, x, x


def with_signs(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, ...]:
    return (*normal(rng, shape), np.where(rng.random(shape) < 0.5, -1, 1).astype(np.float32))


def two_with_signs(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, ...]:
    return (*pair(rng, shape), np.where(rng.random(shape[:1]) < 0.5, -1, 1).astype(np.float32))


def ranked(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, ...]:
    return (*pair(rng, shape), np.where(rng.random(shape) < 0.5, -1, 1).astype(np.float32))


def probabilities(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, ...]:
    return rng.uniform(0.01, 0.99, shape).astype(np.float32), rng.random(shape).astype(np.float32)


def logits_and_probabilities(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, ...]:
    return (*normal(rng, shape), rng.random(shape).astype(np.float32))


def logits_and_classes(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, ...]:
    return (*normal(rng, shape), rng.integers(0, shape[1], (shape[0], *shape[2:])))


def log_probabilities_and_classes(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, ...]:
    x, classes = logits_and_classes(rng, shape)
    return (x - np.log(np.exp(x).sum(1, keepdims=True))).astype(np.float32), classes


def divergence(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, ...]:
    target = rng.random(shape).astype(np.float32)
    return (*normal(rng, shape), target / target.sum(-1, keepdims=True))


def variance(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, ...]:
    return (*pair(rng, shape), rng.uniform(0.5, 2, shape).astype(np.float32))


def tokens(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, ...]:
    return (rng.integers(0, 30_000, shape),)


def alignment(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, ...]:
    """Log-probabilities `[T, B, C]`, targets a quarter as long, and both lengths."""
    (x,) = normal(rng, shape)
    steps, batch, classes = shape
    targets = rng.integers(1, classes, (batch, steps // 4))
    lengths = np.full(batch, steps), np.full(batch, steps // 4)
    return (x - np.log(np.exp(x).sum(-1, keepdims=True))).astype(np.float32), targets, *lengths


def multilabel(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, ...]:
    return (*normal(rng, shape), (rng.random(shape) < 0.3).astype(np.float32))


ELEMENTS: tuple[Shape, Shape, Shape] = ((1_000,), (100_000,), (4_000_000,))
ROWS: tuple[Shape, Shape, Shape] = ((8, 64), (256, 512), (4096, 1024))
IMAGES: tuple[Shape, Shape, Shape] = ((1, 16, 14, 14), (4, 64, 28, 28), (8, 64, 56, 56))
SIGNALS: tuple[Shape, Shape, Shape] = ((1, 16, 100), (4, 64, 1_000), (8, 64, 16_000))
VOLUMES: tuple[Shape, Shape, Shape] = ((1, 8, 4, 8, 8), (2, 16, 8, 16, 16), (2, 32, 16, 32, 32))
OF_64: tuple[Shape, Shape, Shape] = ((1, 64, 14, 14), (4, 64, 28, 28), (8, 64, 56, 56))
SIGNALS_OF_64: tuple[Shape, Shape, Shape] = ((1, 64, 100), (4, 64, 1_000), (8, 64, 16_000))
VOLUMES_OF_16: tuple[Shape, Shape, Shape] = ((1, 16, 4, 8, 8), (2, 16, 8, 16, 16), (2, 16, 16, 32, 32))
FEATURES: tuple[Shape, Shape, Shape] = ((8, 512), (256, 512), (4096, 512))
STEPS: tuple[Shape, Shape, Shape] = ((10, 1, 64), (50, 8, 64), (100, 64, 64))
SENTENCES: tuple[Shape, Shape, Shape] = ((1, 16, 512), (4, 64, 512), (8, 128, 512))

SMOOTH = ("CELU", "ELU", "GELU", "LogSigmoid", "Mish", "SELU", "SiLU", "Sigmoid", "Softplus", "Softsign", "Tanh")
PIECEWISE = ("Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU", "PReLU", "ReLU", "ReLU6", "Softshrink")

ACTIVATIONS = tuple(Entry(name, name, ELEMENTS) for name in (*SMOOTH, *PIECEWISE, "Tanhshrink"))

LOSSES = (
    *(
        Entry(name, name, ROWS, make=pair, targets=1)
        for name in ("L1Loss", "MSELoss", "SmoothL1Loss", "HuberLoss", "PoissonNLLLoss")
    ),
    Entry("BCELoss", "BCELoss", ROWS, make=probabilities, targets=1),
    Entry("BCEWithLogitsLoss", "BCEWithLogitsLoss", ROWS, make=logits_and_probabilities, targets=1),
    Entry("CrossEntropyLoss", "CrossEntropyLoss", ((8, 10), (256, 1000), (1024, 30_000)), make=logits_and_classes),
    Entry("NLLLoss", "NLLLoss", ((8, 10), (256, 1000), (1024, 30_000)), make=log_probabilities_and_classes),
    Entry("KLDivLoss", "KLDivLoss", ROWS, kwargs={"reduction": "batchmean"}, make=divergence, targets=1),
    Entry("GaussianNLLLoss", "GaussianNLLLoss", ROWS, make=variance),
    Entry("HingeEmbeddingLoss", "HingeEmbeddingLoss", ROWS, make=with_signs, targets=1),
    Entry("SoftMarginLoss", "SoftMarginLoss", ROWS, make=with_signs, targets=1),
    Entry("CosineEmbeddingLoss", "CosineEmbeddingLoss", ROWS, make=two_with_signs, targets=1),
    Entry("MarginRankingLoss", "MarginRankingLoss", ROWS, make=ranked, targets=1),
    Entry("MultiMarginLoss", "MultiMarginLoss", ((8, 10), (256, 1000), (4096, 1000)), make=logits_and_classes),
    Entry("MultiLabelSoftMarginLoss", "MultiLabelSoftMarginLoss", ROWS, make=multilabel, targets=1),
    Entry("TripletMarginLoss", "TripletMarginLoss", ROWS, make=triple),
    Entry("CTCLoss", "CTCLoss", ((20, 1, 10), (100, 8, 40), (400, 16, 80)), make=alignment),
)

CONVOLUTIONS = (
    Entry("Conv1d 3", "Conv1d", SIGNALS_OF_64, (64, 64, 3), {"padding": 1}, image=1),
    Entry("Conv2d 3x3", "Conv2d", OF_64, (64, 64, 3), {"padding": 1}, image=2),
    Entry(
        "Conv2d 3x3 of 256",
        "Conv2d",
        ((1, 256, 7, 7), (4, 256, 14, 14), (8, 256, 28, 28)),
        (256, 256, 3),
        {"padding": 1},
        image=2,
    ),
    Entry("Conv2d 1x1", "Conv2d", OF_64, (64, 256, 1), image=2),
    Entry(
        "Conv2d 7x7 stride 2", "Conv2d", ((1, 3, 64, 64), (4, 3, 112, 112), (8, 3, 224, 224)), (3, 64, 7, 2, 3), image=2
    ),
    Entry("Conv2d depthwise", "Conv2d", OF_64, (64, 64, 3), {"padding": 1, "groups": 64}, image=2),
    Entry("Conv2d in 4 groups", "Conv2d", OF_64, (64, 64, 3), {"padding": 1, "groups": 4}, image=2),
    Entry("Conv2d dilated", "Conv2d", OF_64, (64, 64, 3), {"padding": 2, "dilation": 2}, image=2),
    Entry("Conv3d 3x3x3", "Conv3d", VOLUMES_OF_16, (16, 16, 3), {"padding": 1}, image=3),
    Entry(
        "ConvTranspose1d", "ConvTranspose1d", ((1, 64, 50), (4, 64, 500), (8, 64, 8_000)), (64, 64, 4, 2, 1), image=1
    ),
    Entry(
        "ConvTranspose2d",
        "ConvTranspose2d",
        ((1, 64, 7, 7), (4, 64, 14, 14), (8, 64, 28, 28)),
        (64, 64, 4, 2, 1),
        image=2,
    ),
    Entry(
        "ConvTranspose3d",
        "ConvTranspose3d",
        ((1, 16, 2, 4, 4), (2, 16, 4, 8, 8), (2, 16, 8, 16, 16)),
        (16, 16, 4, 2, 1),
        image=3,
    ),
    Entry("Unfold", "Unfold", IMAGES, (3,), {"padding": 1}, ours={"data_format": "channels_first"}),
)

POOLINGS = (
    Entry("MaxPool1d", "MaxPool1d", SIGNALS, (3, 2), image=1),
    Entry("MaxPool2d 2", "MaxPool2d", IMAGES, (2,), image=2),
    Entry("MaxPool2d 3 stride 2", "MaxPool2d", IMAGES, (3, 2, 1), image=2),
    Entry("MaxPool3d", "MaxPool3d", VOLUMES, (2,), image=3),
    Entry("AvgPool1d", "AvgPool1d", SIGNALS, (3, 2), image=1),
    Entry("AvgPool2d", "AvgPool2d", IMAGES, (3, 2, 1), image=2),
    Entry("AvgPool3d", "AvgPool3d", VOLUMES, (2,), image=3),
    Entry("AdaptiveAvgPool2d", "AdaptiveAvgPool2d", IMAGES, (5,), image=2),
    Entry("AdaptiveAvgPool2d 1", "AdaptiveAvgPool2d", IMAGES, (1,), image=2),
    Entry("AdaptiveMaxPool2d", "AdaptiveMaxPool2d", IMAGES, (5,), image=2),
    Entry("LPPool2d", "LPPool2d", IMAGES, (2, 2), image=2),
)

NORMS = (
    Entry("BatchNorm1d", "BatchNorm1d", SIGNALS_OF_64, (64,), image=1),
    Entry("BatchNorm2d", "BatchNorm2d", OF_64, (64,), image=2),
    Entry("BatchNorm3d", "BatchNorm3d", VOLUMES_OF_16, (16,), image=3),
    Entry("InstanceNorm2d", "InstanceNorm2d", OF_64, (64,), image=2),
    Entry("GroupNorm", "GroupNorm", OF_64, (8, 64), image=2),
    Entry("LayerNorm", "LayerNorm", FEATURES, (512,)),
    Entry("RMSNorm", "RMSNorm", FEATURES, (512,)),
    Entry("LocalResponseNorm", "LocalResponseNorm", IMAGES, (5,), image=2),
)

SEQUENCE_LAYERS = (
    Entry("RNN", "RNN", STEPS, (64, 256)),
    Entry("GRU", "GRU", STEPS, (64, 256)),
    Entry("LSTM", "LSTM", STEPS, (64, 256)),
    Entry("LSTM of 512", "LSTM", ((10, 1, 512), (50, 8, 512), (100, 64, 512)), (512, 512)),
    Entry("LSTM both ways", "LSTM", STEPS, (64, 256), {"bidirectional": True}),
    Entry("LSTMCell", "LSTMCell", ((1, 64), (8, 64), (256, 64)), (64, 256)),
    Entry("MultiheadAttention", "MultiheadAttention", SENTENCES, (512, 8), {"batch_first": True}, thrice),
    Entry(
        "TransformerEncoderLayer", "TransformerEncoderLayer", SENTENCES, (512, 8), {"batch_first": True, "dropout": 0.0}
    ),
)

OTHERS = (
    Entry("Linear", "Linear", ((1, 512), (64, 512), (4096, 512)), (512, 512)),
    Entry("Bilinear", "Bilinear", ((1, 64), (64, 64), (1024, 64)), (64, 64, 64), make=pair),
    Entry("Embedding", "Embedding", ((1, 16), (8, 128), (64, 512)), (30_000, 256), make=tokens),
    Entry("Softmax", "Softmax", ROWS, (), {"dim": -1}),
    Entry("LogSoftmax", "LogSoftmax", ROWS, (), {"dim": -1}),
    Entry("GLU", "GLU", ROWS),
    Entry("CosineSimilarity", "CosineSimilarity", ROWS, make=pair),
    Entry("PairwiseDistance", "PairwiseDistance", ROWS, make=pair),
    Entry("PixelShuffle", "PixelShuffle", IMAGES, (2,), image=2),
    Entry("ReflectionPad2d", "ReflectionPad2d", IMAGES, (1,), image=2),
    Entry("ReplicationPad2d", "ReplicationPad2d", IMAGES, (1,), image=2),
    Entry("ZeroPad2d", "ZeroPad2d", IMAGES, (1,), image=2),
    Entry("Upsample nearest", "Upsample", IMAGES, (), {"scale_factor": 2}, image=2),
    Entry("Upsample bilinear", "Upsample", IMAGES, (), {"scale_factor": 2, "mode": "bilinear"}, image=2),
    Entry("Upsample bicubic", "Upsample", IMAGES, (), {"scale_factor": 2, "mode": "bicubic"}, image=2),
)

ENTRIES: tuple[Entry, ...] = (*CONVOLUTIONS, *POOLINGS, *NORMS, *SEQUENCE_LAYERS, *OTHERS, *LOSSES, *ACTIVATIONS)
