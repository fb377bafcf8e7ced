"""The report as Markdown, for a pull request or a repository."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .contents import contents
from .page import Block, Bullets, Column, Entry, Heading, Headline, Page, Paragraph, Section, Table
from .results import Results

_SPECIAL = re.compile(r"([\\`*\[\]|~#$])|(?<![^\W_])(_)|(_)(?![^\W_])")
_MARKUP = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def render(results: Results) -> str:
    """The report of one run as GitHub-flavoured Markdown; it says what the HTML page says, without the pictures."""
    return render_page(contents(results))


def render_page(page: Page) -> str:
    """Any page."""
    return "\n\n".join(_page(page)) + "\n"


def escape(text: str) -> str:
    """Text that Markdown shows as it is, on one line: markup escaped, line breaks as `<br>`."""
    text = "".join(_MARKUP.get(c, c) for c in text)
    text = _SPECIAL.sub(lambda m: "\\" + m.group(), text)
    return "<br>".join(line.strip() for line in text.splitlines())


def _page(page: Page) -> Iterable[str]:
    yield f"# {escape(page.title)}"
    yield from _headline(page.headline)
    yield f"{escape(page.source)}."
    for section in page.sections:
        yield from _section(section)


def _headline(headline: Headline) -> Iterable[str]:
    for note in headline.notes:
        yield f"> **{escape(note)}**"
    yield f"**{escape(headline.verdict)}**"
    if headline.lines:
        yield _bullets(headline.lines)
    if headline.failures:
        yield "## What fails this run"
        yield _bullets(headline.failures)
    if headline.wins:
        yield "## Where JAX wins most"
        yield from filter(None, [escape(headline.why.get("faster", ""))])
        yield _bullets(headline.wins)
    if headline.losses:
        yield "## Where JAX loses"
        yield from filter(None, [escape(headline.why.get("slower", ""))])
        yield _bullets(headline.losses)
    if headline.remarks:
        yield "## Remarks"
        yield _bullets(headline.remarks)


def _section(section: Section) -> Iterable[str]:
    yield f"{'#' * section.level} {escape(section.title)}"
    for block in section.blocks:
        text = _block(block)
        if text:
            yield text


def _block(block: Block) -> str:
    if isinstance(block, Table):
        caption = f"{escape(block.caption)}:\n\n" if block.caption else ""
        return caption + _table(block)
    if isinstance(block, Heading):
        return f"#### {escape(block.text)}"
    if isinstance(block, Bullets):
        return _bullets(block.items)
    return escape(block.text) if isinstance(block, Paragraph) else ""


def _bullets(items: Iterable[str]) -> str:
    return "\n".join(f"- {escape(item)}" for item in items)


def _table(table: Table) -> str:
    shown = [i for i, column in enumerate(table.columns) if column.kind != "graphic"]
    columns = [table.columns[i] for i in shown]
    lines = [
        _row(escape(column.title) for column in columns),
        _row(map(_rule, columns)),
        *(_row(_entry(row[i]) for i in shown) for row in table.rows),
    ]
    return "\n".join(lines)


def _rule(column: Column) -> str:
    return "---:" if column.kind == "number" else "---"


def _row(fields: Iterable[str]) -> str:
    return f"| {' | '.join(fields)} |"


def _entry(entry: Entry) -> str:
    text = _code(entry.text) if entry.code else escape(entry.text)
    return f"**{text}**" if entry.strong and text else text


def _code(text: str) -> str:
    """A code span cannot hold what breaks a table or ends the span."""
    return escape(text) if not text or re.search(r"[`|\n\\]", text) else f"`{text}`"
