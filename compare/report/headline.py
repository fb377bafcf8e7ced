"""The claims that open every page: equal and precise or not, how fast, where JAX wins and loses, what failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .derived import Comparison, Derived, Reasons
from .page import Headline, Plot, Tile, Tone
from .plots.ratio_bars import ratio_bars, span
from .ratios import Mean
from .records.machine import LOAD
from .results import Results
from .speed_tables import case_anchors
from .wording import DEFAULT_VARIANT, batch_text, count, dtype_text, mode_text, number, plain, ratio_text, reason_text

INTERRUPTED = "This run was interrupted: what had finished is shown, and the rest was not compared."
WINS = 5
QUICK = "This was a quick run: few repeats, so times and intervals are rough."


def headline(results: Results, derived: Derived | None = None) -> Headline:
    """The headline of one run; what is derived from it is worked out where it is not given."""
    derived = results.derived() if derived is None else derived
    verdict, tone = _verdict(results, derived)
    own = [c for c in derived.comparisons if c.batch is None and c.best is not None]
    first, further = _plots(own, case_anchors(c.case for c in derived.comparisons))
    return Headline(
        verdict=verdict,
        tone=tone,
        lines=(
            *_parity_lines(results, derived),
            *map(_speed_line, derived.means),
            *_pass_lines(derived),
            *_untimed_lines(results),
            *_left_out_lines(results),
        ),
        tiles=tuple(_tiles(derived)),
        notes=tuple(_notes(results)),
        remarks=tuple(_case_notes(results)),
        failures=failures(results),
        losses=losses(own),
        wins=wins(own),
        why={r.verdict: text for r in derived.reasons if (text := _why(r))},
        plots=first,
        further_plots=further,
    )


def _notes(results: Results) -> Iterator[str]:
    if not results.complete:
        yield INTERRUPTED
    if results.quick:
        yield QUICK
    there = results.environment
    if there.is_busy and results.cells:
        load = f"load average {plain(there.moment[LOAD].split()[0])}, {count(there.threads, 'thread')}"
        yield (
            f"Other programs were busy on this machine when the run began ({load}): rows that share their work among "
            "threads, most of PyTorch's, suffer most, and ratios with them."
        )


def _case_notes(results: Results) -> Iterator[str]:
    """A note of several cases is one line."""
    cases: dict[str, list[str]] = {}
    for case in results.cases:
        for note in case.notes:
            cases.setdefault(note, []).append(case.name)
    return (f"{plain(', '.join(names))}: {plain(note)}" for note, names in cases.items())


def failures(results: Results) -> tuple[str, ...]:
    """Everything that makes the exit code 1; rows of one variant that failed for the same reason share a line."""
    rows: dict[tuple[str, str, str, str], list[str]] = {}
    for c in results.cells:
        if c.unexpected:
            rows.setdefault((c.case, c.variant, c.status, reason_text(c)), []).append(
                f"{c.row} ({c.mode}{batch_text(c.batch)}{dtype_text(c.dtype)})"
            )
    cells = (
        f"{case} ({variant}): {', '.join(names)}: {status}, {reason}"
        for (case, variant, status, reason), names in rows.items()
    )
    verdicts = (*results.failed_verdicts(), *results.failed_lockstep())
    return tuple(plain(line) for line in (*results.problems, *verdicts, *cells))


def losses(compared: Sequence[Comparison]) -> tuple[str, ...]:
    """Everywhere JAX's fastest row is slower than PyTorch's fastest beyond the interval, the worst first."""
    return tuple(map(_told, sorted((c for c in compared if c.verdict == "slower"), key=_value, reverse=True)))


def wins(compared: Sequence[Comparison]) -> tuple[str, ...]:
    """Where JAX's fastest row gains most."""
    return tuple(map(_told, sorted((c for c in compared if c.verdict == "faster"), key=_value)[:WINS]))


def _why(found: Reasons) -> str:
    """Which reasons show in how many comparisons; `""` where the cells tell none."""
    if not found.shown_in:
        return ""
    shown = ", ".join(f"{kind} in {n}" for kind, n in found.shown_in.items())
    rest = f"; none in {found.none_shown}" if found.none_shown else ""
    return f"Reasons that were measured, in {count(found.comparisons, 'comparison')}: {shown}{rest}."


def _value(one: Comparison) -> float:
    assert one.best is not None
    return one.best.value


def _told(one: Comparison) -> str:
    assert one.best is not None
    where = f"{plain(one.case)}, {mode_text(one.mode)} ({one.device}, {one.dtype})"
    times = f"{_row(one.fastest_jax)} takes {ratio_text(one.best)} times the time of {_row(one.fastest_torch)}"
    noisy = ", noisy" if one.noisy else ""
    return f"{where}: {times}{noisy}" + (f". Why: {plain(one.why)}" if one.reasons else "")


def _row(name: tuple[str, str] | None) -> str:
    assert name is not None
    row, variant = name
    return row if variant == DEFAULT_VARIANT else f"{row} [{plain(variant)}]"


def _plots(compared: Sequence[Comparison], anchors: dict[str, str]) -> tuple[tuple[Plot, ...], tuple[Plot, ...]]:
    """Bars for each mode of the first device and dtype, and those of the others."""
    panels: dict[tuple[str, str, str], list[Comparison]] = {}
    for one in compared:
        panels.setdefault((one.device, one.dtype, one.mode), []).append(one)
    if not panels:
        return (), ()
    ends = span(compared)
    device, dtype, _ = next(iter(panels))
    plots = {
        scope: Plot(ratio_bars(members, ends, anchors), f"{mode_text(scope[2])}, {scope[0]} {scope[1]}")
        for scope, members in panels.items()
    }
    first = tuple(plot for scope, plot in plots.items() if scope[:2] == (device, dtype))
    return first, tuple(plot for scope, plot in plots.items() if scope[:2] != (device, dtype))


