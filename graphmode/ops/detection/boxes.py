"""Boxes as torchvision.ops has them: areas, overlaps, conversions, clipping; gradients at ties and bounds too."""

from __future__ import annotations

from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from ..arguments import OnOverflow, as_array, as_row_mask
from ..masking.padded import Padded, settled
from ..selection.compact import compact
from .rounding import rounded

BoxFormat = Literal["xyxy", "xywh", "cxcywh"]


def as_boxes(boxes: ArrayLike, *, name: str = "boxes", floating: bool = False) -> jax.Array:
    """An array `[N, 4]` of numbers; with `floating`, of floating-point ones."""
    array = _as_coordinates(boxes, name=name)
    if array.ndim != 2:
        raise ValueError(f"{name} has shape {array.shape}, and [N, 4] was wanted; map over leading axes with jax.vmap")
    if floating and not jnp.issubdtype(array.dtype, jnp.floating):
        raise ValueError(
            f"{name} has dtype {array.dtype}, and a floating-point one was wanted; convert it, as in "
            f"{name}.astype(jnp.float32)"
        )
    return array


def box_area(boxes: ArrayLike) -> jax.Array:
    """Area of each box: width times height, negative where exactly one of them is.

    Source: `torchvision.ops.box_area`.

    Args:
      boxes: `[..., 4]`, corners (x1, y1, x2, y2), any real dtype.

    Returns:
      `[...]`; float16 and bfloat16 become float32, integers of less than 32 bits int32. An int32 area wraps beyond
      2**31, as in PyTorch.

    Raises:
      ValueError: where boxes has no last axis of size 4, or holds no numbers.

    Example:
      >>> box_area([[0.0, 0.0, 2.0, 3.0]]).tolist()
      [6.0]
    """
    x1, y1, x2, y2 = _columns(_upcast(_as_coordinates(boxes)))
    return rounded((x2 - x1) * (y2 - y1))


def box_iou(boxes1: ArrayLike, boxes2: ArrayLike) -> jax.Array:
    """Intersection over union of every pair of boxes.

    Bit for bit what PyTorch computes from float32 and float64 boxes. Two boxes without area give 0 / 0 = NaN, as there;
    put a `jnp.where` around the result, and one around the boxes if gradients flow.

    Source: `torchvision.ops.box_iou`.

    Args:
      boxes1: `[N, 4]`, corners (x1, y1, x2, y2), any real dtype.
      boxes2: `[M, 4]`.

    Returns:
      `[N, M]`, float32, or float64 if a box is. Small dtypes are widened before anything is subtracted: torchvision
      subtracts in uint8, which wraps, and in bfloat16, which rounds.

    Raises:
      ValueError: where boxes1 or boxes2 is not `[N, 4]`.

    Example:
      >>> box_iou([[0.0, 0.0, 2.0, 2.0]], [[1.0, 0.0, 3.0, 2.0], [5.0, 5.0, 6.0, 6.0]]).tolist()
      [[0.3333333432674408, 0.0]]
    """
    inter, union = _inter_union(*_as_pair(boxes1, boxes2))
    return inter / union


def box_inter_over_min(boxes1: ArrayLike, boxes2: ArrayLike, *, offset: float = 0) -> jax.Array:
    """Intersection over the smaller of the two areas, for every pair: the `"Min"` overlap of MTCNN.

    Source: `nms_numpy(..., method="Min")` of facenet-pytorch, whose boxes hold their last pixel: `offset=1`.

    Args:
      boxes1: `[N, 4]`, corners (x1, y1, x2, y2), any real dtype.
      boxes2: `[M, 4]`.
      offset: added to each width and height; 1 where x2 and y2 are the last pixels inside.

    Returns:
      `[N, M]`, float32, or float64 if a box is. NaN where the smaller box has no area.

    Raises:
      ValueError: where boxes1 or boxes2 is not `[N, 4]`.

    Example:
      >>> box_inter_over_min([[0.0, 0.0, 4.0, 4.0]], [[1.0, 0.0, 3.0, 2.0]]).tolist()
      [[1.0]]
    """
    boxes1, boxes2 = _as_pair(boxes1, boxes2)
    grown = jnp.array([0, 0, offset, offset], boxes1.dtype)
    boxes1, boxes2 = boxes1 + grown, boxes2 + grown
    inter, _ = _inter_union(boxes1, boxes2)
    return inter / jnp.minimum(box_area(boxes1)[:, None], box_area(boxes2))


