"""Fills the README's table of results from a results file: `python benchmarks/readme_table.py [RESULTS] [README]`."""

from __future__ import annotations

import sys
from pathlib import Path

from graphmode.compare.report import Results
from graphmode.compare.report.ratios import Group, groups, own_inputs
from graphmode.compare.report.records import Cell
from graphmode.compare.report.wording import duration, number
from graphmode.models.zoo import CASES, MAIN

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "cpu-2-threads" / "results.json"
BEGIN, END = "<!-- results: begin; made by benchmarks/readme_table.py -->", "<!-- results: end -->"
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
    lines = [
        f"Measured by `{command}` at revision {there.revision.rstrip('+')} on {where}, float32, {versions},",
        "on a shared machine: read the ratios, not the times.",
        f"Below 1, JAX is faster. {sum(p.passed for p in ports)} of {len(ports)} ports were equal and precise.",
    ]
    if there.device == "cpu":
        lines.append("Not measured on a GPU.")
    if results.left_out:
        lines.append(f"Left out for want of time: {', '.join(results.left_out)}.")
    lines += ["", "| case | mode | fastest PyTorch | fastest JAX | JAX / PyTorch |", "|---|---|---|---|---|"]
    return "\n".join([*lines, *map(_line, own_inputs(groups(results.cells)))])


def _line(group: Group) -> str:
    best = group.best
    cells = _fastest(group.fastest_torch), _fastest(group.fastest_jax), number(best.value) if best else "-"
    return f"| {group.case} | {MODES.get(group.mode, group.mode)} | {' | '.join(cells)} |"


def _fastest(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    row = cell.row.removeprefix("torch.").removeprefix("jax.")
    return f"{row} {duration(cell.median_s)}{' (noisy)' if cell.noisy else ''}"


def filled(readme: str, results: Results) -> str:
    """The README's text with the section of these results between its two marks."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the README lacks the marks {BEGIN!r} and {END!r}; put them where the table is to stand")
    return f"{before}{BEGIN}\n\n{section(results)}\n\n{END}{after}"


if __name__ == "__main__":
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "README.md"
    target.write_text(filled(target.read_text(), Results.load(source)))
