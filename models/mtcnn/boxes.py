"""Where MTCNN looks: the pyramid and its cells, known from the picture's size, and how boxes are moved and cut out.

Boxes are `[..., 4]` in pixels: x1, y1, x2, y2.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

CELL, STRIDE = 12, 2  # of PNet, in pixels of a scaled picture


def pyramid(height: int, width: int, min_face_size: int, factor: float) -> list[float]:
    """Scales at which a face of PNet's 12 pixels is one of min_face_size pixels, and larger, as long as it fits.

    Raises:
      ValueError: where no face of that size fits into the picture.

    Example:
      >>> [round(scale, 4) for scale in pyramid(40, 64, 20, 0.709)]
      [0.6, 0.4254, 0.3016]
    """
    scale = CELL / min_face_size
    side = min(height, width) * scale
    scales = []
    while side >= CELL:
        scales.append(scale)
        scale = scale * factor
        side = side * factor
    if not scales:
        raise ValueError(
            f"images are {height} x {width} pixels, and min_face_size is {min_face_size}; give pictures at least that "
            f"high and wide, or a smaller min_face_size"
        )
    return scales


def scaled_size(height: int, width: int, scale: float) -> tuple[int, int]:
    return int(height * scale + 1), int(width * scale + 1)


def cell_boxes(rows: int, columns: int, scale: float, dtype: jnp.dtype) -> np.ndarray:
    """`[rows, columns, 4]`: the box of each cell of PNet's output in the picture, rounded as the original rounds it."""
    wide = jnp.promote_types(dtype, jnp.float32)

    def edges(cells: int, *offsets: int) -> np.ndarray:
        at = np.asarray(STRIDE * np.arange(cells)).astype(dtype)
        for offset in offsets:
            at = at + np.asarray(offset, dtype)
        return np.floor((at.astype(wide) / np.asarray(scale, wide)).astype(dtype))

    # The original adds 12 - 1 + 1, and in bfloat16 each step rounds.
    (y1, y2), (x1, x2) = ((edges(cells, 1), edges(cells, CELL, -1, 1)) for cells in (rows, columns))
    x1, x2 = (np.broadcast_to(x, (rows, columns)) for x in (x1, x2))
    y1, y2 = (np.broadcast_to(y[:, None], (rows, columns)) for y in (y1, y2))
    return np.stack([x1, y1, x2, y2], -1)


def corrected(boxes: jax.Array, corrections: jax.Array, *, last_pixel: int = 1) -> jax.Array:
    """Each edge moved by a share of the box's width or height; with last_pixel, x2 and y2 are inside the box."""
    sides = boxes[..., 2:] - boxes[..., :2] + last_pixel
    return boxes + corrections * jnp.concatenate([sides, sides], -1)


def made_square(boxes: jax.Array) -> jax.Array:
    """Squares about the same centres, as long as the longer side."""
    sides = boxes[..., 2:] - boxes[..., :2]
    side = jnp.max(sides, -1, keepdims=True)
    corner = boxes[..., :2] + sides * 0.5 - side * 0.5
    return jnp.concatenate([corner, corner + side], -1)


def area(boxes: jax.Array) -> jax.Array:
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def cropped_pixels(boxes: jax.Array, height: int, width: int) -> tuple[jax.Array, jax.Array]:
    """Boxes as int32 edges between pixels, within the picture, and which of them hold a pixel."""
    whole = jnp.trunc(boxes).astype(jnp.int32)
    first = jnp.maximum(whole[..., :2], 1) - 1
    end = jnp.minimum(whole[..., 2:], jnp.array([width, height]))
    return jnp.concatenate([first, end], -1), jnp.all(end > first, -1)


def placed(landmarks: jax.Array, boxes: jax.Array) -> jax.Array:
    """Five landmarks, as shares of their box `[..., 10]`, all x and then all y, to pixels `[..., 5, 2]`."""
    shares = jnp.stack([landmarks[..., :5], landmarks[..., 5:]], -1)
    sides = boxes[..., None, 2:] - boxes[..., None, :2] + 1
    return sides * shares + boxes[..., None, :2] - 1