def generalized_box_iou(boxes1: ArrayLike, boxes2: ArrayLike) -> jax.Array:
    """Generalized IoU of every pair: IoU less the share of the enclosing box that neither covers.

    Source: `torchvision.ops.generalized_box_iou`; https://giou.stanford.edu.

    Args:
      boxes1: `[N, 4]`, corners (x1, y1, x2, y2), any real dtype.
      boxes2: `[M, 4]`.

    Returns:
      `[N, M]` in [-1, 1], float32, or float64 if a box is. NaN where neither box has an area.

    Raises:
      ValueError: where boxes1 or boxes2 is not `[N, 4]`.

    Example:
      >>> generalized_box_iou([[0.0, 0.0, 1.0, 1.0]], [[2.0, 0.0, 4.0, 1.0]]).tolist()
      [[-0.25]]
    """
    boxes1, boxes2 = _as_pair(boxes1, boxes2)
    inter, union = _inter_union(boxes1, boxes2)
    width, height = _enclosing(boxes1, boxes2)
    area = rounded(width * height)
    return inter / union - (area - union) / area


def distance_box_iou(boxes1: ArrayLike, boxes2: ArrayLike, eps: float = 1e-7) -> jax.Array:
    """Distance IoU of every pair: IoU less the squared distance of the centres over that of the enclosing corners.

    Source: `torchvision.ops.distance_box_iou`; https://arxiv.org/abs/1911.08287.

    Args:
      boxes1: `[N, 4]`, corners (x1, y1, x2, y2), any real dtype.
      boxes2: `[M, 4]`.
      eps: added to the squared diagonal.

    Returns:
      `[N, M]`, float32, or float64 if a box is. NaN where neither box has an area.

    Raises:
      ValueError: where boxes1 or boxes2 is not `[N, 4]`.

    Example:
      >>> distance_box_iou([[0.0, 0.0, 1.0, 1.0]], [[0.0, 0.0, 1.0, 1.0]]).tolist()
      [[1.0]]
    """
    boxes1, boxes2 = _as_pair(boxes1, boxes2)
    return box_iou(boxes1, boxes2) - _distance(boxes1, boxes2, eps)


def complete_box_iou(boxes1: ArrayLike, boxes2: ArrayLike, eps: float = 1e-7) -> jax.Array:
    """Complete IoU of every pair: distance IoU less a term for unlike aspect ratios, whose weight has no gradient.

    Source: `torchvision.ops.complete_box_iou`; https://arxiv.org/abs/1911.08287.

    Args:
      boxes1: `[N, 4]`, corners (x1, y1, x2, y2), any real dtype.
      boxes2: `[M, 4]`.
      eps: added to the squared diagonal, and to the divisor of the weight.

    Returns:
      `[N, M]`, float32, or float64 if a box is. NaN where neither box has an area.

    Raises:
      ValueError: where boxes1 or boxes2 is not `[N, 4]`.

    Example:
      >>> complete_box_iou([[0.0, 0.0, 2.0, 1.0]], [[0.0, 0.0, 2.0, 1.0]]).tolist()
      [[1.0]]
    """
    boxes1, boxes2 = _as_pair(boxes1, boxes2)
    iou = box_iou(boxes1, boxes2)
    (x1, y1, x2, y2), (u1, v1, u2, v2) = _columns(boxes1), _columns(boxes2)
    aspect = jnp.arctan((x2 - x1) / (y2 - y1))[:, None] - jnp.arctan((u2 - u1) / (v2 - v1))
    unlike = (4 / np.pi**2) * aspect**2
    weight = lax.stop_gradient(unlike / (1 - iou + unlike + eps))
    return iou - _distance(boxes1, boxes2, eps) - weight * unlike


