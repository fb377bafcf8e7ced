"""Batches for a training loop: with a position to go on from, and read ahead of the device."""

from .arrays import MaskedBatch, from_arrays
from .grain_loader import from_grain
from .host import as_host
from .iterables import as_source
from .read_ahead import ReadAhead, read_ahead
from .sequences import from_sequences
from .source import BatchSource, EpochSource
from .torch_loader import from_torch
from .views import mapped, shard, stacked

__all__ = [
    "BatchSource",
    "EpochSource",
    "MaskedBatch",
    "ReadAhead",
    "as_host",
    "as_source",
    "from_arrays",
    "from_grain",
    "from_sequences",
    "from_torch",
    "mapped",
    "read_ahead",
    "shard",
    "stacked",
]
