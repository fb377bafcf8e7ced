"""Losses in all reductions."""

from .adaptive import AdaptiveLogSoftmaxWithLoss
from .binary import BCELoss, BCEWithLogitsLoss, MultiLabelSoftMarginLoss, SoftMarginLoss
from .cross_entropy import CrossEntropyLoss, NLLLoss, NLLLoss2d
from .ctc import CTCLoss
from .embedding import CosineEmbeddingLoss, TripletMarginLoss, TripletMarginWithDistanceLoss
from .likelihood import GaussianNLLLoss, KLDivLoss, PoissonNLLLoss
from .linear_cross_entropy import LinearCrossEntropyLoss, LinearCrossEntropyOptions
from .margin import HingeEmbeddingLoss, MarginRankingLoss, MultiLabelMarginLoss, MultiMarginLoss
from .regression import HuberLoss, L1Loss, MSELoss, SmoothL1Loss

__all__: list[str] = [
    "AdaptiveLogSoftmaxWithLoss",
    "BCELoss",
    "BCEWithLogitsLoss",
    "CTCLoss",
    "CosineEmbeddingLoss",
    "CrossEntropyLoss",
    "GaussianNLLLoss",
    "HingeEmbeddingLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "LinearCrossEntropyLoss",
    "LinearCrossEntropyOptions",
    "MSELoss",
    "MarginRankingLoss",
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "NLLLoss",
    "NLLLoss2d",
    "PoissonNLLLoss",
    "SmoothL1Loss",
    "SoftMarginLoss",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]