def _verdict(results: Results, derived: Derived) -> tuple[str, Tone]:
    found = failures(results)
    if found:
        return f"{count(len(found), 'finding fails', 'findings fail')} this run.", "bad"
    if not results.parity and not results.cells:
        return "Nothing was compared.", "warn"
    judged = derived.ports.tried
    so_far, tone = ("", "good") if results.complete else ("So far: ", "warn")
    if not judged:
        text = "nothing unexpected failed; whether the ports are equal was not judged in this run."
    elif unjudged := _unjudged(results):
        text = f"every port is equal, and as far as it was judged precise ({unjudged}); nothing unexpected failed."
    else:
        text = "every port is equal and precise, and nothing unexpected failed."
    text = so_far + text
    return text[0].upper() + text[1:], tone  # type: ignore[return-value]


def _unjudged(results: Results) -> str:
    """Of how many ports no tensor is large enough for a verdict on its rounding; empty where there are none."""
    without = sum(1 for p in results.parity if p.side == "jax" and not p.error and not p.is_precision_judged)
    return f"of {count(without, 'port')} it was not" if without else ""


def _untimed_lines(results: Results) -> list[str]:
    """Of a run that timed others."""
    timed = {cell.case for cell in results.cells}
    names = dict.fromkeys(p.case for p in results.parity if p.case not in timed) if timed else {}
    return [f"Judged, and not timed: {', '.join(map(plain, names))}."] if names else []


def _left_out_lines(results: Results) -> list[str]:
    if not results.left_out:
        return []
    names = " ".join(map(plain, results.left_out))
    return [f"Left out, since they would not have ended in the time that was given: graphmode compare {names}"]


def _parity_lines(results: Results, derived: Derived) -> list[str]:
    passed, judged = derived.ports.ok, derived.ports.tried
    if not judged:
        return []
    names = {p.case for p in results.parity if p.side == "jax"}
    cases = count(max(len(names), sum(c.name in names and not c.problem for c in results.cases)), "case")
    if results.problems:
        cases += f"; {count(len(results.problems), 'further case')} could not be compared"
    dtypes = " or ".join(dict.fromkeys(p.dtype for p in results.parity))
    lines = [f"Ports equal in float64 and precise in {dtypes}: {passed} of {judged} ({cases})."]
    if derived.variants.tried:
        agree = f"{derived.variants.ok} of {derived.variants.tried}"
        lines.append(f"Further PyTorch variants that agree with the judge: {agree}.")
    return lines


def _speed_line(mean: Mean) -> str:
    where = f"{mean.device}, {mean.dtype}"
    if mean.to_fastest is None:
        return f"{where}: no comparison has both a JAX row and a PyTorch row that are ok."
    line = (
        f"{where}: JAX's fastest row takes {number(mean.to_fastest)} times the time of PyTorch's fastest row "
        f"(geometric mean over {count(mean.count, 'comparison')}; below 1, JAX is faster)"
    )
    if mean.to_eager is not None:
        line += f", and {number(mean.to_eager)} times that of eager PyTorch"
    line += f". Faster in {mean.faster}, level in {mean.level}, slower in {mean.slower}"
    line += f", not known, with too few samples, in {mean.unknown}" if mean.unknown else ""
    return line + (
        f"; {count(mean.missing, 'further comparison has', 'further comparisons have')} no ratio."
        if mean.missing
        else "."
    )


def _pass_lines(derived: Derived) -> list[str]:
    lines = []
    for label, framework in (("JAX", "jax"), ("PyTorch", "torch")):
        rate = derived.pass_rates[framework]
        if rate.fraction is not None:
            text = f"{label} cells ok: {rate.ok} of {rate.tried} ({rate.fraction:.0%})"
            lines.append(text + (f", and {rate.unavailable} unavailable here." if rate.unavailable else "."))
    return lines


def _tiles(derived: Derived) -> list[Tile]:
    tiles = []
    averages, passed, judged = derived.means, derived.ports.ok, derived.ports.tried
    if judged:
        tiles.append(Tile(f"{passed} of {judged}", "ports equal and precise", "good" if passed == judged else "bad"))
    for mean in averages:
        where = f", {mean.device} {mean.dtype}" if len(averages) > 1 else ""
        if mean.to_fastest is not None:
            tone: Tone = "" if mean.level + mean.unknown == mean.count else "good" if mean.to_fastest < 1 else "bad"
            words = f"JAX's time over PyTorch's fastest row's, geometric mean of {mean.count}{where}"
            tiles.append(Tile(number(mean.to_fastest), words, tone))
        if mean is not averages[0]:  # a tile each: the others are among the lines
            continue
        if mean.to_eager is not None:
            tone = "good" if mean.to_eager < 1 else "bad"
            tiles.append(Tile(number(mean.to_eager), f"JAX's time over eager PyTorch's{where}", tone))
        if mean.count:
            unknown = f", {mean.unknown} not known" if mean.unknown else ""
            words = f"comparisons in which JAX is faster; {mean.level} level, {mean.slower} slower{unknown}{where}"
            tiles.append(Tile(f"{mean.faster} of {mean.count}", words))
    return tiles
