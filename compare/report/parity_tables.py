"""The parity part of a page: the verdicts, the evidence behind them, and what outputs mean to a person."""

from __future__ import annotations

from collections.abc import Sequence

from .divergence_text import evidence, leaves, ports_line, said, unexplained
from .page import Block, Bullets, Column, Entry, Paragraph, Section, Table
from .records import Divergence, ModuleEvidence, Parity, Tensor
from .wording import count, dtype_text, elapsed, error_text, plain

MAX_FAILED = 12

VERDICTS = (
    Column("case"),
    Column("variant"),
    Column("dtype"),
    Column("judged"),
    Column("equal"),
    Column("precise"),
    Column("worst error", "number"),
    Column("worst ratio", "number"),
    Column("tensors", "number"),
    Column("inputs", "prose"),
    Column("took", "number"),
)
EVIDENCE = (
    Column("case"),
    Column("variant"),
    Column("dtype"),
    Column("tensor"),
    Column("error", "number"),
    Column("error ratio", "number"),
    Column("index"),
    Column("port", "number"),
    Column("reference", "number"),
    Column("input"),
    Column("what"),
    Column("why shown"),
    Column("note", "prose"),
)
PLACES = (
    Column("case"),
    Column("variant"),
    Column("error arises in"),
    Column("class"),
    Column("input"),
    Column("cause", "prose"),
    Column("write instead", "prose"),
    Column("evidence", "prose"),
)
MODULES = (
    Column("port"),
    Column("reference"),
    Column("classes", "prose"),
    Column("matched by"),
    Column("calls", "number"),
    Column("inherits", "number"),
    Column("introduces", "number"),
)
READINGS = (Column("case"), Column("variant"), Column("of what", "prose"), Column("reading", "prose"))


def parity_sections(parity: Sequence[Parity]) -> list[Section]:
    """The section on equality, with its evidence and readings; empty where nothing was judged."""
    if not parity:
        return []
    tensors = tuple(row for p in parity for row in _evidence(p))
    remarks = tuple(f"{_name(p)}: {plain(text)}" for p in parity for text in (p.error, *p.notes, *_left_out(p)) if text)
    uncovered = dict.fromkeys(f"{plain(p.case)}, not covered: {plain(text)}" for p in parity for text in p.warnings)
    remarks += tuple(uncovered)
    blocks: list[Block] = [Table(VERDICTS, tuple(_verdict(p) for p in parity))]
    if remarks:
        blocks.append(Bullets(remarks))
    sections = [Section("Is it the same?", "parity", tuple(blocks))]
    places = tuple(_place_row(p, divergence) for p in parity for divergence in p.divergences)
    if places:
        lead = Paragraph(
            "The modules that introduce error: each was run on the reference's own inputs, and backward on its own "
            "gradients. A cause is a change with which the reference gives exactly what the port gives. Where a port "
            "is equal and not precise, those that round worse than PyTorch's on the same values; a cause is then the "
            "operation, or the line, whose right result makes the error go away."
        )
        sections.append(Section("Where it goes wrong", "places", (lead, Table(PLACES, places)), level=3))
    for p in parity:
        if p.modules:
            lead = Paragraph(
                "Which module of the port stands for which of the reference, and how that was found; the case's "
                "`modules` corrects it. Inherited is the error of a module's output as the port computes it, "
                "introduced the one on the reference's own inputs: both in float64, of the output's scale."
            )
            anchor = f"modules-{p.case}-{p.variant}-{p.dtype}"
            sections.append(Section(f"Modules of {_name(p)}", anchor, (lead, modules_table(p)), level=3))
    if tensors:
        lead = Paragraph(
            "For each variant the tensor with the largest error, the one with the largest error ratio, and those that "
            "failed: where the two differ most, and both values there."
        )
        sections.append(Section("Evidence", "evidence", (lead, Table(EVIDENCE, tensors)), level=3))
    readings = _readings(parity)
    if readings:
        lead = Paragraph("What the ports' outputs mean, in the words of each case.")
        sections.append(Section("Readings", "readings", (lead, Table(READINGS, readings)), level=3))
    return sections


def modules_table(p: Parity) -> Table:
    """Every called module of either side, the one that stands for it, and their errors."""
    return Table(MODULES, tuple(_module_row(each) for each in p.modules))


def _module_row(m: ModuleEvidence) -> tuple[Entry, ...]:
    matched = m.port is not None and m.reference is not None
    paths = ["-" if path is None else plain(path) or "the model itself" for path in (m.port, m.reference)]
    classes = m.kind if m.kind == m.reference_kind else f"{m.kind or '-'}, {m.reference_kind or '-'}"
    return (
        Entry(paths[0], code=bool(m.port)),
        Entry("same", "muted") if m.port == m.reference else Entry(paths[1], code=bool(m.reference)),
        Entry(plain(classes)),
        Entry(plain(m.how) if matched else "no counterpart", "" if matched else "warn"),
        Entry(str(m.calls)),
        Entry(error_text(m.inherited, holds=True) if matched else "-"),
        Entry(error_text(m.introduced, holds=m.equal) if matched else "-", "" if m.equal else "bad"),
    )


