"""Crops of text lines as the reader wants them, and what it reads in them: the host's side of the pipeline.

Source: `legere.lines` and `legere.inference` of legere 0.11.0 (MIT), whose results these are to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import jax
import numpy as np

import graphmode as gm

from .charset import text_of
from .model import Legere, transcribe

HEIGHT = 32
WIDEST = 1280
WIDTHS = gm.geometric_lengths(64, WIDEST, ratio=1.5, multiple_of=4)
WHITE = 1.0

_transcribe = jax.jit(transcribe)


def as_grey(image: np.ndarray) -> np.ndarray:
    """`[H, W]` uint8 of a crop `[H, W, 3]` uint8 in the order red, green, blue; a grey one is given back.

    The weights of ITU-R BT.601 in fixed point, as OpenCV's `cvtColor` has them.

    Raises:
      ValueError: where the crop is no image of 8 bits, or empty.
    """
    if image.dtype != np.uint8 or image.size == 0 or image.ndim not in (2, 3) or image.shape[2:] not in ((), (3,)):
        raise ValueError(f"image is {image.dtype}{list(image.shape)}, and uint8 [H, W] or [H, W, 3] was wanted")
    if image.ndim == 2:
        return image
    red, green, blue = np.moveaxis(image.astype(np.int32), 2, 0)
    return ((9798 * red + 19235 * green + 3735 * blue + (1 << 14)) >> 15).astype(np.uint8)


def as_line(image: np.ndarray) -> np.ndarray:
    """`[32, W]` float32, black -1 to white 1, of a crop of one line; W a multiple of 4, from 8 to 1280.

    Args:
      image: as `as_grey` takes it. Its height becomes 32, bilinearly, its shape stays unless that makes it wider than
        1280; white fills up the last four columns.

    Raises:
      ValueError: as `as_grey`.
      ImportError: where pillow is not installed.

    Example:
      >>> as_line(np.full((16, 31), 255, np.uint8)).shape
      (32, 64)
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(f"scaling a line needs pillow ({error}): pip install 'graphmode[weights]'") from error
    grey = as_grey(np.asarray(image))
    height, width = grey.shape
    wide = min(max(8, round(width * HEIGHT / height)), WIDEST)
    scaled = np.asarray(Image.fromarray(grey).resize((wide, HEIGHT), Image.Resampling.BILINEAR), np.float32)
    return np.pad(scaled / np.float32(127.5) - 1, ((0, 0), (0, -wide % 4)), constant_values=WHITE)


def read(
    reader: Legere, images: Iterable[np.ndarray], *, widths: Sequence[int] = WIDTHS, batch_size: int = 8
) -> list[str]:
    """The text of each line, in the order given: one graph for each bucket of widths that occurs.

    Args:
      reader: in evaluation, with the published characters.
      images: crops of one line each, as `as_line` takes them.
      widths: of the buckets; a line is padded to the next.
      batch_size: lines of a bucket that are read at once; the last batch of each is filled up.

    Raises:
      ValueError: as `as_line`; where a line fits in no bucket.
    """
    columns = [as_line(image).T for image in images]  # [W, 32]
    texts = [""] * len(columns)
    for indices, batch in gm.batches_by_bucket(columns, lengths=widths, batch_size=batch_size, fill_value=WHITE):
        found = _transcribe(reader, batch.values.transpose(0, 2, 1)[..., None], batch.lengths)
        for index, labels, count in zip(indices, np.asarray(found.tokens), np.asarray(found.lengths), strict=True):
            if index < len(texts):
                texts[index] = text_of(labels[:count].tolist())
    return texts
