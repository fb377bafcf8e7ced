"""Four photographs as the network wants them, and what its answers are called."""

from __future__ import annotations

from functools import cache

import numpy as np

NAMES = ("astronaut", "chelsea", "coffee", "rocket")
SIZE = 224
CLASS_NAMES = {285: "Egyptian cat", 450: "bobsled", 657: "missile", 967: "espresso"}


@cache
def photographs() -> np.ndarray:
    """`[4, 3, 224, 224]` float32: scikit-image's photographs, centre-cropped to a square, bicubic, `(x - 127) / 128`.

    Raises:
      ImportError: where scikit-image or pillow is not installed.
    """
    try:
        from PIL import Image
        from skimage import data
    except ImportError as error:
        raise ImportError(
            f"the photographs of efficientnet_lite0 need scikit-image and pillow ({error}): "
            "pip install 'graphmode[weights]'"
        ) from error
    images = []
    for name in NAMES:
        pixels = getattr(data, name)()
        height, width = pixels.shape[:2]
        side = min(height, width)
        top, left = (height - side) // 2, (width - side) // 2
        square = Image.fromarray(pixels[top : top + side, left : left + side])
        images.append(np.asarray(square.resize((SIZE, SIZE), Image.Resampling.BICUBIC), np.float32))
    scaled = (np.stack(images) - 127) / 128
    scaled = np.ascontiguousarray(scaled.transpose(0, 3, 1, 2))
    scaled.setflags(write=False)
    return scaled


def varied(rng: np.random.Generator, *, reach: int = 8) -> np.ndarray:
    """The photographs, each mirrored or not and moved by up to `reach` pixels, edges repeated."""
    padded = np.pad(photographs(), ((0, 0), (0, 0), (reach, reach), (reach, reach)), mode="edge")
    images = []
    for image in padded:
        top, left = rng.integers(0, 2 * reach + 1, 2)
        cut = image[:, top : top + SIZE, left : left + SIZE]
        images.append(cut[:, :, ::-1] if rng.random() < 0.5 else cut)
    return np.stack(images)


def readings(logits: np.ndarray) -> dict[str, str]:
    """The best class of each photograph, from `[4, 1000]` logits: its ImageNet index, and its name where known here."""
    best = (int(index) for index in np.asarray(logits).argmax(-1))
    return {name: f"{index} {CLASS_NAMES.get(index, '')}".rstrip() for name, index in zip(NAMES, best, strict=True)}
