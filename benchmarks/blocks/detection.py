"""Detection: non-maximum suppression against eager PyTorch without torchvision's kernels."""

import numpy as np
import torch
from block import Block

import graphmode as gm

THRESHOLD = 0.5


def candidates(rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
    """Objects of 10 to 100 pixels with about ten candidates each, in an image that grows with their number."""
    objects = max(n // 10, 1)
    centre = rng.uniform(0, 60 * np.sqrt(objects), (objects, 2))
    side = rng.uniform(10, 100, (objects, 2))
    which = rng.integers(objects, size=n)
    centre = centre[which] + 0.1 * side[which] * rng.standard_normal((n, 2))
    half = side[which] * rng.uniform(0.8, 1.25, (n, 2)) / 2
    boxes = np.concatenate([centre - half, centre + half], axis=1)
    return boxes.astype(np.float32), rng.random(n).astype(np.float32)


def ours(boxes, scores):
    return gm.nms(boxes, scores, iou_threshold=THRESHOLD, capacity=len(boxes))


def eager(boxes, scores):
    """The usual form without a kernel: one vector operation for each kept box, over those that remain."""
    order = scores.argsort(descending=True, stable=True)
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept = []
    while order.numel():
        best, rest = order[0], order[1:]
        kept.append(best)
        first = torch.maximum(boxes[best, :2], boxes[rest, :2])
        last = torch.minimum(boxes[best, 2:], boxes[rest, 2:])
        sides = (last - first).clamp(min=0)
        inter = sides[:, 0] * sides[:, 1]
        order = rest[inter / (area[best] + area[rest] - inter) <= THRESHOLD]
    return torch.stack(kept) if kept else order


BLOCKS = (Block("nms", candidates, ours, eager, None, (1_000, 10_000)),)
