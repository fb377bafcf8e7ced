"""Fixed-size building blocks for what eager code does with shapes that depend on values."""

from .batching import PaddedBatch, lengths_to_mask, pad_sequences, unpad_sequences
from .buckets import BucketBatch, batches_by_bucket, bucket_for, bucket_lengths, geometric_lengths
from .checks import check
from .compact import compact
from .masked import masked_argmax, masked_max, masked_mean, masked_min, masked_softmax, masked_sum, masked_var
from .moments import Moments, masked_moments
from .packing import PackedSequences, pack_sequences, segment_ids, segment_mask, unpack_sequences
from .padded import Padded
from .partition import partition

__all__ = [
    "BucketBatch",
    "Moments",
    "PackedSequences",
    "Padded",
    "PaddedBatch",
    "batches_by_bucket",
    "bucket_for",
    "bucket_lengths",
    "check",
    "compact",
    "geometric_lengths",
    "lengths_to_mask",
    "masked_argmax",
    "masked_max",
    "masked_mean",
    "masked_min",
    "masked_moments",
    "masked_softmax",
    "masked_sum",
    "masked_var",
    "pack_sequences",
    "pad_sequences",
    "partition",
    "segment_ids",
    "segment_mask",
    "unpack_sequences",
    "unpad_sequences",
]
