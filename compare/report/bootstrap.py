"""How far a median can be trusted: bootstrap over repeats and, where a row ran in several processes, over these first.

The repeats of one process share what the process drew at its start, the layout of its memory above all. Resampled alone
they would promise more than another run of the same thing keeps.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from .records import Cell

RESAMPLES = 2000
MIN_SAMPLES = 5
SEED = 20240229

Samples = tuple[float, ...]


@lru_cache(maxsize=8192)
def interval(
    numerator: Samples,
    denominator: Samples,
    processes: tuple[tuple[int, ...], tuple[int, ...]] = ((), ()),
) -> tuple[float, float] | None:
    """95% interval of the ratio of medians; None with fewer than five samples on a side.

    Samples of one repeat stand at the same index where each side ran in one process, so both are resampled by the same
    indices: what slowed a whole repeat slows both. Sides of different length, or of several processes, cannot be paired
    and are resampled apart.

    Args:
      numerator, denominator: seconds.
      processes: of each side, which process each sample comes from; empty where there was one.
    """
    if min(len(numerator), len(denominator)) < MIN_SAMPLES:
        return None
    apart = len(numerator) != len(denominator) or any(processes)
    above = resampled_medians(numerator, processes[0], 0)
    below = resampled_medians(denominator, processes[1], 1 if apart else 0)
    low, high = np.percentile(above / below, (2.5, 97.5))
    return float(low), float(high)


def standard_error(cell: Cell) -> float:
    """Of the logarithm of its median."""
    return float(np.std(np.log(resampled_medians(tuple(cell.samples_s), tuple(cell.process_of), 0))))


@lru_cache(maxsize=512)
def resampled_medians(samples: Samples, process_of: tuple[int, ...], stream: int) -> np.ndarray:
    """`[RESAMPLES]`; of two sides with the same `stream`, length and processes, the same repeats are picked."""
    values = np.asarray(samples)
    if not process_of:
        return _medians(values[_picked(len(values), stream)])
    order = np.argsort(process_of, kind="stable")
    sizes = np.unique(process_of, return_counts=True)[1]
    starts = np.cumsum(sizes) - sizes
    random = np.random.default_rng([SEED, stream])
    drawn = random.integers(len(sizes), size=(RESAMPLES, len(sizes), 1))
    within = random.random((RESAMPLES, len(sizes), max(1, len(values) // len(sizes))))
    picked = starts[drawn] + (within * sizes[drawn]).astype(int)
    return _medians(values[order][picked.reshape(RESAMPLES, -1)])


@lru_cache(maxsize=64)
def _picked(count: int, stream: int) -> np.ndarray:
    return np.random.default_rng([SEED, stream]).integers(count, size=(RESAMPLES, count))


def _medians(rows: np.ndarray) -> np.ndarray:
    """Sorting short rows is many times as fast as `np.median` of them."""
    ordered = np.sort(rows, axis=1)
    middle = ordered.shape[1] // 2
    return ordered[:, middle] if ordered.shape[1] % 2 else (ordered[:, middle - 1] + ordered[:, middle]) / 2
