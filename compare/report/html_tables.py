"""A page's table as HTML. A whole report has tens of thousands of fields, so each is written as short as it can be."""

from __future__ import annotations

from html import escape

from .page import Column, Entry, Table

LONG = 160  # characters, from which on prose scrolls in its field


def table_html(table: Table) -> str:
    """The element, without the end tags that HTML allows to omit. A field with a number behind its text carries it as
    `data-value`, four digits of it."""
    head = "".join(f"<th{_class(c.kind)}>{escape(c.title)}" for c in table.columns)
    rows = "".join("\n<tr>" + "".join(map(_field, row, table.columns)) for row in table.rows)
    caption = f"<caption>{escape(table.caption)}</caption>" if table.caption else ""
    return f"<table>{caption}<thead><tr>{head}</thead><tbody>{rows}</tbody></table>"


def _field(entry: Entry, column: Column) -> str:
    long = column.kind == "prose" and len(entry.text) > LONG
    kind = "" if column.kind == "number" and entry.value is not None else column.kind
    names = (kind, entry.tone, "strong" if entry.strong else "", "long" if long else "")
    value = "" if entry.value is None else f" data-value={entry.value:.4g}"
    return f"<td{_class(*names)}{value}>{_content(entry, long)}"


def _class(*names: str) -> str:
    used = [name for name in names if name not in ("", "text")]
    if not used:
        return ""
    return f" class={used[0]}" if len(used) == 1 else f' class="{" ".join(used)}"'


def _content(entry: Entry, long: bool) -> str:
    text = entry.graphic or escape(entry.text)
    if entry.code:
        text = f"<code>{text}</code>"
    if entry.link:
        text = f'<a href="#{escape(entry.link)}">{text}</a>'
    return f"<div>{text}</div>" if long else text
