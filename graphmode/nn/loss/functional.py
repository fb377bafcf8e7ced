"""The functional forms of this room."""

from .binary import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    multilabel_soft_margin_loss,
    soft_margin_loss,
)
from .cross_entropy import cross_entropy, nll_loss
from .ctc import ctc_loss
from .embedding import cosine_embedding_loss, triplet_margin_loss, triplet_margin_with_distance_loss
from .likelihood import gaussian_nll_loss, kl_div, poisson_nll_loss
from .linear_cross_entropy import linear_cross_entropy
from .margin import hinge_embedding_loss, margin_ranking_loss, multi_margin_loss, multilabel_margin_loss
from .regression import huber_loss, l1_loss, mse_loss, smooth_l1_loss

__all__: list[str] = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_embedding_loss",
    "cross_entropy",
    "ctc_loss",
    "gaussian_nll_loss",
    "hinge_embedding_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "linear_cross_entropy",
    "margin_ranking_loss",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]
