"""What a gain came from, in words: launches removed, fusion, other kernels, what a call costs, nearness to the floor.

Each sentence gives the counts and times that it rests on. Where they were not measured, nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .ratios import EAGER, Group, ratio
from .records import Cell
from .wording import count, duration, number, row_name, share

HOST_BOUND = 0.9  # of its time a call needs until it returns: the device waits for the host
NOT_HOST_BOUND = 0.5
FEWER = 0.8  # of the other's kernels, at most
REPLAYED = 0.5  # of a row's kernels, at least
NEAR_FLOOR = 1.5
MOSTLY_THE_CALL = 0.5  # of a row's time
MOST_OF_THE_GAIN = 0.5  # in seconds
CALLS = {  # by row, what the floors name an empty call of it
    "jax.jit": "empty jax.jit call",
    "jax.graphed": "empty graphed call",
    "jax.graphed.no_command_buffers": "empty graphed call",
    "onnxruntime": "empty ONNX Runtime call",
}
OPERATIONS = {  # on a CPU, what the floors name an operation that does next to nothing; of other rows, torch's
    "jax": "scan step of one 8x8 product",
    "onnxruntime": "empty ONNX Runtime call",
    "torch": "empty torch operation",
}
NOT_KNOWN: Mapping[str, float] = {}
UNCOMPILED = frozenset({EAGER, "torch.channels_last", "torch.cudagraph", "torch.graphed_callables", "jax.eager"})


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that the cells show of two rows; `kind` names it where it makes the faster one fast, and is `""` where
    it only bears on that."""

    kind: str
    words: str


def causes(group: Group, floor_s: float | None = None, launch_s: Mapping[str, float] = NOT_KNOWN) -> list[str]:
    """A sentence for JAX's fastest row against PyTorch's fastest, and for each of the two against eager PyTorch, where
    their times differ beyond the interval and the cells hold evidence why.

    Args:
      group: the cells of one comparison.
      floor_s: seconds below which no step with this work can be on this machine, if known.
      launch_s: by name, the seconds that one empty launch takes on it.
    """
    jax, torch, eager = group.fastest_jax, group.fastest_torch, group.eager
    sentences = (sentence(a, b, floor_s, launch_s) for a, b in ((jax, torch), (jax, eager), (torch, eager)))
    return list(dict.fromkeys(filter(None, sentences)))


def sentence(
    one: Cell | None, other: Cell | None, floor_s: float | None = None, launch_s: Mapping[str, float] = NOT_KNOWN
) -> str:
    """Which of the two is faster, and why; `""` where their times are not known to differ or the cells do not tell."""
    found = reasons(one, other, floor_s, launch_s)
    if not found:
        return ""
    fast, slow = _ordered(one, other)
    return f"{row_name(fast)} is faster than {row_name(slow)}: {'; '.join(reason.words for reason in found)}"


def reasons(
    one: Cell | None, other: Cell | None, floor_s: float | None = None, launch_s: Mapping[str, float] = NOT_KNOWN
) -> list[Reason]:
    """What the cells show of why one of the two is faster."""
    compared = ratio(one, other)
    if one is other or compared is None or not compared.differs:
        return []
    fast, slow = _ordered(one, other)
    return [
        *_host(fast, slow),
        *_kernels(fast, slow, launch_s),
        *_call(fast, slow, launch_s),
        *_floor(fast, slow, floor_s),
    ]


def _ordered(one: Cell | None, other: Cell | None) -> tuple[Cell, Cell]:
    pair = sorted((c for c in (one, other) if c is not None), key=lambda c: c.median_s or 0.0)
    return pair[0], pair[1]


def _captured(fast: Cell, slow: Cell) -> bool:
    """Whether most of its launches are replayed, and most of the other's are not."""
    shares = [cell.launches.captured if cell.launches else None for cell in (fast, slow)]
    return all(s is not None for s in shares) and (shares[0] or 0) >= REPLAYED > (shares[1] or 0)


