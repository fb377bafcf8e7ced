"""Fixed-size building blocks for what eager code does with values, inside one static graph."""

from .control.branches import cond, switch
from .control.fixed_point import fixed_point
from .control.layers import stack_layers
from .control.loops import fori, while_loop
from .control.scan_until import scan_until
from .control.stack import Stack
from .decoding.beam_search import beam_search
from .decoding.ctc import Transcripts, ctc_beam_search, ctc_greedy
from .decoding.decoded import Decoded
from .decoding.greedy import greedy
from .decoding.kv_cache import KVCache
from .decoding.sample import sample, warp_logits
from .detection.boxes import (
    box_area,
    box_convert,
    box_inter_over_min,
    box_iou,
    clip_boxes_to_image,
    complete_box_iou,
    distance_box_iou,
    generalized_box_iou,
    masks_to_boxes,
    remove_small_boxes,
)
from .detection.nms import batched_nms, nms
from .detection.roi_align import roi_align
from .detection.roi_avg_pool import roi_avg_pool
from .gradients.hooks import clip_gradient, gradient_hook, reverse_gradient, scale_gradient, value_hook
from .gradients.safe_math import (
    attempt,
    safe_arccos,
    safe_arcsin,
    safe_arctan2,
    safe_divide,
    safe_log,
    safe_norm,
    safe_sqrt,
    where_safe,
)
from .gradients.straight_through import gumbel_softmax, ste_round, ste_sign, straight_through, straight_through_one_hot
from .groups.group_by import group_by
from .groups.segment_map import segment_map
from .groups.segment_reduce import segment_max, segment_mean, segment_min, segment_prod, segment_sum, segment_var
from .groups.segment_softmax import segment_logsumexp, segment_softmax
from .groups.segments import Segments, segments
from .host.callback import no_callbacks
from .host.checks import CheckError, check, checked
from .host.opaque import opaque
from .host.printing import debug_print
from .masking.masked import masked_argmax, masked_max, masked_mean, masked_min, masked_softmax, masked_sum, masked_var
from .masking.moments import Moments, masked_moments
from .masking.padded import Padded
from .ragged.buckets import BucketBatch, batches_by_bucket, bucket_for, bucket_lengths, geometric_lengths
from .ragged.packing import PackedSequences, pack_sequences, segment_ids, segment_mask, unpack_sequences
from .ragged.padding import PaddedBatch, lengths_to_mask, pad_sequences, unpad_sequences
from .selection.compact import compact
from .selection.masked_write import masked_fill, masked_scatter
from .selection.nonzero import argwhere, flatnonzero, nonzero
from .selection.partition import partition
from .selection.sets import intersect1d, isin, setdiff1d, setxor1d, union1d
from .selection.unique import unique, unique_consecutive
from .sizes.counting import bincount, one_hot
from .sizes.growing import append, arange, full
from .sizes.repeat import repeat_interleave
from .sizes.sampling import random_permutation, random_subset, sample_top_p, top_p_mask
from .sizes.slices import split, take_slice
from .sizes.topk import TopK, topk

__all__ = [
    "BucketBatch",
    "CheckError",
    "Decoded",
    "KVCache",
    "Moments",
    "PackedSequences",
    "Padded",
    "PaddedBatch",
    "Segments",
    "Stack",
    "TopK",
    "Transcripts",
    "append",
    "arange",
    "argwhere",
    "attempt",
    "batched_nms",
    "batches_by_bucket",
    "beam_search",
    "bincount",
    "box_area",
    "box_convert",
    "box_inter_over_min",
    "box_iou",
    "bucket_for",
    "bucket_lengths",
    "check",
    "checked",
    "clip_boxes_to_image",
    "clip_gradient",
    "compact",
    "complete_box_iou",
    "cond",
    "ctc_beam_search",
    "ctc_greedy",
    "debug_print",
    "distance_box_iou",
    "fixed_point",
    "flatnonzero",
    "fori",
    "full",
    "generalized_box_iou",
    "geometric_lengths",
    "gradient_hook",
    "greedy",
    "group_by",
    "gumbel_softmax",
    "intersect1d",
    "isin",
    "lengths_to_mask",
    "masked_argmax",
    "masked_fill",
    "masked_max",
    "masked_mean",
    "masked_min",
    "masked_moments",
    "masked_scatter",
    "masked_softmax",
    "masked_sum",
    "masked_var",
    "masks_to_boxes",
    "nms",
    "no_callbacks",
    "nonzero",
    "one_hot",
    "opaque",
    "pack_sequences",
    "pad_sequences",
    "partition",
    "random_permutation",
    "random_subset",
    "remove_small_boxes",
    "repeat_interleave",
    "reverse_gradient",
    "roi_align",
    "roi_avg_pool",
    "safe_arccos",
    "safe_arcsin",
    "safe_arctan2",
    "safe_divide",
    "safe_log",
    "safe_norm",
    "safe_sqrt",
    "sample",
    "sample_top_p",
    "scale_gradient",
    "scan_until",
    "segment_ids",
    "segment_logsumexp",
    "segment_map",
    "segment_mask",
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
    "ste_round",
    "ste_sign",
    "straight_through",
    "straight_through_one_hot",
    "switch",
    "take_slice",
    "top_p_mask",
    "topk",
    "union1d",
    "unique",
    "unique_consecutive",
    "unpack_sequences",
    "unpad_sequences",
    "value_hook",
    "warp_logits",
    "where_safe",
    "while_loop",
]
