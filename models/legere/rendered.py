"""Lines of text as pictures: what the reader is compared on."""

from __future__ import annotations

import numpy as np

from .charset import CHARSET
from .lines import HEIGHT, WHITE, as_line

PLAIN = [character for character in CHARSET if character.isascii()]


def rendered(text: str, *, size: int = 30, margin: int = 12) -> np.ndarray:
    """`[H, W]` uint8: the text, black on white, in the typeface that pillow brings along (Aileron).

    Args:
      text: one line.
      size: of the typeface, in pixels.
      margin: of white around the ink, in pixels.

    Raises:
      ImportError: where pillow, or its support for typefaces, is not installed.
    """
    try:
        from PIL import Image, ImageDraw, ImageFont

        font = ImageFont.load_default(size)
    except ImportError as error:
        raise ImportError(f"writing a line needs pillow ({error}): pip install 'graphmode[weights]'") from error
    left, top, right, bottom = (int(edge) for edge in font.getbbox(text))
    image = Image.new("L", (right - left + 2 * margin, bottom - top + 2 * margin), 255)
    ImageDraw.Draw(image).text((margin - left, margin - top), text, font=font, fill=0)
    return np.asarray(image)


def some_text(rng: np.random.Generator, most: int) -> str:
    """From 1 to `most` characters of printable ASCII, no blank at either end."""
    text = "".join(rng.choice(PLAIN, rng.integers(1, most + 1))).strip()
    return text or "a"


def batch(lines: list[np.ndarray], width: int) -> tuple[np.ndarray, np.ndarray]:
    """`[B, 1, 32, width]` float32, padded with white, and the widths `[B]` int64, of lines `[32, W]` cut to `width`."""
    images = np.full((len(lines), 1, HEIGHT, width), WHITE, np.float32)
    for image, line in zip(images, lines, strict=True):
        image[0, :, : line.shape[1]] = line[:, :width]
    return images, np.array([min(line.shape[1], width) for line in lines])


def some_lines(rng: np.random.Generator, count: int, width: int = 160) -> tuple[np.ndarray, np.ndarray]:
    """A batch of random text, in several sizes and margins."""
    lines = [
        as_line(rendered(some_text(rng, width // 12), size=int(rng.integers(16, 40)), margin=int(rng.integers(2, 10))))
        for _ in range(count)
    ]
    return batch(lines, width)
