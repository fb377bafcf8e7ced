"""MTCNN as one graph: an image pyramid, score thresholds, NMS and a crop per box, each at a declared capacity.

Three networks look at ever fewer, ever better boxes. In the original each step between them has a shape that depends on
values. Here

- the pyramid and the boxes of its cells follow from the size of the picture: they are constants of the graph;
- `nonzero` of a score mask is `gm.flatnonzero`, and NMS is `gm.nms`: each gives indices as a `gm.Padded`, which has a
  capacity, a mask and the true count, which the next step carries on, so that a capacity that was too small is told;
- a crop of a computed size, resized, is `gm.roi_avg_pool`, of all boxes at once;
- a network for each crop is `Padded.map` with a `chunk`: it looks at as many as there are, however many there is room
  for.

Source: Zhang et al. 2016, "Joint Face Detection and Alignment using Multi-task Cascaded Convolutional Networks", with
the steps and weights of facenet-pytorch 2.6.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

import graphmode as gm
from graphmode import weights
from graphmode.nn.functional import interpolate

from ..installed import installed_weights
from .boxes import area, cell_boxes, corrected, cropped_pixels, made_square, placed, pyramid, scaled_size
from .networks import WIDTHS, Networks

LAYERS = {
    "pnet": ("conv1", "conv2", "conv3"),
    "rnet": ("conv1", "conv2", "conv3", "dense4"),
    "onet": ("conv1", "conv2", "conv3", "conv4", "dense5"),
}


@dataclass(frozen=True)
class Config:
    """What the detector looks for, and how much of it there is room for.

    Attributes:
      min_face_size: side of the smallest face, in pixels.
      thresholds: probabilities that PNet must reach, and RNet and ONet exceed.
      factor: from one scale of the pyramid to the next.
      candidates: capacity for cells that PNet takes for faces, of all scales.
      proposals: capacity for boxes that RNet looks at.
      refined: capacity for boxes that ONet looks at.
      faces: capacity for what is found.
      at_once: crops that RNet and ONet look at in one step; they take as many steps as there are crops for.
    """

    min_face_size: int = 20
    thresholds: tuple[float, float, float] = (0.6, 0.7, 0.7)
    factor: float = 0.709
    candidates: int = 1024
    proposals: int = 256
    refined: int = 64
    faces: int = 16
    at_once: int = 16


class Boxes(NamedTuple):
    """`boxes` `[N, 4]` in pixels (x1, y1, x2, y2), and what a network says of them: `scores` `[N]`, `corrections`
    `[N, 4]`."""

    boxes: Array
    scores: Array
    corrections: Array


class Faces(NamedTuple):
    """`boxes` `[N, 4]` in pixels (x1, y1, x2, y2), `probabilities` `[N]`, `landmarks` `[N, 5, 2]` (eyes, nose, corners
    of the mouth; x, y)."""

    boxes: Array
    probabilities: Array
    landmarks: Array


class Detections(NamedTuple):
    """The faces of `B` pictures.

    Attributes:
      faces: `Padded` of `Faces`, each leaf with a leading axis `B`, the largest face first; `faces.overflow` `[B]` is
        true where any capacity on the way was too small.
      counts: `[B, 4]` int32: candidates, proposals, refined boxes and faces; what was lost of one is in the next ones.
      overflow: `[B, 4]` bool: which capacity was too small.
    """

    faces: gm.Padded[Faces]
    counts: Array
    overflow: Array


class MTCNN(Networks):
    """Pictures `[B, H, W, 3]` uint8 -> `Detections`.

    Raises:
      TypeError: where images are not uint8.
      ValueError: where images are not `[B, H, W, 3]`, or smaller than the smallest face.

    Example:
      >>> detector = MTCNN(Config(faces=4), rngs=nnx.Rngs(0))
      >>> found = detector(jnp.zeros((1, 32, 40, 3), jnp.uint8))
      >>> found.faces.values.boxes.shape, found.overflow.any().item()
      ((1, 4, 4), False)
    """

    def __init__(self, config: Config = Config(), widths: Any = WIDTHS, *, rngs: nnx.Rngs):
        super().__init__(widths, rngs=rngs)
        self.config = config

    def __call__(self, images: Array) -> Detections:  # type: ignore[override]
        if images.dtype != jnp.uint8:
            raise TypeError(f"images has dtype {images.dtype}, and uint8 was wanted, pixels from 0 to 255")
        if images.ndim != 4 or images.shape[-1] != 3:
            raise ValueError(f"images has shape {images.shape}, and [B, H, W, 3] was wanted; add a batch axis")
        cells, scales = self.cells(images)
        by_picture: Any = (Boxes(None, 0, 0), None)  # type: ignore[arg-type]
        candidates, proposals = jax.vmap(self.proposals, in_axes=by_picture)(cells, scales)
        proposals, crops = self.cut_out(images, proposals, 24)
        refined = jax.vmap(self.refined)(proposals, *self.each_crop(self.rnet, crops, proposals.valid))
        refined, crops = self.cut_out(images, refined, 48)
        faces = jax.vmap(self.faces)(refined, *self.each_crop(self.onet, crops, refined.valid))
        stages = (candidates, proposals, refined, faces)
        counts = jnp.stack([stage.count for stage in stages], 1)
        lost = counts - jnp.stack([jnp.sum(stage.valid, 1, dtype=jnp.int32) for stage in stages], 1)
        return Detections(faces, counts, jnp.diff(lost, prepend=0) > 0)

    def cells(self, images: Array) -> tuple[Boxes, Array]:
        """The cells of all scales, boxes `[cells, 4]`, the rest `[B, cells, ...]`; the number of each one's scale."""
        batch, height, width, _ = images.shape
        images = images.astype(self.pnet.conv1.weight.dtype)
        of_scales = []
        for scale in pyramid(height, width, self.config.min_face_size, self.config.factor):
            scaled = interpolate(images, scaled_size(height, width, scale), mode="area")
            corrections, probabilities = self.pnet(normalised(scaled))
            _, rows, columns, _ = probabilities.shape
            boxes = jnp.asarray(cell_boxes(rows, columns, scale, probabilities.dtype).reshape(-1, 4))
            said = Boxes(boxes, probabilities[..., 1].reshape(batch, -1), corrections.reshape(batch, -1, 4))
            of_scales.append(said)
        scales = np.repeat(np.arange(len(of_scales), dtype=np.int32), [len(said.boxes) for said in of_scales])
        cells = Boxes(
            jnp.concatenate([said.boxes for said in of_scales]),
            jnp.concatenate([said.scores for said in of_scales], 1),
            jnp.concatenate([said.corrections for said in of_scales], 1),
        )
        return cells, jnp.asarray(scales)

    def proposals(self, cells: Boxes, scales: Array) -> tuple[gm.Padded[Array], gm.Padded[Boxes]]:
        """The cells of one picture that PNet takes for faces; and of these, those that no better one overlaps, of its
        scale and then of all, moved and made square."""
        capacity = min(self.config.candidates, len(scales))
        candidates = gm.flatnonzero(cells.scores >= self.config.thresholds[0], capacity=capacity)
        found = taken(cells, candidates)
        scale = taken(scales, candidates)
        kept = gm.batched_nms(found.values.boxes, found.values.scores, scale, iou_threshold=0.5, capacity=capacity)
        found = suppressed(taken(found, kept), 0.7, self.config.proposals)
        boxes = corrected(found.values.boxes, found.values.corrections, last_pixel=0)
        return candidates, with_values(found, found.values._replace(boxes=made_square(boxes)))

    def cut_out(self, images: Array, found: gm.Padded[Boxes], size: int) -> tuple[gm.Padded[Boxes], Array]:
        """The boxes that hold a pixel, and their pixels, resized: `[B, N, size, size, 3]`."""

        def of_one(image: Array, found: gm.Padded[Boxes]) -> tuple[gm.Padded[Boxes], Array]:
            pixels, any_inside = cropped_pixels(found.values.boxes, *image.shape[:2])
            found = narrowed(found, any_inside)
            crops = gm.roi_avg_pool(image, with_values(found, pixels), size, dtype=found.values.boxes.dtype)
            return found, normalised(crops)

        return jax.vmap(of_one)(images, found)

    def each_crop(self, network: nnx.Module, crops: Array, valid: Array) -> tuple[Array, ...]:
        """The network's outputs for crops `[B, N, ...]` that are valid `[B, N]`, as `[B, N, ...]`."""
        lead = valid.shape
        of_all = gm.Padded(crops.reshape(-1, *crops.shape[2:]), valid.reshape(-1), jnp.sum(valid, dtype=jnp.int32))
        said = of_all.map(network, batched=True, chunk=self.config.at_once)
        return jax.tree.map(lambda leaf: leaf.reshape(*lead, *leaf.shape[1:]), said.values)

    def refined(self, found: gm.Padded[Boxes], corrections: Array, probabilities: Array) -> gm.Padded[Boxes]:
        """The proposals of one picture that RNet takes for faces and no better one overlaps, moved and made square."""
        said = with_values(found, Boxes(found.values.boxes, probabilities[:, 1], corrections))
        passed = narrowed(said, probabilities[:, 1] > self.config.thresholds[1])
        kept = suppressed(passed, 0.7, self.config.refined)
        boxes = corrected(kept.values.boxes, kept.values.corrections)
        return with_values(kept, kept.values._replace(boxes=made_square(boxes)))

    def faces(
        self, found: gm.Padded[Boxes], corrections: Array, landmarks: Array, probabilities: Array
    ) -> gm.Padded[Faces]:
        """The boxes of one picture that ONet takes for faces and no better one overlaps, the largest first."""
        boxes = found.values.boxes
        said = Faces(corrected(boxes, corrections), probabilities[:, 1], placed(landmarks, boxes))
        passed = narrowed(with_values(found, said), probabilities[:, 1] > self.config.thresholds[2])
        kept = suppressed(passed, 0.7, self.config.faces, overlap="min", offset=1)
        return kept.sort(by=area(kept.values.boxes), descending=True)


