"""What `check` found as text that fits one screen, the facts that help most first."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..report.divergence_text import happens, told
from ..report.records import Parity, Tensor
from ..report.wording import count, dtype_text, parity_verdict, plain

if TYPE_CHECKING:
    from .check import CheckReport

WIDTH = 120
LINES = 40
PLACE_LINES = 14  # of the first module at fault; of others, the place alone
SHOWN = {"modules": 3, "tensors": 4, "notes": 4, "warnings": 4}


def summary(report: CheckReport, *, width: int = WIDTH, lines: int = LINES) -> str:
    """The verdicts, then of each port that failed: where, why, what to write instead, and the numbers behind it.

    Args:
      report: to be told.
      width: characters of a line; longer ones are wrapped.
      lines: the most there may be. What is left out is counted, and stands in `report.parity`.
    """
    failed = [p for p in report.parity if not p.passed]
    passed = [p for p in report.parity if p.passed]
    text = [_headline(report, failed)]
    room = lines - 1 - len(passed) - 2 * (len(failed) > 1)
    for number, p in enumerate(failed):
        share = max(room // (len(failed) - number), 3)
        name = [f"  {_name(p)}: {_verdict(p)}"] if len(report.parity) > 1 else []
        block = _cut(_wrapped([*name, *_failure(p)], width), share)
        room -= len(block)
        if room < 0:
            text.append(f"  and {count(len(failed) - number, 'further port')} that failed")
            break
        text += block
    text += [f"  {_name(p)}: {parity_verdict(p)}, {_evidence_of_worst(p)}" for p in passed]
    said = dict.fromkeys(warning for p in report.parity for warning in p.warnings)
    remarks = _shown([f"  not covered: {plain(each)}" for each in said], "warnings")
    noted = dict.fromkeys(note for p in passed for note in p.notes)
    remarks += _shown([f"  note: {plain(note)}" for note in noted], "notes")
    return "\n".join(_cut([*_wrapped(text, width), *_wrapped(remarks, width)], lines))


def _headline(report: CheckReport, failed: Sequence[Parity]) -> str:
    if not failed:
        return f"{report.case}: {'passed' if report.passed else 'nothing was judged'}"
    first = next((d for p in failed for d in p.divergences), None)
    place = "" if first is None or first.outside else f", {happens(first)} {first.module or 'the model itself'}"
    return f"{report.case}: FAILED, {_name(failed[0])} is {_verdict(failed[0])}{place}"


def _failure(p: Parity) -> Iterable[str]:
    """One port that failed."""
    if p.error:
        return
    for divergence in p.divergences[:1]:
        yield from _cut([f"    {plain(line)}" for line in told(divergence)], PLACE_LINES)
    places = [f"    then: {plain(next(iter(told(each))))}" for each in p.divergences[1:]]
    yield from _shown(places, "modules")
    wrong = sorted((t for t in p.tensors if not (t.equal and t.precise)), key=_badness, reverse=True)
    yield f"    {len(wrong)} of {count(len(p.tensors), 'tensor')} failed" + (", the worst first:" if wrong else "")
    seen = {t.name for t in wrong if (t.kind, t.mode) == ("output", "inference")}
    new = [t for t in wrong if t.kind != "output" or t.mode == "inference" or t.name not in seen]
    yield from _shown([f"      {_tensor(t)}" for t in new], "tensors")
    yield from _shown([f"    note: {plain(note)}" for note in p.notes], "notes")


def _verdict(p: Parity) -> str:
    if p.error:
        return p.error
    if not p.is_precision_judged:
        return "NOT EQUAL"
    return f"{'equal' if p.equal else 'NOT EQUAL'} and {'precise' if p.precise else 'NOT PRECISE'}"


def _name(p: Parity) -> str:
    return f"{'port' if p.side == 'jax' else 'reference'} {plain(p.variant)}{dtype_text(p.dtype)}"


def _badness(t: Tensor) -> tuple[bool, bool, float]:
    """Not equal before not precise, what cannot be compared before what is far off; outputs before what follows."""
    return not t.equal, t.error is None and not t.equal, (t.error if not t.equal else t.ratio) or 0.0


def _evidence_of_worst(p: Parity) -> str:
    error, ratio = p.worst_error, p.worst_ratio
    told_error = "exact" if error is None or not error.error else f"error at most {error.error:.2g} of its scale"
    told_ratio = "" if ratio is None or ratio.ratio is None else f", error ratio at most {ratio.ratio:.2f}"
    return f"{count(len(p.tensors), 'tensor')}: {told_error}{told_ratio}"


def _tensor(t: Tensor) -> str:
    what = f"{t.mode} {t.kind.replace('_', ' ')} {plain(t.name)}" + (f" on {t.input!r}" if t.input else "")
    parts = []
    if not t.equal:
        parts.append("" if t.error is None else f"error {t.error:.2g} of its scale")
        if t.port_value:
            parts.append(f"{t.port_value} for {t.reference_value} at {list(t.index)}")
    if not t.precise and t.ratio is not None:
        parts.append(f"error ratio {t.ratio:.3g}")
    return f"{what}: {', '.join(filter(None, [*parts, plain(t.note)]))}"


def _shown(lines: Sequence[str], what: str) -> list[str]:
    """The first few of them, and how many more there are."""
    most = SHOWN[what]
    if len(lines) <= most + 1:
        return list(lines)
    indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    return [*lines[:most], f"{indent}and {len(lines) - most} more {what}"]


def _wrapped(lines: Iterable[str], width: int) -> list[str]:
    wrapped = []
    for line in lines:
        indent = line[: len(line) - len(line.lstrip())]
        for number, part in enumerate(line.strip().splitlines() or [""]):
            start = indent if number == 0 else f"{indent}  "
            wrapped += textwrap.wrap(part, width, initial_indent=start, subsequent_indent=f"{indent}  ") or [""]
    return wrapped


def _cut(lines: Sequence[str], most: int) -> list[str]:
    return list(lines) if len(lines) <= most else [*lines[: most - 1], f"  ... {len(lines) - most + 1} more lines"]
