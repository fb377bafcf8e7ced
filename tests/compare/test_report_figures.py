"""Every figure on the page is in results.json: read off the page, and looked up among the file's own values."""

from __future__ import annotations

import html as html_escapes
import json
import re
import runpy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from graphmode.compare.report import html, html_tables, speed_tables, wording
from graphmode.compare.report.html_tables import table_html
from graphmode.compare.report.page import Column, Entry, Table
from graphmode.compare.report.results import Results

HERE = Path(__file__).parent
SAMPLE = runpy.run_path(str(HERE / "sample_results.py"))
ZOO = runpy.run_path(str(HERE / "sample_zoo.py"))
COMMITTED = HERE.parent.parent / "benchmarks" / "results" / "cpu-2-threads" / "results.json"
FORMATS = (
    wording.duration,
    wording.elapsed,
    wording.number,
    wording.size,
    wording.share,
    lambda v: wording.rate(v, "B"),
    lambda v: wording.rate(v, "FLOP"),
    lambda v: f"{v:,}",
    lambda v: f"{v:.2g}",
    str,
)
UNIT = r"(?: (?:ns|us|ms|s|min \d\d s|[kMGTP]?(?:B|FLOP)(?:/s)?)\b)?"
FIGURE = re.compile(r"(?<![\w.\[-])\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]\d+)?%?" + UNIT + r"(?!\w)")
FIELD = re.compile(r"<td([^>]*)>(.*?)(?=<td|\n<tr|</tbody>)", re.DOTALL)
TABLE = re.compile(r"<table([^>]*)>(.*?)</table>", re.DOTALL)
TEXT = re.compile("left|prose|graphic|good|bad|warn|muted")  # classes of what is no number in a table of numbers
LABEL = re.compile(r'<title>(.*?)</title>|<text[^>]*class="figure"[^>]*>(.*?)</text>')


@pytest.fixture(scope="module", params=["sample", "committed", "zoo"])
def results(request) -> Results:
    if request.param == "committed":
        return Results.load(COMMITTED)
    return SAMPLE["sample_results"](failing=True) if request.param == "sample" else ZOO["zoo_results"]()


@pytest.fixture
def with_values(monkeypatch):
    """Pages carry the number behind each text, also where the text tells it: so it is looked up by four digits."""
    monkeypatch.setattr(html_tables, "_reads_as", lambda text, value: False)


def values(node: object) -> Iterator[float | str]:
    """Everything in the file; of a list its length too, which is how often something was found."""
    if isinstance(node, dict):
        for child in node.values():
            yield from values(child)
    elif isinstance(node, list):
        yield len(node)
        for child in node:
            yield from values(child)
    elif node is not None and not isinstance(node, bool):
        yield node


def written(value: float) -> set[str]:
    """Every way in which a page may write it."""
    return {made for form in FORMATS for made in FIGURE.findall(form(value))}


def strangers(page: str, file: Path) -> list[str]:
    """What stands on the page as a figure and comes from nothing in the file."""
    found = set(values(json.loads(file.read_text())))
    numbers = {v for v in found if not isinstance(v, str)}
    behind: dict[str, set[float]] = {}
    for value in numbers:
        behind.setdefault(f"{value:.4g}", set()).add(value)
    known = {text for value in numbers for text in written(value)}
    known |= {text for value in found if isinstance(value, str) for text in FIGURE.findall(value)}
    unknown = []
    fields = [(*field, kind) for kind, table in TABLE.findall(page) for field in FIELD.findall(table + "</tbody>")]
    for attributes, content, kind in fields:
        text = html_escapes.unescape(re.sub(r"<[^>]+>", "", content)).strip()
        value = re.search(r"data-value=(\S+)", attributes)
        if value is not None:
            own = {t for v in behind.get(value.group(1), ()) for t in written(v)}
            first = FIGURE.search(text)
            # An interval sorts by its lower bound, and comes first too; "at once" is no figure.
            if not own or (first is not None and first.group() not in own):
                unknown.append(f"{text} ({value.group(1)})")
        is_number = "number" in attributes or ("numbers" in kind and not TEXT.search(attributes))
        if value is not None or is_number:
            unknown += [f"{t} in {text}" for t in FIGURE.findall(text) if t not in known]
    header = page[page.index('<p class="verdict') : page.index("</header>")]
    told = [text for label in LABEL.findall(page) for text in label]
    told += re.findall(r'<(?:li|div class="tile"|p class="why")>(.*?)</(?:li|div|p)>', header, re.DOTALL)
    for line in told:
        plain = html_escapes.unescape(re.sub(r"<[^>]+>", " ", line))
        unknown += [f"{t} in {plain}" for t in FIGURE.findall(plain) if t not in known]
    return unknown


