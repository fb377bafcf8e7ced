"""Fixed-size building blocks for what eager code does with values, inside one static graph."""

from .checks import check
from .compact import compact
from .control import cond, switch
from .counting import bincount, one_hot
from .fixed_point import fixed_point
from .group_by import group_by
from .growing import append, arange, full
from .layers import stack_layers
from .loops import fori, while_loop
from .masked_write import masked_fill, masked_scatter
from .nonzero import argwhere, flatnonzero, nonzero
from .padded import Padded
from .partition import partition
from .repeat import repeat_interleave
from .sampling import random_permutation, random_subset, sample_top_p, top_p_mask
from .scan_until import scan_until
from .segment_reduce import segment_max, segment_mean, segment_min, segment_prod, segment_sum, segment_var
from .segment_softmax import segment_logsumexp, segment_softmax
from .segments import Segments, segments
from .sets import intersect1d, isin, setdiff1d, setxor1d, union1d
from .slices import split, take_slice
from .stack import Stack
from .topk import TopK, topk
from .unique import unique, unique_consecutive

__all__ = [
    "Padded",
    "Segments",
    "Stack",
    "TopK",
    "append",
    "arange",
    "argwhere",
    "bincount",
    "check",
    "compact",
    "cond",
    "fixed_point",
    "flatnonzero",
    "fori",
    "full",
    "group_by",
    "intersect1d",
    "isin",
    "masked_fill",
    "masked_scatter",
    "nonzero",
    "one_hot",
    "partition",
    "random_permutation",
    "random_subset",
    "repeat_interleave",
    "sample_top_p",
    "scan_until",
    "segment_logsumexp",
    "segment_max",
    "segment_mean",
    "segment_min",
    "segment_prod",
    "segment_softmax",
    "segment_sum",
    "segment_var",
    "segments",
    "setdiff1d",
    "setxor1d",
    "split",
    "stack_layers",
    "switch",
    "take_slice",
    "top_p_mask",
    "topk",
    "union1d",
    "unique",
    "unique_consecutive",
    "while_loop",
]
