"""Everything that a page shows, made from the results alone."""

from __future__ import annotations

from .headline import headline
from .meanings import MEANINGS
from .page import Column, Entry, Page, Paragraph, Section, Table
from .parity_tables import parity_sections
from .records import Environment
from .results import Results
from .speed_tables import speed_sections
from .wording import elapsed, plain


def contents(results: Results) -> Page:
    """The page of one run."""
    environment, derived = results.environment, results.derived()
    return Page(
        title="graphmode: eager PyTorch against its JAX ports",
        source=f"Measured on {plain(environment.device_name)} ({plain(environment.device)}), {plain(results.created)}, "
        f"{elapsed(results.duration_s)}, seed {results.seed}",
        headline=headline(results, derived),
        sections=(
            *_problems(results),
            *speed_sections(results, derived),
            *parity_sections(results.parity),
            _environment(environment, results),
            _meanings(),
        ),
    )


def _problems(results: Results) -> list[Section]:
    rows = tuple((Entry(plain(c.name), code=True), Entry(plain(c.problem), "bad")) for c in results.cases if c.problem)
    if not rows:
        return []
    return [
        Section(
            "Cases that could not be compared", "problems", (Table((Column("case"), Column("problem", "prose")), rows),)
        )
    ]


def _environment(environment: Environment, results: Results) -> Section:
    facts = {
        **environment.facts,
        **{f"{name}, at the start": value for name, value in environment.moment.items()},
        "created": results.created,
        "took": elapsed(results.duration_s),
        "seed": str(results.seed),
        "repeats": "few (quick run)" if results.quick else "full",
    }
    if results.certificate is not None:
        facts["certificate"] = f"SHA-256 {results.certificate.digest}"
    rows = tuple((Entry(plain(name)), Entry(plain(value) or "-")) for name, value in facts.items())
    return Section(
        "Where the numbers come from", "environment", (Table((Column("what"), Column("value", "prose")), rows),)
    )


def _meanings() -> Section:
    rows = tuple((Entry(term), Entry(meaning)) for term, meaning in MEANINGS.items())
    lead = Paragraph("A time stands only beside outputs that passed. Losses are shown as the wins are.")
    return Section(
        "What the columns mean", "meaning", (lead, Table((Column("word"), Column("meaning", "prose")), rows))
    )