def _host(fast: Cell, slow: Cell) -> Iterator[Reason]:
    """What the host has less to do with. It is no reason for the time where the device did not wait for the host."""
    before, now = _host_share(slow), _host_share(fast)
    waited = before is not None and before >= HOST_BOUND
    if _captured(fast, slow) and fast.launches is not None:
        words = f"{share(fast.launches.captured)} of its {_things(fast)} are replayed from a captured graph"
        yield Reason("launches removed", f"launches removed, {words}") if waited else Reason("", words)
    if fast.steps_per_call > slow.steps_per_call:
        words = f"one launch runs {fast.steps_per_call:,} steps"
        yield Reason("several steps a launch" if waited else "", words)
    if waited:
        line = f"{row_name(slow)} is bound by its host, whose part takes {share(min(before or 0.0, 1.0))} of its time"
        relieved = now is not None and now < NOT_HOST_BOUND
        kind = "less time of the host" if relieved and not _captured(fast, slow) else ""
        yield Reason(kind, f"{line}, and {share(now)} of that of {row_name(fast)}" if relieved else line)


def _kernels(fast: Cell, slow: Cell, launch_s: Mapping[str, float]) -> Iterator[Reason]:
    """Fusion, other kernels, or neither. Fewer of them are a reason where they can be most of the gain."""
    few, many = (cell.launches.kernels if cell.launches else None for cell in (fast, slow))
    if not few or not many:
        return
    things = _things(fast)
    if few <= FEWER * many:
        kind = "fusion" if fast.row not in UNCOMPILED and slow.row in UNCOMPILED else f"fewer {things}"
        words = f"{count(few, things[:-1])} a call in place of {many:,}"
        each, told = _each(kind, slow, many, launch_s)
        if each is None:
            yield Reason("", f"{words}, {told}")
        elif (many - few) * each >= MOST_OF_THE_GAIN * ((slow.median_s or 0.0) - (fast.median_s or 0.0)):
            yield Reason(kind, ", ".join(filter(None, (kind, words, told))))
        else:
            yield Reason("", ", ".join(filter(None, (f"not by {kind} alone", words, told))))
    elif many < FEWER * few:
        yield Reason("", f"not by fewer {things}, {few:,} a call against {many:,}")
    else:
        shares = _host_share(fast), _host_share(slow)
        busy = all(s is not None and s < NOT_HOST_BOUND for s in shares)  # beyond, the host may be what differs
        kind = f"other {things}" if busy else ""
        yield Reason(kind, f"{kind or f'about as many {things}'}, {few:,} a call against {many:,}")


def _each(kind: str, slow: Cell, many: int, launch_s: Mapping[str, float]) -> tuple[float | None, str]:
    """Seconds that the slower row saves at best with each kernel or operation less, if known, and where they are from.

    With what is fused an average one's memory traffic is saved, too. One less of a CPU's operations, which do the same
    work, saves what it takes to call it.
    """
    if kind == "fusion" or slow.device == "gpu":
        return (slow.median_s or 0.0) / many, ""
    each = launch_s.get(OPERATIONS.get(slow.row, OPERATIONS[slow.framework]))
    if each is None:
        return None, "and what it takes to call one was not measured"
    return each, f"and one that does next to nothing takes {duration(each)} here"


def _call(fast: Cell, slow: Cell, launch_s: Mapping[str, float]) -> Iterator[Reason]:
    """Where the slower one would not be slower without what an empty call of it costs, and that is most of its time."""
    name = CALLS.get(slow.row, "")
    empty, before, now = launch_s.get(name), slow.median_s, fast.median_s
    if not empty or not before or not now or slow.steps_per_call > 1:
        return
    if MOSTLY_THE_CALL * before <= empty < before and before - empty < now:
        words = f"an {name} takes {duration(empty)} here, {share(empty / before)} of the time of {row_name(slow)}"
        yield Reason("what a call costs", words)


def _things(cell: Cell) -> str:
    return "kernels" if cell.device == "gpu" else "operations"


def _host_share(cell: Cell) -> float | None:
    """None on a CPU, where the host does the work itself."""
    if cell.device != "gpu" or cell.enqueue_s is None or not cell.median_s:
        return None
    return cell.enqueue_s / cell.median_s


def _floor(fast: Cell, slow: Cell, floor_s: float | None) -> Iterator[Reason]:
    if not floor_s or not fast.median_s or not slow.median_s:
        return
    near, far = fast.median_s / floor_s, slow.median_s / floor_s
    if near <= NEAR_FLOOR < far:
        yield Reason("", f"near the machine's floor, at {number(near)} times it against {number(far)}")