def box_convert(boxes: ArrayLike, in_fmt: BoxFormat, out_fmt: BoxFormat) -> jax.Array:
    """Boxes from one format to another.

    Source: `torchvision.ops.box_convert`, without its rotated formats.

    Args:
      boxes: `[..., 4]`, any real dtype.
      in_fmt: `"xyxy"` (corners), `"xywh"` (first corner, width, height) or `"cxcywh"` (centre, width, height).
      out_fmt: one of the same.

    Returns:
      `[..., 4]` in the dtype of `boxes`; float32 where integers meet halves, on the way to or from `"cxcywh"`.

    Raises:
      ValueError: where a format is unknown, or boxes has no last axis of size 4.

    Example:
      >>> box_convert([[1.0, 2.0, 3.0, 6.0]], "xyxy", "cxcywh").tolist()
      [[2.0, 4.0, 2.0, 4.0]]
    """
    boxes = _as_coordinates(boxes)
    for name, value in (("in_fmt", in_fmt), ("out_fmt", out_fmt)):
        if value not in get_args(BoxFormat):
            raise ValueError(f"{name} is {value!r}; choose 'xyxy', 'xywh' or 'cxcywh'")
    if in_fmt == out_fmt:
        return boxes
    x1, y1, x2, y2 = _columns(boxes)
    if in_fmt == "cxcywh":
        cx, cy, w, h = x1, y1, x2, y2
        x1, y1, x2, y2 = cx - 0.5 * w, cy - 0.5 * h, cx + 0.5 * w, cy + 0.5 * h
    elif in_fmt == "xywh":
        x2, y2 = x1 + x2, y1 + y2
    if out_fmt == "cxcywh":
        return jnp.stack([(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1], axis=-1)
    if out_fmt == "xywh":
        return jnp.stack([x1, y1, x2 - x1, y2 - y1], axis=-1)
    return jnp.stack([x1, y1, x2, y2], axis=-1)


def clip_boxes_to_image(boxes: ArrayLike, size: tuple[Any, Any]) -> jax.Array:
    """Boxes cut to the image; the gradient of a coordinate on the border passes, that of one outside does not.

    Source: `torchvision.ops.clip_boxes_to_image`.

    Args:
      boxes: `[..., 4]`, corners (x1, y1, x2, y2), any real dtype.
      size: (height, width), numbers or 0-d arrays: images of many sizes can share one graph.

    Returns:
      `[..., 4]` in the dtype of `boxes`.

    Raises:
      ValueError: where boxes has no last axis of size 4, or size is no pair.

    Example:
      >>> clip_boxes_to_image([[-1.0, 2.0, 9.0, 7.0]], (5, 8)).tolist()
      [[0.0, 2.0, 8.0, 5.0]]
    """
    boxes = _as_coordinates(boxes)
    shapes = [np.shape(side) for side in size] if isinstance(size, tuple | list) else np.shape(size)
    if shapes not in ([(), ()], (2,)):
        raise ValueError(f"size is {size!r}, and a pair (height, width) of numbers was wanted")
    height, width = size
    x1, y1, x2, y2 = _columns(boxes)

    def clipped(coordinate: jax.Array, most: Any) -> jax.Array:
        most = jnp.asarray(most, coordinate.dtype)
        at_least = _clamped(coordinate)
        return jnp.where(at_least > most, most, at_least)

    return jnp.stack([clipped(x1, width), clipped(y1, height), clipped(x2, width), clipped(y2, height)], axis=-1)


def remove_small_boxes(
    boxes: ArrayLike,
    min_size: ArrayLike,
    *,
    capacity: int,
    valid: ArrayLike | None = None,
    on_overflow: OnOverflow = "flag",
) -> Padded[jax.Array]:
    """Indices of the boxes whose sides are both at least `min_size`, in their order.

    Source: `torchvision.ops.remove_small_boxes`.

    Args:
      boxes: `[N, 4]`, corners (x1, y1, x2, y2), any real dtype.
      min_size: a number, or a 0-d array.
      capacity: the most indices that there is room for; the first ones are kept.
      valid: `[N]`, bool; boxes where it is false are not there. None for all.
      on_overflow: where more are large enough, `"flag"` sets the count alone, `"raise"` raises `ValueError` once the
        graph has run. (`"nan"` is refused: indices have none.)

    Returns:
      `Padded` of int32 `[capacity]`, filled up with `N`, which is out of range.

    Raises:
      ValueError: where boxes, valid, capacity or on_overflow do not fit.
      TypeError: where capacity is no integer, or a traced one.

    Example:
      >>> large = remove_small_boxes([[0.0, 0.0, 9.0, 1.0], [0.0, 0.0, 5.0, 5.0]], 3, capacity=2)
      >>> large.values.tolist(), int(large.count)
      ([1, 2], 1)
    """
    boxes = as_boxes(boxes)
    x1, y1, x2, y2 = _columns(boxes)
    large = (x2 - x1 >= min_size) & (y2 - y1 >= min_size)
    if valid is not None:
        large &= as_row_mask(valid, len(boxes), of="boxes", shape=boxes.shape, name="valid")
    indices = jnp.arange(len(boxes), dtype=jnp.int32)
    return settled(compact(indices, large, capacity=capacity, fill_value=len(boxes)), on_overflow, "remove_small_boxes")


def masks_to_boxes(masks: ArrayLike) -> jax.Array:
    """The box around what is not zero in each mask: its first and last column and row.

    Source: `torchvision.ops.masks_to_boxes`.

    Args:
      masks: `[N, H, W]`, any dtype.

    Returns:
      `[N, 4]`, float32: (x1, y1, x2, y2), whose last pixels are inside. NaN for a mask of zeros alone, where PyTorch
      raises.

    Raises:
      ValueError: where masks is not `[N, H, W]`.

    Example:
      >>> masks_to_boxes(jnp.zeros((1, 4, 5)).at[0, 1:3, 2:5].set(1)).tolist()
      [[2.0, 1.0, 4.0, 2.0]]
    """
    masks = as_array(masks, name="masks")
    if masks.ndim != 3:
        raise ValueError(f"masks has shape {masks.shape}, and [N, H, W] was wanted")

    def ends(covered: jax.Array) -> tuple[jax.Array, jax.Array]:
        size = covered.shape[1]
        place = jnp.arange(size, dtype=jnp.float32)
        first = jnp.min(jnp.where(covered, place, size), axis=1, initial=size)
        last = jnp.max(jnp.where(covered, place, -1), axis=1, initial=-1)
        return jnp.where(last >= 0, first, jnp.nan), jnp.where(last >= 0, last, jnp.nan)

    inside = masks != 0
    (x1, x2), (y1, y2) = ends(jnp.any(inside, axis=1)), ends(jnp.any(inside, axis=2))
    return jnp.stack([x1, y1, x2, y2], axis=-1)


def _as_coordinates(boxes: ArrayLike, *, name: str = "boxes") -> jax.Array:
    array = as_array(boxes, name=name)
    if array.shape[-1:] != (4,):
        raise ValueError(f"{name} has shape {array.shape}, and a last axis of 4 was wanted, one entry a coordinate")
    if not (jnp.issubdtype(array.dtype, jnp.floating) or jnp.issubdtype(array.dtype, jnp.integer)):
        raise ValueError(f"{name} has dtype {array.dtype}, and real numbers were wanted")
    return array


def _as_pair(boxes1: ArrayLike, boxes2: ArrayLike) -> tuple[jax.Array, jax.Array]:
    one, two = as_boxes(boxes1, name="boxes1"), as_boxes(boxes2, name="boxes2")
    dtype = jnp.promote_types(_upcast(one).dtype, _upcast(two).dtype)
    return one.astype(dtype), two.astype(dtype)


def _upcast(boxes: jax.Array) -> jax.Array:
    kind = jnp.float32 if jnp.issubdtype(boxes.dtype, jnp.floating) else jnp.int32
    return boxes.astype(jnp.promote_types(boxes.dtype, kind))


def _columns(boxes: jax.Array) -> tuple[jax.Array, ...]:
    return tuple(boxes[..., i] for i in range(4))


def _clamped(x: jax.Array) -> jax.Array:
    """At least 0; a whole gradient at 0 itself, as `torch.clamp` has, where `jnp.maximum` has half of one."""
    return jnp.where(x < 0, jnp.zeros_like(x), x)


def _inter_union(boxes1: jax.Array, boxes2: jax.Array) -> tuple[jax.Array, jax.Array]:
    first = jnp.maximum(boxes1[:, None, :2], boxes2[:, :2])
    last = jnp.minimum(boxes1[:, None, 2:], boxes2[:, 2:])
    sides = _clamped(last - first)
    inter = rounded(sides[..., 0] * sides[..., 1])
    return inter, box_area(boxes1)[:, None] + box_area(boxes2) - inter


def _enclosing(boxes1: jax.Array, boxes2: jax.Array) -> tuple[jax.Array, jax.Array]:
    first = jnp.minimum(boxes1[:, None, :2], boxes2[:, :2])
    last = jnp.maximum(boxes1[:, None, 2:], boxes2[:, 2:])
    sides = _clamped(last - first)
    return sides[..., 0], sides[..., 1]


def _distance(boxes1: jax.Array, boxes2: jax.Array, eps: float) -> jax.Array:
    width, height = _enclosing(boxes1, boxes2)
    centres1, centres2 = ((boxes[:, :2] + boxes[:, 2:]) / 2 for boxes in (boxes1, boxes2))
    apart = centres1[:, None] - centres2
    return (apart[..., 0] ** 2 + apart[..., 1] ** 2) / (width**2 + height**2 + eps)
