"""The report as one self-contained HTML page: no scripts, no links to anything outside it."""

from __future__ import annotations

from importlib.resources import files

from .contents import contents
from .page import Bullets, Paragraph, Plot, Table
from .plots import ratio_plot
from .results import Results


def render(results: Results) -> str:
    """The report of one run as one HTML page, which opens anywhere and prints.

    Raises:
      ImportError: where jinja2 or matplotlib is missing.
    """
    try:
        from jinja2 import Environment, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise ImportError("the HTML page needs jinja2: pip install 'graphmode[report]'") from error
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.tests.update(
        {
            name: lambda block, kind=kind: isinstance(block, kind)
            for name, kind in {"table": Table, "bullets": Bullets, "paragraph": Paragraph, "plot": Plot}.items()
        }
    )
    template = environment.from_string(files(__package__).joinpath("page.html.j2").read_text(encoding="utf-8"))
    # The plot is ours and matplotlib escapes the names in it; everything else is escaped by the template.
    return template.render(page=contents(results), plot=Markup(ratio_plot(results)))
