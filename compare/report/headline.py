"""The claims that open every page: equal and precise or not, how fast, where JAX loses, what failed."""

from __future__ import annotations

from collections.abc import Sequence

from .page import Headline, Tile, Tone
from .ratios import Group, Mean, groups, means, pass_rate
from .results import Results
from .wording import count, number, plain, ratio_text, reason_text, row_name

INTERRUPTED = "This run was interrupted: what had finished is shown, and the rest was not compared."
QUICK = "This was a quick run: few repeats, so times and intervals are rough."


def headline(results: Results) -> Headline:
    """The headline of one run."""
    compared = groups(results.cells)
    averages = means(compared)
    verdict, tone = _verdict(results)
    return Headline(
        verdict=verdict,
        tone=tone,
        lines=(*_parity_lines(results), *map(_speed_line, averages), *_pass_lines(results)),
        tiles=tuple(_tiles(results, averages)),
        notes=(
            *(text for text, holds in ((INTERRUPTED, not results.complete), (QUICK, results.quick)) if holds),
            *(f"{plain(case.name)}: {plain(note)}" for case in results.cases for note in case.notes),
        ),
        failures=failures(results),
        losses=losses(compared),
    )


def failures(results: Results) -> tuple[str, ...]:
    """Everything that makes the exit code 1; rows of one variant that failed for the same reason share a line."""
    rows: dict[tuple[str, str, str, str], list[str]] = {}
    for c in results.cells:
        if c.unexpected:
            rows.setdefault((c.case, c.variant, c.status, reason_text(c)), []).append(f"{c.row} ({c.mode})")
    cells = (
        f"{case} ({variant}): {', '.join(names)}: {status}, {reason}"
        for (case, variant, status, reason), names in rows.items()
    )
    return tuple(plain(line) for line in (*results.problems, *results.failed_verdicts(), *cells))


def losses(compared: Sequence[Group]) -> tuple[str, ...]:
    """Where JAX's fastest row takes longer than PyTorch's fastest, the worst first."""
    slower = [(g, g.best) for g in compared if g.best is not None and g.best.value > 1]
    return tuple(
        f"{group_name(g)}: {row_name(g.fastest_jax)} takes {ratio_text(best)} times the time of "
        f"{row_name(g.fastest_torch)}" + (", level within its interval" if best.verdict == "level" else "")
        for g, best in sorted(slower, key=lambda pair: -pair[1].value)
        if g.fastest_jax is not None and g.fastest_torch is not None
    )


def group_name(group: Group) -> str:
    return f"{plain(group.case)}, {group.mode} ({group.device}, {group.dtype})"


def ports(results: Results) -> tuple[int, int, int]:
    """Ports that are equal and precise, ports judged, and the cases that these are of."""
    judged = [p for p in results.parity if p.side == "jax"]
    return sum(p.passed for p in judged), len(judged), len({p.case for p in judged})


def _verdict(results: Results) -> tuple[str, Tone]:
    found = failures(results)
    if found:
        return f"{count(len(found), 'finding fails', 'findings fail')} this run.", "bad"
    if not results.parity and not results.cells:
        return "Nothing was compared.", "warn"
    _, judged, _ = ports(results)
    so_far, tone = ("", "good") if results.complete else ("So far: ", "warn")
    if not judged:
        text = "nothing unexpected failed; whether the ports are equal was not judged in this run."
    else:
        text = "every port is equal and precise, and nothing unexpected failed."
    text = so_far + text
    return text[0].upper() + text[1:], tone  # type: ignore[return-value]


def _parity_lines(results: Results) -> list[str]:
    passed, judged, cases = ports(results)
    if not judged:
        return []
    lines = [f"Ports equal in float64 and precise in float32: {passed} of {judged} ({count(cases, 'case')})."]
    further = [p.passed for p in results.parity if p.side == "torch"]
    if further:
        lines.append(f"Further PyTorch variants that agree with the judge: {sum(further)} of {len(further)}.")
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
    return line + (
        f"; {count(mean.missing, 'further comparison has', 'further comparisons have')} no ratio."
        if mean.missing
        else "."
    )


def _pass_lines(results: Results) -> list[str]:
    lines = []
    for label, framework in (("JAX", "jax"), ("PyTorch", "torch")):
        rate = pass_rate(results.cells, framework)  # type: ignore[arg-type]
        if rate.fraction is not None:
            text = f"{label} cells ok: {rate.ok} of {rate.tried} ({rate.fraction:.0%})"
            lines.append(text + (f", and {rate.unavailable} unavailable here." if rate.unavailable else "."))
    return lines


def _tiles(results: Results, averages: Sequence[Mean]) -> list[Tile]:
    tiles = []
    passed, judged, _ = ports(results)
    if judged:
        tiles.append(Tile(f"{passed} of {judged}", "ports equal and precise", "good" if passed == judged else "bad"))
    for mean in averages:
        where = f", {mean.device} {mean.dtype}" if len(averages) > 1 else ""
        if mean.to_fastest is not None:
            tone: Tone = "good" if mean.to_fastest < 1 else "bad"
            words = f"JAX's time over PyTorch's fastest row's, geometric mean of {mean.count}{where}"
            tiles.append(Tile(number(mean.to_fastest), words, tone))
        if mean.to_eager is not None:
            tone = "good" if mean.to_eager < 1 else "bad"
            tiles.append(Tile(number(mean.to_eager), f"JAX's time over eager PyTorch's{where}", tone))
        if mean.count:
            words = f"comparisons in which JAX is faster; {mean.level} level, {mean.slower} slower{where}"
            tiles.append(Tile(f"{mean.faster} of {mean.count}", words))
    return tiles
