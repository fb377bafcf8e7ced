"""Non-maximum suppression: torchvision's greedy choice, index for index, in tiles and without an N x N matrix.

Candidates are taken best first, a tile at a time. A tile is compared with the boxes kept so far, a chunk at a time, and
then settled within itself: "kept are those that no kept better one overlaps" is applied until nothing changes, which is
the greedy answer, since after k rounds at least the best k are settled. That is N x (number kept) overlaps at most, and
memory for one tile by one chunk, also under `vmap`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from ..arguments import OnOverflow, as_array, as_capacity, as_on_overflow, as_row_mask
from ..indices import DROP
from ..masking.padded import Padded, settled
from ..selection.compact import compact
from .boxes import as_boxes
from .rounding import rounded

Overlap = Literal["iou", "min"]

TILE, CHUNK = 128, 512


class Candidates(NamedTuple):
    """Boxes, best first.

    `corners`: `[4, M]`: x1, y1, x2, y2; `area`: `[M]`; `label`: `[M]`, or None where all are one class.
    """

    corners: jax.Array
    area: jax.Array
    label: jax.Array | None


def nms(
    boxes: ArrayLike | Padded[jax.Array],
    scores: ArrayLike | Padded[jax.Array],
    *,
    iou_threshold: ArrayLike,
    capacity: int,
    valid: ArrayLike | None = None,
    overlap: Overlap = "iou",
    offset: float = 0,
    on_overflow: OnOverflow = "flag",
) -> Padded[jax.Array]:
    """Indices of the boxes that no better kept box overlaps by more than the threshold, best first.

    Exactly torchvision's choice: ties in score go to the lower index, NaN scores are the best, an overlap equal to
    the threshold suppresses nothing, nor does one that is NaN, and arithmetic is rounded as its CPU kernel rounds it
    (on other devices only as far as their division is correctly rounded). No gradient: indices have none; gather the
    boxes and scores with them, and it flows there.

    Source: `torchvision.ops.nms`; `overlap="min", offset=1` is `nms_numpy(..., method="Min")` of facenet-pytorch,
    except that the latter gives ties in score to no index in particular.

    Args:
      boxes: `[N, 4]`, corners (x1, y1, x2, y2), floating-point; float16 and bfloat16 are computed in float32. Or a
        `Padded` of such.
      scores: `[N]`, floating-point, or a `Padded` of such.
      iou_threshold: in [0, 1]; a Python number, or a 0-d array that may be traced (and is then not checked).
      capacity: the most indices that there is room for; the best ones are kept.
      valid: `[N]`, bool; boxes where it is false are not there. None for all.
      overlap: `"iou"`, or `"min"` for the intersection over the smaller area.
      offset: added to each width and height; 1 where x2 and y2 are the last pixels inside.
      on_overflow: where more than `capacity` boxes are kept, `"flag"` sets the count alone, `"raise"` raises
        `ValueError` once the graph has run. (`"nan"` is refused: indices have none.)

    Returns:
      `Padded` of int32 `[capacity]`, filled up with `N`, which is out of range. The count is of all that the whole
      greedy pass keeps, and of what a `Padded` input had lost before.

    Raises:
      ValueError: where boxes, scores, valid, iou_threshold, overlap, offset, capacity or on_overflow do not fit.
      TypeError: where capacity is no integer, or a traced one.

    Example:
      >>> boxes = jnp.array([[0.0, 0.0, 4.0, 4.0], [0.0, 0.0, 4.0, 3.0], [5.0, 5.0, 6.0, 6.0]])
      >>> kept = nms(boxes, jnp.array([0.8, 0.9, 0.1]), iou_threshold=0.5, capacity=3)
      >>> kept.values.tolist(), int(kept.count)
      ([1, 2, 3], 2)
    """
    return _nms("nms", boxes, scores, None, iou_threshold, capacity, valid, overlap, offset, on_overflow)


def batched_nms(
    boxes: ArrayLike | Padded[jax.Array],
    scores: ArrayLike | Padded[jax.Array],
    idxs: ArrayLike | Padded[jax.Array],
    *,
    iou_threshold: ArrayLike,
    capacity: int,
    valid: ArrayLike | None = None,
    overlap: Overlap = "iou",
    offset: float = 0,
    on_overflow: OnOverflow = "flag",
) -> Padded[jax.Array]:
    """`nms` within each class (or image): boxes of different `idxs` never suppress each other.

    Indices of all classes together, best first. This is `_batched_nms_vanilla` of torchvision, which runs `nms` for
    each class. For few boxes torchvision moves each class to a place of its own instead, which rounds coordinates and
    makes classes overlap where they are negative; that is not imitated.

    Source: `torchvision.ops.batched_nms`.

    Args:
      boxes: as for `nms`.
      scores: as for `nms`.
      idxs: `[N]`, integers: the class of each box, or a `Padded` of such.
      iou_threshold: as for `nms`.
      capacity: the most indices that there is room for, of all classes together; the best ones are kept.
      valid: as for `nms`.
      overlap: as for `nms`.
      offset: as for `nms`.
      on_overflow: as for `nms`.

    Returns:
      `Padded` of int32 `[capacity]`, as `nms` gives.

    Raises:
      ValueError: as for `nms`, and where idxs is not `[N]` or holds no integers.
      TypeError: where capacity is no integer, or a traced one.

    Example:
      >>> boxes = jnp.array([[0.0, 0.0, 4.0, 4.0], [0.0, 0.0, 4.0, 4.0], [0.0, 0.0, 4.0, 4.0]])
      >>> classes = jnp.array([7, 7, 2])
      >>> kept = batched_nms(boxes, jnp.array([0.8, 0.9, 0.1]), classes, iou_threshold=0.5, capacity=3)
      >>> kept.values.tolist(), int(kept.count)
      ([1, 2, 3], 2)
    """
    return _nms("batched_nms", boxes, scores, idxs, iou_threshold, capacity, valid, overlap, offset, on_overflow)


def _nms(
    operation: str,
    boxes: ArrayLike | Padded[jax.Array],
    scores: ArrayLike | Padded[jax.Array],
    idxs: ArrayLike | Padded[jax.Array] | None,
    iou_threshold: ArrayLike,
    capacity: int,
    valid: ArrayLike | None,
    overlap: Overlap,
    offset: float,
    on_overflow: OnOverflow,
) -> Padded[jax.Array]:
    padded = [x for x in (boxes, scores, idxs) if isinstance(x, Padded)]
    boxes = as_boxes(_values(boxes), floating=True)
    rows = len(boxes)
    scores = _as_scores(_values(scores), rows)
    label = None if idxs is None else _as_idxs(_values(idxs), rows)
    there = [] if valid is None else [as_row_mask(valid, rows, of="boxes", shape=boxes.shape, name="valid")]
    there += [x.valid for x in padded]
    if overlap not in get_args(Overlap):
        raise ValueError(f"overlap is {overlap!r}; choose 'iou' (over the union) or 'min' (over the smaller area)")
    if not np.isfinite(offset):
        raise ValueError(f"offset is {offset!r}; give a finite number: 0, or 1 where x2, y2 are the last pixels inside")
    capacity = as_capacity(capacity)
    as_on_overflow(on_overflow, np.dtype(np.int32))
    boxes = lax.stop_gradient(boxes).astype(jnp.promote_types(boxes.dtype, jnp.float32))
    threshold = _as_threshold(iou_threshold, boxes.dtype)
    order, kept = _greedy(boxes, lax.stop_gradient(scores), label, _all(there), threshold, overlap, offset)
    picked = compact(order, kept, capacity=capacity, fill_value=rows)
    lost = [x.count - jnp.sum(x.valid, dtype=jnp.int32) for x in padded]
    count = picked.count + (jnp.max(jnp.stack(lost)) if lost else 0)
    return settled(Padded(picked.values, picked.valid, count), on_overflow, operation)


def _greedy(
    boxes: jax.Array,
    scores: jax.Array,
    label: jax.Array | None,
    valid: jax.Array | None,
    threshold: jax.Array,
    overlap: Overlap,
    offset: float,
) -> tuple[jax.Array, jax.Array]:
    """Indices best first, `[N]` int32, and whether each is kept, `[N]` bool."""
    rows = len(boxes)
    if not rows:
        return jnp.zeros(0, jnp.int32), jnp.zeros(0, bool)
    keys = scores if valid is None else jnp.where(valid, scores, -jnp.inf)
    order = jnp.argsort(keys, stable=True, descending=True).astype(jnp.int32)
    tile = min(TILE, rows)
    room = -(-rows // tile) * tile
    best_first = _candidates(boxes, label, order, room, offset)
    place = jnp.arange(room, dtype=jnp.int32)
    there = place < rows if valid is None else jnp.pad(valid[order], (0, room - rows))
    end = jnp.max(jnp.where(there, place + 1, 0))

    def settle_tile(state: tuple[jax.Array, Candidates, jax.Array, jax.Array]) -> tuple:
        start, held, count, kept = state
        mine = _sliced(best_first, start, tile)
        alive = lax.dynamic_slice_in_dim(there, start, tile)

        def against_chunk(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            first, alive = state
            hits = _overlaps(_sliced(held, first, CHUNK), mine, threshold, overlap, offset)
            in_use = first + jnp.arange(CHUNK, dtype=jnp.int32) < count
            return first + CHUNK, alive & ~jnp.any(hits & in_use[:, None], axis=0)

        _, alive = lax.while_loop(lambda state: state[0] < count, against_chunk, (jnp.int32(0), alive))
        within = _overlaps(mine, mine, threshold, overlap, offset) & jnp.triu(jnp.ones((tile, tile), bool), 1)

        def once_more(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            _, now = state
            return now, alive & ~jnp.any(within & now[:, None], axis=0)

        _, mine_kept = lax.while_loop(
            lambda state: jnp.any(state[0] != state[1]), once_more, (jnp.zeros_like(alive), alive)
        )
        target = jnp.where(mine_kept, count + jnp.cumsum(mine_kept, dtype=jnp.int32) - 1, room + CHUNK)
        held = jax.tree.map(lambda to, leaf: to.at[..., target].set(leaf, **DROP), held, mine)
        kept = lax.dynamic_update_slice_in_dim(kept, mine_kept, start, 0)
        return start + tile, held, count + jnp.sum(mine_kept, dtype=jnp.int32), kept

    held = jax.tree.map(lambda leaf: jnp.zeros((*leaf.shape[:-1], room + CHUNK), leaf.dtype), best_first)
    state = (jnp.int32(0), held, jnp.int32(0), jnp.zeros(room, bool))
    *_, kept = lax.while_loop(lambda state: state[0] < end, settle_tile, state)
    return order, kept[:rows]


def _candidates(boxes: jax.Array, label: jax.Array | None, order: jax.Array, room: int, offset: float) -> Candidates:
    x1, y1, x2, y2 = jnp.pad(boxes[order].T, ((0, 0), (0, room - len(order))))
    # torchvision and facenet-pytorch subtract first and add the offset last; where it is 0 nothing is added at all.
    area = rounded((x2 - x1 + offset) * (y2 - y1 + offset)) if offset else rounded((x2 - x1) * (y2 - y1))
    label = None if label is None else jnp.pad(label[order], (0, room - len(order)))
    return Candidates(jnp.stack([x1, y1, x2, y2]), area, label)


def _overlaps(
    better: Candidates, worse: Candidates, threshold: jax.Array, overlap: Overlap, offset: float
) -> jax.Array:
    """`[P, Q]` bool: whether the overlap of each pair is above the threshold."""
    x1, y1, x2, y2 = better.corners[:, :, None]
    u1, v1, u2, v2 = worse.corners[:, None, :]
    width = jnp.minimum(x2, u2) - jnp.maximum(x1, u1)
    height = jnp.minimum(y2, v2) - jnp.maximum(y1, v1)
    if offset:
        width, height = width + offset, height + offset
    # Not clamped at 0: boxes that do not meet are ruled out at the end, and the sign that is unknown keeps the
    # compilers from removing what `rounded` puts between product and sum.
    inter = rounded(width * height)
    area, other = better.area[:, None], worse.area[None, :]
    share = inter / (area + other - inter) if overlap == "iou" else inter / jnp.minimum(area, other)
    hit = (width > 0) & (height > 0) & (share > threshold)
    if better.label is None or worse.label is None:
        return hit
    return hit & (better.label[:, None] == worse.label[None, :])


def _sliced(candidates: Candidates, start: jax.Array, size: int) -> Candidates:
    return jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, start, size, axis=-1), candidates)


def _values(x: ArrayLike | Padded[jax.Array]) -> ArrayLike:
    return x.values if isinstance(x, Padded) else x


def _all(masks: list[jax.Array]) -> jax.Array | None:
    return jnp.all(jnp.stack(masks), axis=0) if masks else None


def _as_scores(scores: ArrayLike, rows: int) -> jax.Array:
    array = as_array(scores, name="scores")
    if array.shape != (rows,):
        raise ValueError(f"scores has shape {array.shape}, and {(rows,)} was wanted, one score for each row of boxes")
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise ValueError(
            f"scores has dtype {array.dtype}, and a floating-point one was wanted; convert it, as in "
            f"scores.astype(jnp.float32)"
        )
    return array


def _as_idxs(idxs: ArrayLike, rows: int) -> jax.Array:
    array = as_array(idxs, name="idxs")
    if array.shape != (rows,):
        raise ValueError(f"idxs has shape {array.shape}, and {(rows,)} was wanted, one class for each row of boxes")
    if not jnp.issubdtype(array.dtype, jnp.integer):
        raise ValueError(f"idxs has dtype {array.dtype}, and integers were wanted, one class for each row of boxes")
    return array


def _as_threshold(iou_threshold: ArrayLike, dtype: np.dtype) -> jax.Array:
    """In `dtype`, such that `x > threshold` holds there for the same `x` as in double precision, PyTorch's way."""
    if np.shape(iou_threshold) or isinstance(iou_threshold, str) or iou_threshold is None:
        raise ValueError(f"iou_threshold is {iou_threshold!r}, and one number from 0 to 1 was wanted")
    if isinstance(iou_threshold, jax.core.Tracer):
        return iou_threshold.astype(dtype)
    value = np.asarray(iou_threshold).item()
    if not 0 <= value <= 1:
        raise ValueError(f"iou_threshold is {value}; give a number from 0 to 1, the overlap up to which both are kept")
    nearest = np.asarray(value, dtype)
    return jnp.asarray(np.nextafter(nearest, -np.inf, dtype=dtype) if float(nearest) > value else nearest)