def normalised(pixels: Array) -> Array:
    """0 .. 255 to about -1 .. 1."""
    return (pixels - 127.5) * 0.0078125


def with_values(found: gm.Padded[Any], values: Any) -> gm.Padded[Any]:
    return gm.Padded(values, found.valid, found.count)


def narrowed(found: gm.Padded[Any], mask: Array) -> gm.Padded[Any]:
    """The rows where the mask holds too, each at its place; rows lost before are still counted."""
    gone = jnp.sum(found.valid & ~mask, dtype=jnp.int32)
    return gm.Padded(found.values, found.valid & mask, found.count - gone)


def taken(rows: Any, indices: gm.Padded[Array]) -> gm.Padded[Any]:
    """`rows[indices]` of arrays `[N, ...]`, or of what a `Padded` holds."""
    rows = rows.values if isinstance(rows, gm.Padded) else rows
    return with_values(indices, jax.tree.map(lambda x: x.at[indices.values].get(mode="fill", fill_value=0), rows))


def suppressed(found: gm.Padded[Any], iou_threshold: float, capacity: int, **options: Any) -> gm.Padded[Any]:
    """Rows, their boxes and scores first, that no better one overlaps by more than the threshold, best first."""
    boxes, scores, *_ = found.values
    boxes = with_values(found, boxes)
    return taken(found, gm.nms(boxes, scores, iou_threshold=iou_threshold, capacity=capacity, **options))


