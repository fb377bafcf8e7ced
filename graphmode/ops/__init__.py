"""Fixed-size building blocks for what eager code does with values, inside one static graph."""

from .checks import check
from .compact import compact
from .counting import bincount, one_hot
from .group_by import group_by
from .growing import append, arange, full
from .padded import Padded
from .partition import partition
from .repeat import repeat_interleave
from .sampling import random_permutation, random_subset, sample_top_p, top_p_mask
from .segment_reduce import segment_max, segment_mean, segment_min, segment_prod, segment_sum, segment_var
from .segment_softmax import segment_logsumexp, segment_softmax
from .segments import Segments, segments
from .slices import split, take_slice
from .topk import TopK, topk

__all__ = [
    "Padded",
    "Segments",
    "TopK",
    "append",
    "arange",
    "bincount",
    "check",
    "compact",
    "full",
    "group_by",
    "one_hot",
    "partition",
    "random_permutation",
    "random_subset",
    "repeat_interleave",
    "sample_top_p",
    "segment_logsumexp",
    "segment_max",
    "segment_mean",
    "segment_min",
    "segment_prod",
    "segment_softmax",
    "segment_sum",
    "segment_var",
    "segments",
    "split",
    "take_slice",
    "top_p_mask",
    "topk",
]
