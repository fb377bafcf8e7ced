"""Fills the README's tables from results: `python benchmarks/readme_table.py [README] [CPU_RESULTS] [GPU_RESULTS]`."""

from __future__ import annotations

import sys
from pathlib import Path

from graphmode.compare.report import Results
from graphmode.compare.report.ratios import Group, groups, own_inputs
from graphmode.compare.report.records import Cell
from graphmode.compare.report.wording import duration, number
from graphmode.models.zoo import CASES, MAIN

ROOT = Path(__file__).resolve().parent.parent
RESULTS = {
    "results": ROOT / "benchmarks" / "results" / "cpu-2-threads" / "results.json",
    "results on a GPU": ROOT / "benchmarks" / "results" / "nvidia-h100" / "results.json",
}
MODES = {"forward_backward": "forward + backward", "train_step": "training step"}


def section(results: Results) -> str:
    """The table and what it was measured on, in Markdown."""
    there = results.environment
    ports = [p for p in results.parity if p.side == "jax"]
    where = f"{there.threads} threads of a CPU" if there.device == "cpu" else there.device_name
    versions = f"torch {there.versions['torch']}, jax {there.versions['jax']}"
    compared = {case.name for case in results.cases}
    command = "make compare" if compared <= set(MAIN) else "graphmode compare"
    command += " --all" if compared >= set(CASES) else ""
    if there.device == "gpu":
        command = "python3 benchmarks/suite.py"
    lines = [
        f"Measured by `{command}` at revision {there.revision.rstrip('+')} on {where}, float32, {versions},",
        "on a shared machine: read the ratios, not the times.",
        f"Below 1, JAX is faster. {sum(p.passed for p in ports)} of {len(ports)} ports were equal and precise.",
    ]
    timed = {cell.case for cell in results.cells}
    if missing := [case.name for case in results.cases if case.name not in timed]:
        lines.append(f"Judged, and not timed before the time was over: {', '.join(missing)}.")
    if results.left_out:
        lines.append(f"Left out for want of time: {', '.join(results.left_out)}.")
    lines += ["", "| case | mode | fastest PyTorch | fastest JAX | JAX / PyTorch |", "|---|---|---|---|---|"]
    return "\n".join([*lines, *map(_line, own_inputs(groups(results.cells)))])


def _line(group: Group) -> str:
    best = group.best
    ratio = number(best.value) + (" (too few samples)" if best.verdict == "unknown" else "") if best else "-"
    cells = _fastest(group.fastest_torch), _fastest(group.fastest_jax), ratio
    return f"| {group.case} | {MODES.get(group.mode, group.mode)} | {' | '.join(cells)} |"


def _fastest(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    row = cell.row.removeprefix("torch.").removeprefix("jax.")
    return f"{row} {duration(cell.median_s)}{' (noisy)' if cell.noisy else ''}"


def filled(readme: str, name: str, results: Results) -> str:
    """The README's text with the section of these results between the two marks of this name."""
    begin, end = f"<!-- {name}: begin; made by benchmarks/readme_table.py -->", f"<!-- {name}: end -->"
    before, begun, rest = readme.partition(begin)
    _, ended, after = rest.partition(end)
    if not begun or not ended:
        raise ValueError(f"the README lacks the marks {begin!r} and {end!r}; put them where the table is to stand")
    return f"{before}{begin}\n\n{section(results)}\n\n{end}{after}"


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "README.md"
    sources = [Path(path) for path in sys.argv[2:]] or list(RESULTS.values())
    text = target.read_text()
    for name, source in zip(RESULTS, sources, strict=False):
        text = filled(text, name, Results.load(source))
    target.write_text(text)
