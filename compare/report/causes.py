"""What a gain came from, in words: launches removed, fusion, another kernel, nearness to the floor.

Each sentence gives the counts and times that it rests on. Where they were not measured, nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .ratios import EAGER, Group, ratio
from .wording import number, row_name, share

if TYPE_CHECKING:
    from .results import Cell

HOST_BOUND = 0.9  # of its time a call needs until it returns: the device waits for the host
NOT_HOST_BOUND = 0.5
FEWER = 0.8  # of the other's kernels, at most
REPLAYED = 0.5  # of a row's kernels, at least
NEAR_FLOOR = 1.5
UNCOMPILED = frozenset({EAGER, "torch.channels_last", "torch.cudagraph", "torch.graphed_callables", "jax.eager"})


def causes(group: Group, floor_s: float | None = None) -> list[str]:
    """A sentence for JAX's fastest row against PyTorch's fastest, and for each of the two against eager PyTorch, where
    their times differ beyond the interval and the cells hold evidence why.

    Args:
      group: the cells of one comparison.
      floor_s: seconds below which no step with this work can be on this machine, if known.
    """
    sentences = (_sentence(row, group.eager, floor_s) for row in (group.fastest_jax, group.fastest_torch))
    return list(dict.fromkeys(filter(None, (why(group, floor_s), *sentences))))


def why(group: Group, floor_s: float | None = None) -> str:
    """The first of them: JAX's fastest row against PyTorch's fastest; `""` where the cells do not tell."""
    return _sentence(group.fastest_jax, group.fastest_torch, floor_s)


def _sentence(one: Cell | None, other: Cell | None, floor_s: float | None) -> str:
    if one is None or other is None:
        return ""
    compared = ratio(one, other)
    if one is other or compared is None or compared.verdict == "level":
        return ""
    fast, slow = (one, other) if compared.verdict == "faster" else (other, one)
    reasons = [*_launches(fast, slow), *_host(fast, slow), *_steps(fast, slow)]
    reasons += _floor(fast, slow, floor_s)
    return f"{row_name(fast)} is faster than {row_name(slow)}: {'; '.join(reasons)}" if reasons else ""


def _launches(fast: Cell, slow: Cell) -> Iterator[str]:
    """Fusion, capture, or neither."""
    if fast.launches is None or slow.launches is None:
        return
    few, many = fast.launches.kernels, slow.launches.kernels
    replayed, before = fast.launches.captured, slow.launches.captured
    captured = replayed is not None and before is not None and replayed >= REPLAYED > before
    things = "kernels" if fast.device == "gpu" else "operations"
    if captured:
        yield f"launches removed, {share(replayed)} of its {things} are replayed from a captured graph"
    if not few or not many:
        return
    if few <= FEWER * many:
        fused = fast.row not in UNCOMPILED and slow.row in UNCOMPILED
        yield f"{'fusion' if fused else f'fewer {things}'}, {few:,} {things} a call in place of {many:,}"
    elif many < FEWER * few:
        yield f"not by fewer {things}, {few:,} a call against {many:,}"
    elif not captured:
        shares = _host_share(fast), _host_share(slow)
        waits_for_device = all(s is not None and s < HOST_BOUND for s in shares)
        counts = f"{few:,} and {many:,} {things} a call"
        yield f"other kernels, {counts} in less time" if waits_for_device else f"about as many {things}, {counts}"


def _host(fast: Cell, slow: Cell) -> Iterator[str]:
    before, now = _host_share(slow), _host_share(fast)
    if before is None or before < HOST_BOUND:
        return
    line = f"{row_name(slow)} is bound by its host, whose part takes {share(min(before, 1.0))} of the time"
    yield line + (f", {share(now)} now" if now is not None and now < NOT_HOST_BOUND else "")


def _host_share(cell: Cell) -> float | None:
    """None on a CPU, where the host does the work itself."""
    if cell.device != "gpu" or cell.enqueue_s is None or not cell.median_s:
        return None
    return cell.enqueue_s / cell.median_s


def _steps(fast: Cell, slow: Cell) -> Iterator[str]:
    if fast.steps_per_call > slow.steps_per_call:
        yield f"one launch runs {fast.steps_per_call:,} steps"


def _floor(fast: Cell, slow: Cell, floor_s: float | None) -> Iterator[str]:
    if not floor_s or not fast.median_s or not slow.median_s:
        return
    near, far = fast.median_s / floor_s, slow.median_s / floor_s
    if near <= NEAR_FLOOR < far:
        yield f"near the machine's floor, at {number(near)} times it in place of {number(far)}"
