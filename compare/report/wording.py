"""How numbers, rows and verdicts are written, the same on the terminal and on every page. ASCII only."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .ratios import Ratio
from .records import Cell, Parity

DEFAULT_VARIANT = "default"
NONE = "-"

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def plain(text: str) -> str:
    """Text from elsewhere (an error message) without terminal escapes and other control characters."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text).strip()


def duration(seconds: float | None) -> str:
    """A time with three digits and the unit that fits: `812 us`, `1.25 ms`, `3.07 s`."""
    if seconds is None:
        return NONE
    if seconds < 0:
        return f"-{duration(-seconds)}"
    for unit, scale in (("ns", 1e9), ("us", 1e6), ("ms", 1e3)):
        value = seconds * scale
        if value < 999.5:
            return f"{_three_digits(value)} {unit}" if value else "0 s"
    return f"{_three_digits(seconds)} s"


def elapsed(seconds: float) -> str:
    """How long something took, for a person: `8.2 s`, `3 min 20 s`, `1 h 04 min`."""
    if seconds < 59.5:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def number(ratio: float | None) -> str:
    """A ratio's value: two decimals, or two digits where it is small."""
    if ratio is None:
        return NONE
    if ratio == 0:
        return "0"
    if ratio >= 100:
        return f"{ratio:.0f}"
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:#.2g}"


def share(fraction: float | None) -> str:
    """A part of a whole: `93%`; never 0% or 100% of what is only nearly so."""
    if fraction is None:
        return NONE
    return f"{min(max(fraction, 0.01), 0.99):.0%}" if 0 < fraction < 1 else f"{fraction:.0%}"


def size(amount: float | None) -> str:
    """Bytes with three digits and the unit that fits: `812 B`, `1.25 MB`, `3.07 GB`."""
    return NONE if amount is None else f"{_scaled(amount, ('', 'k', 'M', 'G', 'T'))}B"


def rate(amount: float | None, unit: str) -> str:
    """So many a second, three digits: `4.30 TB/s`, `790 TFLOP/s`."""
    return NONE if amount is None else f"{_scaled(amount, ('', 'k', 'M', 'G', 'T', 'P'))}{unit}/s"


def mode_text(mode: str) -> str:
    """A mode as a title has it: `forward + backward`."""
    return {"forward_backward": "forward + backward", "train_step": "training step"}.get(mode, mode)


def batch_text(batch: int | None) -> str:
    """What follows a mode where cells are of a batch sweep: `, batch 32`."""
    return "" if batch is None else f", batch {batch:,}"


def dtype_text(dtype: str) -> str:
    """What follows a name where the dtype is not the usual one: `, bfloat16`."""
    return "" if dtype == "float32" else f", {dtype}"


def bounds(ratio: Ratio | None) -> str:
    """A ratio's 95% interval: `0.51 to 0.60`."""
    if ratio is None or ratio.low is None or ratio.high is None:
        return NONE
    return f"{number(ratio.low)} to {number(ratio.high)}"


def interval_text(ratio: Ratio | None) -> str:
    """The interval, or that there is none: `0.51 to 0.60`, `too few samples`."""
    return "too few samples" if ratio is not None and ratio.low is None else bounds(ratio)


def ratio_text(ratio: Ratio | None) -> str:
    """A ratio with its interval: `0.55 (0.51 to 0.60)`."""
    if ratio is None:
        return NONE
    return number(ratio.value) if ratio.low is None else f"{number(ratio.value)} ({bounds(ratio)})"


def error_text(error: float | None, *, holds: bool) -> str:
    """A float64 error or an error ratio; `off` where there is none because it is not finite or not comparable."""
    if error is None:
        return NONE if holds else "off"
    return f"{error:.2g}"


def count(number: int, noun: str, plural: str = "") -> str:
    """`1 case`, `2,000 cases`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def row_name(cell: Cell) -> str:
    """The row, with its variant where the case has several: `jax.jit [where]`."""
    return cell.row if cell.variant == DEFAULT_VARIANT else f"{cell.row} [{plain(cell.variant)}]"


def status_text(cell: Cell) -> str:
    """The status, and whether it was expected, the row does less than the reference, or its time is noisy."""
    if cell.status != "ok" and cell.expected is not None:
        return f"{cell.status}, expected"
    words = [cell.status, "does less" if cell.unprinted else "", "noisy" if cell.noisy else ""]
    return ", ".join(filter(None, words))


def reason_text(cell: Cell) -> str:
    """Why a cell is not ok: the case's own reason first, then what was seen. Whole, however long."""
    reason = plain(cell.reason)
    if cell.status == "ok":
        return reason
    if cell.expected is None:
        return reason or "no reason was recorded"
    expected = plain(cell.expected) or "the case gives no reason"
    return f"expected: {expected}" + (f"; seen: {reason}" if reason and reason != expected else "")


def parity_verdict(parity: Parity) -> str:
    """Both verdicts in words."""
    if parity.error:
        return "not judged"
    if not parity.is_precision_judged:
        return "equal, precision not judged" if parity.equal else "NOT equal"
    words = ("equal" if parity.equal else "NOT equal", "precise" if parity.precise else "NOT precise")
    return (" and " if parity.equal == parity.precise else ", ").join(words)


def _scaled(amount: float, prefixes: Sequence[str]) -> str:
    for prefix in prefixes[:-1]:
        if amount < 999.5:
            return f"{_three_digits(amount) if prefix else f'{amount:.0f}'} {prefix}"
        amount /= 1000
    return f"{_three_digits(amount)} {prefixes[-1]}"


def _three_digits(value: float) -> str:
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
