"""The report as one self-contained HTML page: nothing comes from elsewhere, and only its own script runs."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import TYPE_CHECKING

from .contents import contents
from .html_tables import table_html
from .page import Bullets, Heading, Legend, Page, Paragraph, Plots, Section, Table
from .results import Results

if TYPE_CHECKING:
    from jinja2 import Environment

BLOCKS = {
    "table": Table,
    "bullets": Bullets,
    "paragraph": Paragraph,
    "heading": Heading,
    "legend": Legend,
    "plots": Plots,
}


def render(results: Results) -> str:
    """The report of one run as one HTML page (`render_page`)."""
    return render_page(contents(results))


def render_page(page: Page) -> str:
    """A page as HTML, which opens anywhere, prints, and can be read without its script.

    Raises:
      ImportError: where jinja2 is missing.
    """
    environment = _environment()
    from markupsafe import Markup

    style, script = (Markup(_file(name)) for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.from_string(_file("page.html.j2")).render(
        page=page, parts=_nested(page), style=style, script=script, script_hash=f"sha256-{digest}"
    )


def _nested(page: Page) -> list[tuple[Section, list[Section]]]:
    """Each section with those that stand within it."""
    parts: list[tuple[Section, list[Section]]] = []
    for section in page.sections:
        if section.level == 2:
            parts.append((section, []))
        else:
            parts[-1][1].append(section)
    return parts


def _environment() -> Environment:
    try:
        from jinja2 import Environment, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise ImportError("the HTML page needs jinja2: pip install 'graphmode[report]'") from error
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.tests.update({name: lambda block, kind=kind: isinstance(block, kind) for name, kind in BLOCKS.items()})
    # Tables and pictures escape what they show themselves.
    environment.filters["table"] = lambda table: Markup(table_html(table))
    environment.filters["svg"] = Markup
    return environment


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
