"""Each building block of `graphmode.ops` beside eager PyTorch: `python benchmarks/ops.py FOLDER [NAME ...]`.

Three forms of each, interleaved in one process: ours under `jax.jit`, eager PyTorch with shapes that depend on values,
and the best static form in PyTorch. Nothing is timed whose results differ. Leaves `ops.json` and `ops.md` in FOLDER.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import torch
import typer
from graphmode.compare.report.json_form import to_json
from graphmode.compare.report.records import Environment
from graphmode.compare.report.wording import duration
from graphmode.compare.speed.environment import describe
from graphmode.compare.speed.waiting import wait_for

import graphmode as gm

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent / "blocks")]
import control  # noqa: E402
import detection  # noqa: E402
import effects  # noqa: E402
import masked  # noqa: E402
import segment  # noqa: E402
import selection  # noqa: E402
from beside import INPUT_SETS, Measured, kept, place, prepared, time_forms, told  # noqa: E402
from block import Block  # noqa: E402

BLOCKS: tuple[Block, ...] = tuple(
    block for group in (selection, segment, masked, control, detection, effects) for block in group.BLOCKS
)
FORMS = ("graphmode", "eager", "static", "bound")
RTOL = 1e-4
MAIN_SIZE = 100_000


def measure(block: Block, size: int, device: str, budget_s: float) -> Measured:
    """Times the forms of a block whose results agree; says why where they do not, or where one fails."""
    measured = Measured(block.name, size)
    try:
        _measure(block, size, device, budget_s, measured)
    except Exception as error:  # of one block, which is not to cost the others
        measured.reason = f"{type(error).__name__}: {error}"
    return measured


def _measure(block: Block, size: int, device: str, budget_s: float, measured: Measured) -> None:
    rng = np.random.default_rng(0)
    inputs = [block.make(rng, size) for _ in range(INPUT_SETS)]
    compiled = jax.jit(block.ours)
    ours = [tuple(jax.device_put(a) for a in arrays) for arrays in inputs]
    theirs = [
        tuple(torch.from_numpy(np.asarray(a)).to("cuda" if device == "gpu" else "cpu") for a in arrays)
        for arrays in inputs
    ]
    wait, ready = wait_for("torch", device), wait_for("jax", device)
    forms: dict[str, Callable[[int], Any]] = {
        "graphmode": lambda i: ready(compiled(*ours[i])),
        "eager": lambda i: wait(block.eager(*theirs[i])),
    }
    if block.static is not None:
        static = block.static
        forms["static"] = lambda i: wait(static(*theirs[i]))
    if block.bound is not None:
        bound = jax.jit(block.bound)
        forms["bound"] = lambda i: ready(bound(*ours[i]))
    for arrays, tensors in zip(ours, theirs, strict=True):
        if why := _difference(_dense(compiled(*arrays)), _dense(block.eager(*tensors))):
            measured.reason = f"not timed, since the results differ: {why}"
            return
    time_forms(forms, measured, budget_s=budget_s)


def _dense(tree: Any) -> list[np.ndarray]:
    """The arrays of a result; of a `Padded` its valid values alone."""

    def found(node: Any) -> Iterator[np.ndarray]:
        if isinstance(node, gm.Padded):
            for leaf in jax.tree.leaves(node.values):
                yield np.asarray(leaf)[np.asarray(node.valid)]
        elif isinstance(node, torch.Tensor):
            yield node.detach().cpu().numpy()
        elif isinstance(node, tuple | list):
            for item in node:
                yield from found(item)
        else:
            yield np.asarray(node)

    return list(found(tree))


def _difference(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> str:
    if len(ours) != len(theirs):
        return f"{len(ours)} arrays against {len(theirs)} of eager PyTorch"
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if a.shape != b.shape:
            return f"array {i} has shape {a.shape}, and {b.shape} in eager PyTorch"
        scale = max(1.0, float(np.abs(b[np.isfinite(b)]).max(initial=0))) if b.dtype.kind == "f" else 0.0
        if not np.allclose(a, b, rtol=0, atol=RTOL * scale, equal_nan=True):
            return f"array {i} is off by up to {np.nanmax(np.abs(a.astype(float) - b.astype(float))):.3g}"
    return ""


def table(measured: Sequence[Measured], where: str) -> str:
    """Markdown: every block, and what loses first."""
    lines = [
        "# Building blocks beside eager PyTorch",
        "",
        f"Measured on {where}. Below 1, graphmode is faster.",
        "`eager` has shapes that depend on values; `static` is the best form in PyTorch without; `bound` is the",
        "operation of XLA that ours needs, such as a sort.",
    ]
    older = [m for m in measured if m.revision and m.revision not in where]
    if older:
        revisions = " and ".join(sorted({m.revision for m in older}))
        lines += ["", f"Measured at revision {revisions}: {', '.join(f'{m.name} at {m.size:,}' for m in older)}."]
    losing = [m for m in measured if (r := m.ratio("eager")) and r[1] > 1]
    lines += ["", f"Slower than eager beyond noise: {len(losing)} of {len(measured)}.", ""]
    header = ("block", "size", *FORMS, *(f"/ {form}" for form in FORMS[1:]))
    lines += [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    for one in measured:
        times = [duration(s) if (s := one.median(form)) is not None else "-" for form in FORMS]
        ratios = [told(one.ratio(form)) for form in FORMS[1:]]
        lines.append(f"| {one.name} | {one.size:,} | {' | '.join([*times, *ratios])} |")
        if one.reason:
            lines.append(f"| | | {one.reason}" + " |" * (len(header) - 2))
    return "\n".join(lines) + "\n"


def in_order(blocks: Sequence[Block], sizes: Sequence[int] | None) -> list[tuple[Block, int]]:
    """Each block at about 100,000 elements first: what is broken off early has one size of every block."""
    pairs = [(block, one) for block in blocks for one in sizes or block.sizes]
    return sorted(pairs, key=lambda pair: abs(math.log10(pair[1] / MAIN_SIZE)) if not sizes else 0)


def main(
    folder: Annotated[Path, typer.Argument(help="Where ops.json and ops.md go.")],
    names: Annotated[list[str] | None, typer.Argument(help="Blocks whose names begin so; all of them if none.")] = None,
    size: Annotated[list[int] | None, typer.Option(help="Only these numbers of elements.")] = None,
    seconds: Annotated[float, typer.Option(help="Of timed calls, for each form.")] = 0.3,
    device: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = "auto",
    keep: Annotated[bool, typer.Option("--keep", help="Keep what FOLDER has of other blocks and sizes.")] = False,
) -> None:
    """Times every building block and writes the table."""
    chosen = prepared(folder, device)
    blocks = [b for b in BLOCKS if not names or any(b.name.startswith(name) for name in names)]
    if not blocks:
        raise typer.BadParameter(f"no block is called {names}; there are {', '.join(b.name for b in BLOCKS)}")
    measured: list[Measured] = []
    before = kept(folder / "ops.json", "blocks") if keep else []
    environment = describe(chosen)
    with jax.default_device(jax.devices(chosen)[0]):
        for block, one in in_order(blocks, size):
            measured.append(measure(block, one, chosen, seconds))
            ratio = measured[-1].ratio("eager")
            print(f"{block.name} {one:,}: {told(ratio)} of eager {measured[-1].reason}", flush=True)
            _save(folder, sorted_cells(before, measured), environment)


def sorted_cells(before: Sequence[Measured], measured: Sequence[Measured]) -> list[Measured]:
    """Each block at each size once, the newest of it, block by block as `BLOCKS` has them."""
    names = [block.name for block in BLOCKS]
    cells = {(m.name, m.size): m for m in (*before, *measured) if m.name in names}
    return sorted(cells.values(), key=lambda m: (names.index(m.name), m.size))


def _save(folder: Path, measured: Sequence[Measured], environment: Environment) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ops.json").write_bytes(to_json({"environment": environment, "blocks": measured}, indent=1))
    (folder / "ops.md").write_text(table(measured, place(environment)))


if __name__ == "__main__":
    typer.run(main)
