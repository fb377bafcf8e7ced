"""MTCNN on real weights and photographs: the whole detector, and its three networks, which is what is trained."""

from __future__ import annotations

import numpy as np
from graphmode.compare import Case, channels_first, channels_last

from ..optimizers import adam
from .model import MTCNN, Config, Detections
from .networks import Networks
from .photographs import group, photograph, varied

CONFIG = Config(min_face_size=30, candidates=256, proposals=96, refined=64, faces=6)  # for pictures of 160 x 160
GROUP = ((0, 0, 90), (0, 90, 70), (90, 0, 70), (90, 80, 64))  # faces of 51, 39, 39 and 36 pixels
CROWD = tuple((top, left, 53) for top in (0, 53, 106) for left in (0, 53, 106))  # nine, more than there is room for
# Pictures come in pairs: what one holds must not touch the other, and one size is compiled once.


def _no_face() -> np.ndarray:
    return photograph("coffee")[100:260, 150:310]


def _one_each(rng: np.random.Generator) -> tuple[np.ndarray]:
    return (np.stack([varied(rng), varied(rng)]),)


def _batch(rng: np.random.Generator, batch: int) -> tuple[np.ndarray]:
    return (np.stack([varied(rng) for _ in range(batch)]),)


def _several_and_none(rng: np.random.Generator) -> tuple[np.ndarray]:
    return (np.stack([group(160, GROUP), _no_face()]),)


def _crowd_and_one(rng: np.random.Generator) -> tuple[np.ndarray]:
    return (np.stack([group(160, CROWD), varied(rng)]),)


def _none_and_one(rng: np.random.Generator) -> tuple[np.ndarray]:
    return (np.stack([_no_face(), varied(rng)]),)


def _black(rng: np.random.Generator) -> tuple[np.ndarray]:
    return (np.zeros((2, 160, 160, 3), np.uint8),)


def _reference():
    from .random_weights import made_to_find
    from .reference import MTCNN

    detector = MTCNN(CONFIG.faces, CONFIG.min_face_size, CONFIG.thresholds, CONFIG.factor)
    return made_to_find(detector, group(160, GROUP))


def _networks():
    from .reference import Networks

    return Networks()


def _weights():
    from .reference import pretrained_weights

    return pretrained_weights()


def as_dict(found: Detections) -> dict:
    """The reference's form: rows that are not valid are 0."""
    told = {"valid": found.faces.valid, "counts": found.counts, "overflow": found.overflow}
    return {**found.faces.values._asdict(), **told}


def readings(found: dict) -> dict[str, str]:
    """Each face of the first picture: its box in whole pixels, and how sure the detector is."""
    return {
        f"face {i}": f"{np.rint(box).astype(int).tolist()}, probability {probability:.4f}"
        for i, (box, probability, valid) in enumerate(
            zip(found["boxes"][0], found["probabilities"][0], found["valid"][0], strict=True), 1
        )
        if valid
    }


def _crops(rng: np.random.Generator, batch: int = 2) -> tuple[np.ndarray, ...]:
    """A picture for PNet, and crops of 24 and of 48 pixels, of the astronaut and of what is no face."""
    pictures = np.stack([varied(rng), _no_face()] * -(-batch // 2))[:batch]
    scaled = ((pictures - 127.5) / 128).astype(np.float32).transpose(0, 3, 1, 2)
    return scaled[:, :, ::4, ::4], scaled[:, :, 20:140:5, 20:140:5], scaled[:, :, 8:152:3, 8:152:3]


CASE = Case(
    name="mtcnn",
    summary="a face detector with real weights: pyramid, score thresholds, NMS and a crop per box, in one graph",
    reference=_reference,
    pretrained=_weights,
    model=lambda rngs: MTCNN(CONFIG, rngs=rngs),
    inputs=_one_each,
    edge_inputs={
        "several and none": _several_and_none,
        "none and one": _none_and_one,
        "crowd and one": _crowd_and_one,
        "black": _black,
    },
    to_reference=as_dict,
    patience={"jax.*": 90.0, "jax.eager": 5.0},  # seven networks and four NMS to compile
    modes=("inference",),
    interpret={"several and none": readings},
    sweep=_batch,
    tags=("vision", "pretrained", "dynamic shape"),
)
NETWORKS = Case(
    name="mtcnn_networks",
    summary="the three networks of a face detector on crops of fixed sizes: what of it is trained",
    reference=_networks,
    pretrained=_weights,
    model=lambda rngs: Networks(rngs=rngs),
    inputs=_crops,
    to_model=channels_last,
    to_reference=channels_first,
    optimizer=adam(1e-3),
    modes=("inference", "forward_backward"),
    sweep=_crops,
    tags=("vision", "pretrained", "training"),
)
