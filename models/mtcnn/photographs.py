"""Photographs with one, several and no faces, as `[B, H, W, 3]` uint8."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

NAMES = ("astronaut", "chelsea", "coffee", "rocket")


@cache
def photograph(name: str) -> np.ndarray:
    """`[H, W, 3]` uint8: a photograph of scikit-image by its name.

    Raises:
      ImportError: where scikit-image is not installed.
    """
    try:
        from skimage import data
    except ImportError as error:
        raise ImportError(
            f"the photographs of mtcnn need scikit-image ({error}): pip install 'graphmode[weights]'"
        ) from error
    pixels = np.ascontiguousarray(getattr(data, name)())
    pixels.setflags(write=False)
    return pixels


FACE = (30, 190, 140, 300)  # top, bottom, left, right of the astronaut's head


def head(size: int) -> np.ndarray:
    """`[size, size, 3]` uint8: the astronaut's head, bilinear."""
    from PIL import Image

    top, bottom, left, right = FACE
    pixels = photograph("astronaut")[top:bottom, left:right]
    return np.asarray(Image.fromarray(pixels).resize((size, size), Image.Resampling.BILINEAR))


def group(size: int, heads: Sequence[tuple[int, int, int]]) -> np.ndarray:
    """`[size, size, 3]` uint8: heads on grey, each given by its top, left and size."""
    picture = np.full((size, size, 3), 128, np.uint8)
    for top, left, side in heads:
        picture[top : top + side, left : left + side] = head(side)
    return picture


def varied(rng: np.random.Generator, size: int = 160, *, reach: int = 20) -> np.ndarray:
    """`[size, size, 3]` uint8: the astronaut, moved by up to `reach` pixels, mirrored or not."""
    top, left = np.array(FACE)[[0, 2]] + rng.integers(-reach, reach + 1, 2)
    picture = photograph("astronaut")[top : top + size, left : left + size]
    return np.ascontiguousarray(picture[:, ::-1] if rng.random() < 0.5 else picture)