@pytest.mark.usefixtures("with_values")
def test_every_figure_is_in_the_file(results, tmp_path):
    results.save(tmp_path / "results.json")
    page = html.render(Results.load(tmp_path / "results.json"))
    assert len(FIELD.findall(page)) > 500
    assert strangers(page, tmp_path / "results.json") == []


@pytest.mark.usefixtures("with_values")
def test_a_figure_that_is_not_in_the_file_is_found(tmp_path):
    results = SAMPLE["sample_results"]()
    page = html.render(results)
    cell = results.cells[0]
    results.cells[0] = replace(cell, median_s=cell.median_s * 1.37)
    results.save(tmp_path / "results.json")
    assert any(wording.duration(cell.median_s) in line for line in strangers(page, tmp_path / "results.json"))


def test_a_derived_part_that_contradicts_the_cells_is_not_believed(tmp_path):
    results, file = SAMPLE["sample_results"](), tmp_path / "results.json"
    results.save(file)
    payload = json.loads(file.read_text())
    assert payload["derived"]["means"][0]["to_fastest"] == results.derived().means[0].to_fastest
    payload["derived"]["means"][0]["to_fastest"] = 0.01
    payload["derived"]["comparisons"][0]["best"]["value"] = 0.01
    file.write_text(json.dumps(payload))
    assert html.render(Results.load(file)) == html.render(results)
    payload["derived"] = "nothing of ours"
    file.write_text(json.dumps(payload))
    assert html.render(Results.load(file)) == html.render(results)


@pytest.mark.parametrize(
    ("text", "value", "told"),
    [
        ("102 us", 1.0234e-4, False),
        ("0.55 (0.51 to 0.60)", 0.5512, False),
        ("12.3 GB", 1.2345e10, False),
        ("93%", 0.9349, False),
        ("40 x 122", 40, False),
        ("1,200 calls", 1200, False),
        ("at once", 0, True),
        ("-", None, False),
        ("3 min 20 s", 200.0, True),
    ],
)
def test_a_number_that_its_text_does_not_tell_is_beside_it(text, value, told):
    made = table_html(
        Table((Column("row"), Column("n", "number")), ((Entry("a", code=True), Entry(text, value=value)),))
    )
    assert made.endswith(f"<tr><td>a<td{f' data-value={value:.4g}' if told else ''}>{text}</tbody></table>")


def test_a_page_of_very_many_rows_stays_small_in_numbers_alone(monkeypatch):
    results = SAMPLE["sample_results"]()
    pictured = html.render(results)
    monkeypatch.setattr(speed_tables, "MOST_PICTURED", len(results.cells) - 1)
    page = html.render(results)
    assert 'class="dots"' in pictured
    assert 'class="dots"' not in page
    assert f"Of {len(results.cells):,} of them there are numbers alone" in page


def test_thirty_cases_in_three_modes_and_dtypes_fit_into_three_megabytes():
    results = ZOO["zoo_results"](every_dtype=True)
    assert len(html.render(results)) / len(results.cells) * (30 * 3 * 3 * len(ZOO["ROWS"])) < 3e6