def load(path: str | PathLike[str] | None = None, config: Config = Config()) -> MTCNN:
    """The detector with weights.

    Args:
      path: of a `state_dict` of facenet-pytorch's `MTCNN`, `.pt` or `.safetensors`, with layers of any width; or of a
        folder that holds `pnet.pt`, `rnet.pt` and `onet.pt`. None for the weights that are installed.
      config: thresholds and capacities.

    Raises:
      ImportError: where no path is given and the weights are not installed, or a `.pt` is to be read without PyTorch.
      WeightsError: where the tensors are not the model's.
    """
    path = installed_weights("mtcnn") if path is None else Path(path)
    if path.is_dir():
        each = {net: weights.read(path / f"{net}.pt") for net in LAYERS}
        state = {f"{net}.{name}": tensor for net, tensors in each.items() for name, tensor in tensors.items()}
    else:
        state = weights.read(path)
    model = MTCNN(config, declared_widths(state), rngs=nnx.Rngs(0))
    weights.load(model, state)
    model.eval()
    return model


def declared_widths(state: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    """Of each network's layers, as the biases say; the usual ones where there are none, and `load` will say so."""
    biases = {net: [state.get(f"{net}.{layer}.bias") for layer in layers] for net, layers in LAYERS.items()}
    return {
        net: WIDTHS[net]
        if any(bias is None for bias in each)
        else tuple(len(bias) for bias in each if bias is not None)
        for net, each in biases.items()
    }
