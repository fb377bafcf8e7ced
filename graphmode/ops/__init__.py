"""Fixed-size building blocks for what eager code does with shapes that depend on values."""

from .boxes import (
    box_area,
    box_convert,
    box_inter_over_min,
    box_iou,
    clip_boxes_to_image,
    complete_box_iou,
    distance_box_iou,
    generalized_box_iou,
    masks_to_boxes,
    remove_small_boxes,
)
from .checks import check
from .compact import compact
from .nms import batched_nms, nms
from .padded import Padded
from .partition import partition
from .roi_align import roi_align

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
    "masks_to_boxes",
    "nms",
    "partition",
    "remove_small_boxes",
    "roi_align",
]
