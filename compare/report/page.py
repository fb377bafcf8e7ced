"""What a page consists of, before it is Markdown or HTML: both are made from this, so they say the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Tone = Literal["", "good", "bad", "warn", "muted"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One field of a table. `code` is a name to be set as it is typed; `strong` marks the one that counts; `value` is
    the number behind the text, by which it sorts; `graphic` an SVG; `link` the anchor of a section."""

    text: str
    tone: Tone = ""
    code: bool = False
    strong: bool = False
    value: float | None = None
    graphic: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A table's column: numbers stand flush right, prose may wrap, and graphics are left out where there are none."""

    title: str
    kind: Literal["text", "number", "prose", "graphic"] = "text"


@dataclass(frozen=True, slots=True)
class Table:
    columns: tuple[Column, ...]
    rows: tuple[tuple[Entry, ...], ...]
    caption: str = ""

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows)

    def without(self, kind: str) -> Table:
        """The table without its columns of this kind."""
        kept = [i for i, column in enumerate(self.columns) if column.kind != kind]
        rows = tuple(tuple(row[i] for i in kept) for row in self.rows)
        return Table(tuple(self.columns[i] for i in kept), rows, self.caption)


@dataclass(frozen=True, slots=True)
class Paragraph:
    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Bullets:
    items: tuple[str, ...]
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading below that of its section."""

    text: str


@dataclass(frozen=True, slots=True)
class Legend:
    """Colours by their style class, and what they stand for."""

    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture as inline SVG, and the words above it; a page without pictures leaves both out."""

    svg: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class Plots:
    """Pictures side by side, as many as the page is wide."""

    plots: tuple[Plot, ...]


Block = Table | Paragraph | Bullets | Heading | Legend | Plots


@dataclass(frozen=True, slots=True)
class Section:
    """A heading (`level` 2, or 3 within one) and what stands under it."""

    title: str
    anchor: str
    blocks: tuple[Block, ...] = ()
    level: int = 2


@dataclass(frozen=True, slots=True)
class Tile:
    """A number that is read at a glance, and the words under it."""

    number: str
    words: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Headline:
    """What a reader knows after ten seconds. `notes` bear on all of it and stand first, `remarks` on single cases."""

    verdict: str
    tone: Tone
    lines: tuple[str, ...]
    tiles: tuple[Tile, ...]
    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    wins: tuple[str, ...] = ()
    why: Mapping[str, str] = field(default_factory=dict)  # by verdict: "faster", "slower"
    plots: tuple[Plot, ...] = ()
    further_plots: tuple[Plot, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    title: str
    source: str
    headline: Headline
    sections: tuple[Section, ...]