def _verdict(p: Parity) -> tuple[Entry, ...]:
    error, ratio = p.worst_error, p.worst_ratio
    return (
        Entry(plain(p.case), code=True),
        Entry(plain(p.variant), code=True),
        Entry(p.dtype),
        Entry("JAX port" if p.side == "jax" else "PyTorch variant"),
        _holds(p, p.equal),
        _holds(p, p.precise) if p.error or p.is_precision_judged else Entry("not judged", "warn"),
        Entry(error_text(error.error, holds=error.equal) if error else "-"),
        Entry(error_text(ratio.ratio, holds=ratio.precise) if ratio else "-"),
        Entry(str(len(p.tensors))),
        Entry(", ".join(map(plain, p.inputs)) or "-"),
        Entry(elapsed(p.duration_s)),
    )


def _holds(p: Parity, holds: bool) -> Entry:
    if p.error:
        return Entry("not judged", "bad")
    return Entry("yes", "good") if holds else Entry("NO", "bad", strong=True)


def _evidence(p: Parity) -> list[tuple[Entry, ...]]:
    return [_tensor_row(p, why, tensor) for tensor, why in _shown(p)]


def _shown(p: Parity) -> list[tuple[Tensor, str]]:
    error, ratio = p.worst_error, p.worst_ratio
    shown: list[tuple[Tensor, str]] = []
    if error is not None:
        shown.append((error, "worst error and ratio" if error is ratio else "worst error"))
    if ratio is not None and ratio is not error:
        shown.append((ratio, "worst ratio"))
    return shown + [(t, "failed") for t in _failed(p)[:MAX_FAILED]]


def _failed(p: Parity) -> list[Tensor]:
    worst = (p.worst_error, p.worst_ratio)
    return [t for t in p.tensors if not (t.equal and t.precise) and not any(t is w for w in worst)]


def _left_out(p: Parity) -> list[str]:
    more = len(_failed(p)) - MAX_FAILED
    return [f"{count(more, 'further tensor')} failed; results.json has them all"] if more > 0 else []


def _tensor_row(p: Parity, why: str, t: Tensor) -> tuple[Entry, ...]:
    return (
        Entry(plain(p.case), code=True),
        Entry(plain(p.variant), code=True),
        Entry(p.dtype),
        Entry(plain(t.name), code=True),
        Entry(error_text(t.error, holds=t.equal), "" if t.equal else "bad"),
        Entry(error_text(t.ratio, holds=t.precise), "" if t.precise else "bad"),
        Entry("[" + ", ".join(map(str, t.index)) + "]" if t.index else "-"),
        Entry(plain(t.port_value) or "-"),
        Entry(plain(t.reference_value) or "-"),
        Entry(plain(t.input) or "-"),
        Entry(f"{t.kind.replace('_', ' ')}, {t.mode}"),
        Entry(why, "" if t.equal and t.precise else "bad"),
        Entry(plain(t.note) or "-"),
    )


def _place_row(p: Parity, d: Divergence) -> tuple[Entry, ...]:
    causes = "; or ".join(map(said, d.causes)) or unexplained(d)
    if d.astray is not None:
        causes += f"; {ports_line(d.astray) if d.causes else leaves(d.astray)}"
    return (
        Entry(plain(p.case), code=True),
        Entry(plain(p.variant), code=True),
        Entry("no module" if d.outside else plain(d.module or "the model itself"), code=bool(d.module)),
        Entry(plain(f"{d.kind} at {d.source}" if d.source else d.kind) or "-"),
        Entry(plain(", ".join(filter(None, (d.input, d.mode, d.dtype))))),
        Entry(plain(causes)),
        Entry(plain(d.causes[0].fix) if d.causes else "-"),
        Entry(plain("; ".join(evidence(finding) for finding in d.findings[:2]))),
    )


def _readings(parity: Sequence[Parity]) -> tuple[tuple[Entry, ...], ...]:
    """Variants that read the same share a row."""
    variants: dict[tuple[str, str, str], list[str]] = {}
    for p in parity:
        for label, reading in p.readings.items():
            variants.setdefault((plain(p.case), plain(label), plain(reading)), []).append(plain(p.variant))
    return tuple(
        (Entry(case, code=True), Entry(", ".join(dict.fromkeys(names))), Entry(label), Entry(reading))
        for (case, label, reading), names in variants.items()
    )


def _name(p: Parity) -> str:
    return f"{plain(p.case)} ({plain(p.variant)}{dtype_text(p.dtype)})"
