"""What is worked out from the cells: ratios, means, distances to the floor, the knees of batch sweeps, and the causes.

`results.json` carries it for its readers, and the pages are made from it. It is always worked out afresh from the cells
and never read back, so no file can contradict itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .causes import causes, reasons, sentence
from .ratios import Group, Mean, PassRate, Ratio, Verdict, groups, means, pass_rate, ratio
from .records import Cell, Floors, Parity, Work
from .sweeps import Sweep, sweeps


@dataclass(frozen=True, kw_only=True)
class RowFigures:
    """One row of a comparison. `to_eager` and `to_torch` are its median over that of eager PyTorch and of PyTorch's
    fastest row, `to_floor` over the floor; `host_share` is the time until a call returns over the median;
    `flops_per_s` the least operations of a step over the median."""

    row: str
    variant: str
    to_eager: Ratio | None = None
    to_torch: Ratio | None = None
    to_floor: float | None = None
    host_share: float | None = None
    flops_per_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The rows of one group, and JAX's fastest against PyTorch's fastest: `best`, its `verdict`, whether one of
    them is `noisy`, and `best_to_eager`.

    `floor_s` is the least time that the work of a step can take on this machine, `flops_per_byte` its operational
    intensity. `causes` say what gains came from, `why` is the one on these two rows, and `reasons` its kinds.
    """

    case: str
    mode: str
    device: str
    dtype: str
    batch: int | None
    fastest_jax: tuple[str, str] | None
    fastest_torch: tuple[str, str] | None
    best: Ratio | None
    verdict: Verdict | None
    noisy: bool
    best_to_eager: Ratio | None
    break_even_calls: int | None
    floor_s: float | None
    flops_per_byte: float | None
    why: str
    reasons: list[str]
    causes: list[str]
    rows: list[RowFigures]

    def of(self, cell: Cell | None) -> RowFigures | None:
        """The figures of one cell of the group."""
        return next((r for r in self.rows if cell and (r.row, r.variant) == (cell.row, cell.variant)), None)


@dataclass(frozen=True, kw_only=True)
class Reasons:
    """Over all comparisons on the cases' own inputs in which JAX's fastest row is `faster`, or `slower`: in how many
    each reason shows, and in how many none does."""

    verdict: Verdict
    comparisons: int
    shown_in: dict[str, int]
    none_shown: int


@dataclass(frozen=True, kw_only=True)
class Derived:
    """All of it: `ports` and the reference's further `variants` that passed, cells that are ok by framework, and a
    comparison for each group of cells, in their order."""

    ports: PassRate
    variants: PassRate
    pass_rates: dict[str, PassRate]
    means: list[Mean]
    reasons: list[Reasons]
    comparisons: list[Comparison]
    sweeps: list[Sweep]


def derive(
    cells: Sequence[Cell], parity: Iterable[Parity] = (), floors: Floors | None = None, work: Iterable[Work] = ()
) -> Derived:
    """Works everything out from what one run measured."""
    compared = groups(cells)
    judged: dict[str, list[bool]] = {"jax": [], "torch": []}
    for p in parity:
        judged[p.side].append(p.passed)
    loads = {(w.case, w.mode, w.dtype, w.batch): w for w in work}
    comparisons = [_comparison(g, floors, loads.get((g.case, g.mode, g.dtype, g.batch))) for g in compared]
    return Derived(
        ports=PassRate.of(judged["jax"]),
        variants=PassRate.of(judged["torch"]),
        pass_rates={"jax": pass_rate(cells, "jax"), "torch": pass_rate(cells, "torch")},
        means=means(compared),
        reasons=[_reasons(comparisons, verdict) for verdict in ("faster", "slower")],
        comparisons=comparisons,
        sweeps=list(sweeps(cells)),
    )


def paired(cells: Sequence[Cell], derived: Derived) -> list[tuple[Group, Comparison]]:
    """Each group of the cells with its comparison."""
    return list(zip(groups(cells), derived.comparisons, strict=True))


def _reasons(comparisons: Sequence[Comparison], verdict: Verdict) -> Reasons:
    members = [c for c in comparisons if c.batch is None and c.verdict == verdict]
    counts = Counter(kind for c in members for kind in c.reasons)
    return Reasons(
        verdict=verdict,
        comparisons=len(members),
        shown_in=dict(counts.most_common()),
        none_shown=sum(not c.reasons for c in members),
    )


def _comparison(group: Group, floors: Floors | None, work: Work | None) -> Comparison:
    floor = floors.of(work) if floors is not None and work is not None else None
    best = group.best
    launch_s = floors.launch_s if floors is not None else {}
    found = reasons(group.fastest_jax, group.fastest_torch, floor, launch_s)
    return Comparison(
        case=group.case,
        mode=group.mode,
        device=group.device,
        dtype=group.dtype,
        batch=group.batch,
        fastest_jax=_name(group.fastest_jax),
        fastest_torch=_name(group.fastest_torch),
        best=best,
        verdict=best.verdict if best else None,
        noisy=any(c.noisy for c in (group.fastest_jax, group.fastest_torch) if c is not None),
        best_to_eager=group.best_to_eager,
        break_even_calls=group.break_even_calls,
        floor_s=floor,
        flops_per_byte=work.flops / work.bytes if work is not None and work.bytes else None,
        why=sentence(group.fastest_jax, group.fastest_torch, floor, launch_s),
        reasons=list(dict.fromkeys(r.kind for r in found if r.kind)),
        causes=causes(group, floor, launch_s),
        rows=list(_rows(group, floor, work)),
    )


def _rows(group: Group, floor: float | None, work: Work | None) -> Iterator[RowFigures]:
    for cell in group.cells:
        if cell.median_s:
            yield RowFigures(
                row=cell.row,
                variant=cell.variant,
                to_eager=ratio(cell, group.eager),
                to_torch=ratio(cell, group.fastest_torch),
                to_floor=cell.median_s / floor if floor else None,
                host_share=None if cell.enqueue_s is None else cell.enqueue_s / cell.median_s,
                flops_per_s=work.flops / cell.median_s if work is not None else None,
            )


def _name(cell: Cell | None) -> tuple[str, str] | None:
    return None if cell is None else (cell.row, cell.variant)
