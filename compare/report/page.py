"""What a page consists of, before it is Markdown or HTML: both are made from this, so they say the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Tone = Literal["", "good", "bad", "warn", "muted"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One field of a table. `code` is a name to be set as it is typed; `strong` marks the one that counts."""

    text: str
    tone: Tone = ""
    code: bool = False
    strong: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """A table's column: numbers stand flush right, prose may wrap."""

    title: str
    kind: Literal["text", "number", "prose"] = "text"


@dataclass(frozen=True, slots=True)
class Table:
    columns: tuple[Column, ...]
    rows: tuple[tuple[Entry, ...], ...]

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows)


@dataclass(frozen=True, slots=True)
class Paragraph:
    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Bullets:
    items: tuple[str, ...]
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Plot:
    """Where the plot of ratios stands; a page without pictures says nothing here."""


Block = Table | Paragraph | Bullets | Plot


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
    """What a reader knows after ten seconds."""

    verdict: str
    tone: Tone
    lines: tuple[str, ...]
    tiles: tuple[Tile, ...]
    notes: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    title: str
    source: str
    headline: Headline
    sections: tuple[Section, ...]
