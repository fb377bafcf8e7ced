"""The two verdicts. *Equal*: the same function, judged in float64. *Precise*: as well computed, in the dtype in use.

Neither rests on a tolerance chosen per test. *Equal* allows 1e-10 of a tensor's scale, which float64 rounding does not
reach and a wrong epsilon, variance or activation does. *Precise* compares errors, not values: the port's root mean
square error against the float64 reference may be at most five times PyTorch's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from ..dtypes import HALF_ULP

EQUAL_TOLERANCE = 1e-10
PRECISE_RATIO = 5.0
JUDGED_ELEMENTS = 64
SMALLEST_SCALE = 1e-6  # of a tensor's scale over all inputs: below, an output is a cancellation, its own scale noise
LEAST_FILL = 1e4  # a mask's -1e4, -1e9 or least finite number, which is written where others are computed, and
FAR_ABOVE = 1e3  # times the largest of these
ALIKE = 1e-3  # of a fill: what a score leaves of it where it is added
ROUNDING = (1e-18, 1e-13)  # of a fill: others of this size may be what float64 left of sums with it
SMALLEST_GRADIENT = 1e-4  # of the largest of the model: inside it, less is rounding of what is zero, as before a norm


@dataclass(frozen=True, slots=True)
class Difference:
    """How far one tensor is from its reference.

    Attributes:
      error: the largest absolute difference over the scale; infinite for another shape, a new NaN or an integer that
        differs.
      index: where it is.
      port, reference: both values there, in full precision.
      note: what is wrong, where it is not a matter of size.
    """

    error: float
    index: tuple[int, ...] = ()
    port: str = ""
    reference: str = ""
    note: str = ""

    @property
    def equal(self) -> bool:
        return self.error <= EQUAL_TOLERANCE


def difference(port: np.ndarray, reference: np.ndarray, scale: float | None = None) -> Difference:
    """Compares two arrays elementwise in float64; NaN equals NaN, and infinities must agree in sign.

    Args:
      port: any shape and dtype.
      reference: the same shape, and the same kind of dtype.
      scale: what the error is a fraction of, but where `reference` is filled: there its own value, where it is larger;
        the `magnitude` of `reference` where None.
    """
    if port.shape != reference.shape:
        return Difference(np.inf, note=f"shape {port.shape}, and the reference has {reference.shape}")
    if _kind(port) != _kind(reference):
        return Difference(np.inf, note=f"dtype {port.dtype}, and the reference has {reference.dtype}")
    if port.size == 0:
        return Difference(0.0)
    a, b = _wide(port), _wide(reference)
    if a.dtype.kind not in "fc":
        apart = np.argwhere(a != b)
        if not len(apart):
            return Difference(0.0)
        index = tuple(int(i) for i in apart[0])
        return Difference(
            np.inf, index, str(port[index]), str(reference[index]), f"{len(apart)} of {port.size} elements differ"
        )
    gap = _gap(a, b)
    if not gap.any():
        return Difference(0.0)
    scale = magnitude(reference) if scale is None else scale
    fills = filled(b)
    beside = gap if fills is None else np.where(fills, gap / np.maximum(np.abs(b), scale or 1.0) * scale, gap)
    index = tuple(int(i) for i in np.unravel_index(np.argmax(beside), gap.shape))
    worst = float(beside[index])
    note = "not finite on one side alone" if not np.isfinite(worst) else ""
    error = worst / scale if scale > 0 else np.inf
    return Difference(error, index, f"{a[index]:.17g}", f"{b[index]:.17g}", note)


def _gap(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Absolute differences; none between NaN and NaN, or an infinity and itself, and infinite where one alone is so."""
    with np.errstate(invalid="ignore", over="ignore"):
        gap = np.asarray(np.abs(a - b))
    if np.isfinite(gap.max()):
        return gap
    gap[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0
    gap[np.isnan(gap)] = np.inf
    return gap


def filled(array: np.ndarray) -> np.ndarray | None:
    """Where one huge number was written among, or added to, values far below it, as a mask does with scores.

    No error of the others is a fraction of it. None where there is no such number, or where the others may be what
    rounding left of sums with it.
    """
    if _kind(array) != "f" or not array.size:
        return None
    wide = _wide(array)
    if max(wide.max(), -wide.min()) < LEAST_FILL:
        return None
    sizes = np.where(np.isfinite(wide), np.abs(wide), 0.0)
    highest = float(sizes.max())
    if highest < LEAST_FILL:
        return None
    fills = sizes > highest / 2
    below = float(sizes.max(initial=0.0, where=~fills))
    values = wide[fills]
    is_one = values.min() > 0 or values.max() < 0
    is_far = 0 < below <= highest / FAR_ABOVE and not ROUNDING[0] < below / highest < ROUNDING[1]
    if not is_one or not is_far or sizes[fills].min() < (1 - ALIKE) * highest:
        return None
    return fills if len(values) > 1 or _is_written(float(values[0])) else None


def _is_written(value: float) -> bool:
    """Whether it is of one digit, or the end of a dtype's range."""
    ends = {float(ml_dtypes.finfo(dtype).max) for dtype in ("float16", "bfloat16", "float32", "float64")}
    return float(f"{value:.0e}") == value or abs(value) in ends


def _computed(array: np.ndarray) -> np.ndarray:
    """Its finite elements that are not filled, flat and wide."""
    wide, fills = _wide(array), filled(array)
    wanted = np.isfinite(wide) if fills is None else np.isfinite(wide) & ~fills
    return wide.reshape(-1) if wanted.all() else wide[wanted]


def magnitude(array: np.ndarray) -> float:
    """The largest absolute value of those that are finite and not `filled`, 0 where there is none or the array holds no
    floating numbers."""
    if _kind(array) not in "fc" or not array.size:
        return 0.0
    return float(np.abs(_computed(array)).max(initial=0.0))


def largest(array: np.ndarray) -> float:
    """Likewise, `filled` or not."""
    wide = _wide(array)
    return float(np.abs(wide).max(initial=0.0, where=np.isfinite(wide))) if _kind(array) in "fc" else 0.0


def rms_error(array: np.ndarray, reference: np.ndarray) -> float:
    """Root mean square error where the reference is finite and not `filled`; infinite where only `array` is not."""
    a, b = _wide(array), _wide(reference)
    if not b.size:
        return 0.0
    fills = filled(reference)
    if fills is not None:
        a, b = a[~fills], b[~fills]
    with np.errstate(invalid="ignore", over="ignore"):
        gaps = a - b
    total = float(np.vdot(gaps, gaps).real)
    if np.isfinite(total):
        return float(np.sqrt(total / gaps.size))
    finite = np.isfinite(b)
    if not finite.any():
        return 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        squares = np.square(np.abs(gaps[finite]))
    if np.isnan(squares).any():
        return np.inf
    return float(np.sqrt(squares.mean()))


def rms(array: np.ndarray) -> float:
    """Root mean square of the elements that are finite and not `filled`; 0 where there are none."""
    computed = _computed(array)
    return float(np.sqrt(np.vdot(computed, computed).real / computed.size)) if computed.size else 0.0


def error_ratio(
    port: Sequence[np.ndarray],
    torch: Sequence[np.ndarray],
    reference: Sequence[np.ndarray],
    *,
    dtype: str = "float32",
    floor_scale: float = 0.0,
    kinked: bool = False,
) -> float | None:
    """The port's error over PyTorch's, both against float64, over several draws of the inputs.

    The median over draws on either side. A gradient that passes a kink (relu, max) jumps when one rounding flips it, in
    some draws and by thousands of times the usual error, on PyTorch's side as on the port's. So for `kinked` tensors
    the port's best draw stands against PyTorch's worst: an imprecise port is imprecise in every draw, a flip is not.
    The denominator is at least half an ulp of the tensor's size, so that an exact PyTorch does not make every rounding
    of the port look wrong.

    Args:
      port: the port's arrays, one a draw.
      torch: PyTorch's; there may be more of them than draws.
      reference: in float64; `reference[i % len(port)]` belongs to `torch[i]`.
      dtype: of the two first.
      floor_scale: a size that the floor is taken of where it is larger than the tensor's.
      kinked: whether the tensor is a gradient.

    Returns:
      None where the tensor is not judged: fewer than 64 elements in a draw, or no floating numbers.
    """
    if not is_judged(reference):
        return None
    ours = port_error(port, reference, kinked=kinked)
    return ratio_to(ours, torch_error(torch, reference, dtype=dtype, floor_scale=floor_scale, kinked=kinked))


def is_judged(reference: Sequence[np.ndarray]) -> bool:
    """Whether a tensor is large enough for statistics of its rounding, and floating."""
    return bool(reference) and reference[0].size >= JUDGED_ELEMENTS and _kind(reference[0]) in "fc"


def port_error(port: Sequence[np.ndarray], reference: Sequence[np.ndarray], *, kinked: bool) -> float:
    """The numerator of `error_ratio`."""
    if any(p.shape != r.shape for p, r in zip(port, reference, strict=True)):
        return np.inf
    errors = [rms_error(p, r) for p, r in zip(port, reference, strict=True)]
    return float(np.min(errors) if kinked else np.median(errors))


def torch_error(
    torch: Sequence[np.ndarray],
    reference: Sequence[np.ndarray],
    *,
    dtype: str,
    floor_scale: float,
    kinked: bool,
    further: Sequence[float] = (),
) -> float:
    """The denominator of `error_ratio`: PyTorch's own error, or the floor; `further` has errors found before."""
    errors = [*(rms_error(t, reference[i % len(reference)]) for i, t in enumerate(torch)), *further]
    size = max(float(np.median([rms(r) for r in reference])), floor_scale)
    return max(float(np.max(errors) if kinked else np.median(errors)), HALF_ULP[dtype] * size)


def ratio_to(ours: float, theirs: float) -> float:
    if ours == 0:
        return 0.0
    return ours / theirs if theirs > 0 else np.inf


def _kind(array: np.ndarray) -> str:
    """`f`, `c`, `i` or `b`, unsigned and `ml_dtypes` counted among them."""
    kind = array.dtype.kind
    if kind == "V":
        return "f"
    return "i" if kind == "u" else kind


def _wide(array: np.ndarray) -> np.ndarray:
    match _kind(array):
        case "f":
            return array.astype(np.float64, copy=False)
        case "c":
            return array.astype(np.complex128, copy=False)
        case _:
            return array
