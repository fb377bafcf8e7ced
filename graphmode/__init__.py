"""Move a model from eager PyTorch to JAX/Flax graph mode, prove that nothing changed, show that it is faster."""

from . import nn, ops, weights
from .graph import graphed
from .ops import (
    Padded,
    batched_nms,
    box_area,
    box_convert,
    box_inter_over_min,
    box_iou,
    check,
    clip_boxes_to_image,
    compact,
    complete_box_iou,
    distance_box_iou,
    generalized_box_iou,
    masks_to_boxes,
    nms,
    partition,
    remove_small_boxes,
    roi_align,
)

__all__ = [
    "Padded",
    "batched_nms",
    "box_area",
    "box_convert",
    "box_inter_over_min",
    "box_iou",
    "check",
    "clip_boxes_to_image",
    "compact",
    "complete_box_iou",
    "distance_box_iou",
    "generalized_box_iou",
    "graphed",
    "masks_to_boxes",
    "nms",
    "nn",
    "ops",
    "partition",
    "remove_small_boxes",
    "roi_align",
    "weights",
]
__version__ = "0.1.0"
