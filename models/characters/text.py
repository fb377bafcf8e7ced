"""The source of a module of Python's standard library, as bytes: numpy alone."""

import argparse
from pathlib import Path

import numpy as np

SYMBOLS = 128


def text() -> np.ndarray:
    """int64 `[N]`, each below 128: the source of `argparse`."""
    read = np.frombuffer(Path(argparse.__file__).read_bytes(), np.uint8)
    return read[read < SYMBOLS].astype(np.int64)


def windows(rng: np.random.Generator, batch: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """`batch` pieces at random, int64 `[batch, length]`, and the same one symbol later."""
    symbols = text()
    starts = rng.integers(0, len(symbols) - length - 1, batch)
    pieces = symbols[starts[:, None] + np.arange(length + 1)]
    return pieces[:, :-1], pieces[:, 1:]
