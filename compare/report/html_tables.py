"""A page's table as HTML. A whole report has tens of thousands of fields, so each is written as short as it can be."""

from __future__ import annotations

import re
from html import escape

from .page import Column, Entry, Table, Tone

LONG = 160  # characters, from which on prose scrolls in its field
NUMBER = re.compile(r"(-?[\d.,]*\d(?:e[-+]?\d+)?) ?(ns|us|ms|%|[kMGTP](?=[A-Z]))?")
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "%": 0.01, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
ROUNDED = 0.06  # of a value, at most, by what is written of it


def table_html(table: Table) -> str:
    """The element, without the end tags that HTML allows to omit. A field whose text the page's script does not read as
    the number behind it carries that as `data-value`, four digits of it.

    Where most columns are numbers, those have no class and the others have. Names that lead its rows are set as they
    are typed by the class of the table.
    """
    of_numbers = 2 * sum(c.kind == "number" for c in table.columns) >= len(table.columns)
    named = of_numbers and bool(table.rows) and all(row[0].code and not row[0].link for row in table.rows)
    head = "".join(f"<th{_class(_kind(c, of_numbers))}>{escape(c.title)}" for c in table.columns)
    rows = "".join(
        "\n<tr>"
        + "".join(
            _field(entry, column, of_numbers, is_name=named and column is table.columns[0])
            for entry, column in zip(row, table.columns, strict=True)
        )
        for row in table.rows
    )
    kind = _class("numbers" if of_numbers else "", "named" if named else "")
    caption = f"<caption>{escape(table.caption)}</caption>" if table.caption else ""
    return f"<table{kind}>{caption}<thead><tr>{head}</thead><tbody>{rows}</tbody></table>"


def _field(entry: Entry, column: Column, of_numbers: bool, is_name: bool) -> str:
    long = column.kind == "prose" and len(entry.text) > LONG
    kind = "" if is_name else _kind(column, of_numbers, entry.tone)
    names = (kind, entry.tone, "strong" if entry.strong else "", "long" if long else "")
    told = entry.value is None or _reads_as(entry.text, entry.value)
    value = "" if told else f" data-value={entry.value:.4g}"
    return f"<td{_class(*names)}{value}>{_content(entry, long, plain=is_name)}"


def _kind(column: Column, of_numbers: bool, tone: Tone = "") -> str:
    """The class of its fields. Among numbers what has a tone is text, unless the class says otherwise."""
    if not of_numbers or (column.kind == "number" and tone):
        return column.kind
    return {"number": "", "text": "" if tone else "left"}.get(column.kind, column.kind)


def _reads_as(text: str, value: float) -> bool:
    found = NUMBER.match(text)
    if found is None:
        return False
    unit = UNITS.get(found[2], 1.0)
    read = float(found[1].replace(",", "")) * unit
    return abs(read - value) <= max(ROUNDED * abs(value), unit if found[2] == "%" else 0.0)


def _class(*names: str) -> str:
    used = [name for name in names if name not in ("", "text")]
    if not used:
        return ""
    return f" class={used[0]}" if len(used) == 1 else f' class="{" ".join(used)}"'


def _content(entry: Entry, long: bool, plain: bool) -> str:
    text = entry.graphic or escape(entry.text)
    if entry.code and not plain:
        text = f"<code>{text}</code>"
    if entry.link:
        text = f'<a href="#{escape(entry.link)}">{text}</a>'
    return f"<div>{text}</div>" if long else text
