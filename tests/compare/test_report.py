"""Pages, plot and terminal say what the results hold: every cell, every loss, nothing that is markup."""

from __future__ import annotations

import base64
import builtins
import hashlib
import html as html_escapes
import io
import re
import runpy
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from graphmode.compare.case import DEFAULT_VARIANT
from graphmode.compare.report import ResultsError, html, markdown, prepare_folder, terminal, wording, write_pages
from graphmode.compare.report.contents import contents
from graphmode.compare.report.headline import headline
from graphmode.compare.report.meanings import MEANINGS
from graphmode.compare.report.page import Table
from graphmode.compare.report.records import CaseInfo, Cold, Floors, Launches, Memory, Work
from graphmode.compare.report.results import Results
from rich.console import Console

SAMPLE = runpy.run_path(str(Path(__file__).with_name("sample_results.py")))
ZOO = runpy.run_path(str(Path(__file__).with_name("sample_zoo.py")))
NASTY = 'a | b\nsecond `line` <script>alert("x")</script> *bold* \x1b[31mred\x1b[0m $x$'


@pytest.fixture(scope="module")
def passing() -> Results:
    return SAMPLE["sample_results"]()


@pytest.fixture(scope="module")
def failing() -> Results:
    return SAMPLE["sample_results"](complete=False, failing=True)


def nothing() -> Results:
    return Results(created="2025-06-30", seed=0, quick=True, environment=SAMPLE["environment"]())


def nasty() -> Results:
    """Every text that comes from elsewhere holds markup."""
    results = nothing()
    results.cases = [CaseInfo(name=NASTY, summary=NASTY, problem=NASTY)]
    results.parity = [
        SAMPLE["parity"](
            NASTY, NASTY, notes=[NASTY], readings={NASTY: NASTY}, tensors=[SAMPLE["tensor"](NASTY, note=NASTY)]
        )
    ]
    cell = SAMPLE["_plain"](NASTY, "torch.trace", "inference", "failed", NASTY, variant=NASTY)
    rng = SAMPLE["np"].random.default_rng(0)
    drift = SAMPLE["np"].ones(6)
    results.cells = [cell, replace(cell, expected=NASTY)]
    results.cells += [SAMPLE["timed"](NASTY, row, 1e-3, rng, drift) for row in ("torch.eager", "jax.jit")]
    return results


class Tags(HTMLParser):
    """What a page is made of, and what it refers to."""

    UNCLOSED = frozenset({"meta", "br", "input", "tr", "th", "td"})  # void, or with an end tag that may be omitted

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.references: list[str] = []
        self.anchors: set[str] = set()

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        for name, value in attrs:
            if name == "id":
                self.anchors.add(value or "")
            elif name in ("href", "xlink:href", "src", "srcset", "action", "data", "poster"):
                self.references.append(value or "")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in self.UNCLOSED:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def text_of(page: str) -> str:
    return html_escapes.unescape(re.sub(r"<[^>]+>", " ", page))


def shown(renderable: object, width: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(renderable)
    return out.getvalue()


def tables(text: str) -> list[list[str]]:
    blocks = re.split(r"\n\n", text)
    return [block.splitlines() for block in blocks if block.startswith("| ")]


def test_html_shows_every_cell_with_its_status_and_reason(failing):
    page = html.render(failing)
    rows = [html_escapes.unescape(row) for row in page.split("<tr>")]
    for cell in failing.cells:
        parts = (f">{cell.row}<", wording.status_text(cell), wording.reason_text(cell))
        assert any(all(part in row for part in parts) for row in rows), cell


def test_markdown_and_html_say_the_same(failing):
    page, text = text_of(html.render(failing)), markdown.render(failing)
    for heading in re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE):
        assert heading.replace("\\", "") in page
    for cell in failing.cells:
        assert cell.row in text
    assert "2.10 (2.05 to 2.13) times the time of torch.compile" in text
    assert "2.10 (2.05 to 2.13) times the time of torch.compile" in page


@pytest.mark.parametrize("results", [SAMPLE["sample_results"](), nasty(), nothing()], ids=["sample", "nasty", "empty"])
def test_html_refers_to_nothing_outside_itself(results):
    page = html.render(results)
    seen = Tags()
    seen.feed(page)
    assert not seen.open
    assert not seen.names & {"link", "img", "iframe", "object", "embed", "form", "base", "image"}
    assert all(value.startswith("#") for value in seen.references)
    assert {value[1:] for value in seen.references} <= seen.anchors
    assert not re.search(r"url\((?!#)|@import", page)


def test_only_the_page_s_own_script_may_run(passing):
    page = html.render(passing)
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page).group(1)
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")


def test_markup_in_texts_is_shown_and_never_run():
    page = html.render(nasty())
    assert page.count("<script") == 1
    assert page.count("&lt;script&gt;") > 5
    assert "\x1b" not in page
    text = markdown.render(nasty())
    assert "<script" not in text
    assert "\x1b" not in text


@pytest.mark.parametrize("results", [SAMPLE["sample_results"](), nasty(), nothing()], ids=["sample", "nasty", "empty"])
def test_markdown_tables_are_well_formed(results):
    found = tables(markdown.render(results))
    assert found
    for table in found:
        assert re.fullmatch(r"\|( -{3}:? \|)+", table[1])
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table}
        assert len(widths) == 1, table
        assert all(line.startswith("| ") and line.endswith(" |") for line in table)


def test_long_reasons_are_whole_on_the_pages(passing):
    reason = wording.plain(SAMPLE["LONG_REASON"])
    assert reason in html_escapes.unescape(html.render(passing))
    assert markdown.escape(reason) in markdown.render(passing)


def test_headline_of_ports_whose_precision_was_not_judged(passing):
    first = next(p for p in passing.parity if p.side == "jax")
    small = [replace(t, ratio=None, precise=True) for t in first.tensors]
    parity = [replace(p, tensors=small) if p is first else p for p in passing.parity]
    text = markdown.render(replace(passing, parity=parity))
    assert "**Every port is equal, and as far as it was judged precise (of 1 port it was not); nothing" in text


def test_headline_of_a_run_that_passed(passing):
    text = markdown.render(passing)
    assert "**Every port is equal and precise, and nothing unexpected failed.**" in text
    assert "6 of 6 (5 cases)" in text
    assert "interrupted" not in text
    assert text.index("Where JAX loses") < text.index("Is it the same?")


def test_headline_of_a_run_that_failed(failing):
    text = markdown.render(failing)
    assert "**2 findings fail this run.**" in text
    assert "resnet18 (default): the port is not equal and not precise" in text
    assert "jax.jit (inference)" in text
    for render in (markdown.render, html.render):
        assert "This run was interrupted: what had finished is shown" in render(failing)


def test_evidence_names_the_tensor_and_both_values(failing):
    row = next(line for table in tables(markdown.render(failing)) for line in table if "ratio is not finite" in line)
    for part in ("`resnet18`", "`output[0]`", "0.031", "[0, 17]", "nan", "0.4375219", "inputs", "off"):
        assert markdown.escape(part) in row or part in row


def test_readings_are_shown(passing):
    for text in (markdown.render(passing), html.render(passing), shown(terminal.summary(passing))):
        assert "class 281, tabby, 0.61" in text


def test_nothing_compared_is_said():
    empty = nothing()
    for text in (markdown.render(empty), html.render(empty), shown(terminal.summary(empty))):
        assert "Nothing was compared." in text
        assert "This was a quick run" in text
        assert "This run was interrupted" in text
    assert headline(empty).plots == ()
    assert "<svg" not in html.render(empty)


def test_parity_alone_and_cells_alone_render(passing):
    parity_only, cells_only = nothing(), nothing()
    parity_only.parity, cells_only.cells = passing.parity, passing.cells
    assert "So far: every port is equal and precise" in markdown.render(parity_only)
    assert "whether the ports are equal was not judged" in markdown.render(cells_only)
    assert "<svg" not in html.render(parity_only)


def test_many_failed_tensors_are_counted_not_dropped_silently():
    results = nothing()
    bad = [SAMPLE["tensor"](f"output[{n}]", equal=False, error=n + 1.0) for n in range(40)]
    results.parity = [SAMPLE["parity"]("wide", equal=False, tensors=bad)]
    assert "further tensors failed; results.json has them all" in markdown.render(results)


def test_every_comparison_has_a_bar_that_leads_to_its_case(passing):
    page = html.render(passing)
    assert html.render(passing) == page
    bars = re.findall(r'<a href="#(case-\d+)"><svg[^>]*><title>(.*?), (.*?): ', page)
    found = {(name, mode) for _, name, mode in bars}
    assert found == {(case, mode) for case in SAMPLE["CASES"] for mode in ("inference", "forward + backward")}
    for anchor, name, _ in bars:
        assert re.search(rf'id="{anchor}">\s*<summary><h3>Every row of {name}</h3>', page)


def test_each_device_and_dtype_has_its_own_bars(passing):
    results = nothing()
    results.cells = [*passing.cells, *(replace(c, dtype="bfloat16") for c in passing.cells)]
    head = headline(results)
    assert [p.title for p in head.plots] == ["inference, cpu float32", "forward + backward, cpu float32"]
    assert [p.title for p in head.further_plots] == ["inference, cpu bfloat16", "forward + backward, cpu bfloat16"]


def test_batch_sizes_are_never_mixed(passing):
    """A sweep changes no mean, no loss and no bar, and its cells stand with their sizes."""
    swept = [replace(c, batch=batch) for c in passing.cells for batch in (1, 64) if c.case == "resnet18"]
    results = replace(passing, cells=[*passing.cells, *swept])
    before, after = headline(passing), headline(results)
    assert (after.tiles, after.losses, after.wins, after.plots) == (
        before.tiles,
        before.losses,
        before.wins,
        before.plots,
    )
    text = markdown.render(results)
    assert "inference, cpu, float32, over the batch size" in text
    assert "| row | variant | batch 1 | batch 64 |" in text
    table = shown(terminal.speed_table("resnet18", "inference", results.cells), width=120)
    assert "cpu float32, own inputs" in table
    assert "cpu float32, batch 64" in table


def test_what_is_told_of_single_cases_stands_below_what_bears_on_all(passing):
    first, *others = passing.cases
    noted = replace(passing, complete=False, cases=[replace(first, notes=["no batch sweep"]), *others])
    remark = f"{first.name}: no batch sweep"
    assert headline(noted).notes == headline(replace(passing, complete=False)).notes
    assert headline(noted).remarks == (remark,)
    text, page = markdown.render(noted), html.render(noted)
    assert text.index("was interrupted") < text.index("So far") < text.index("batch sweep")
    assert page.index("was interrupted") < page.index('id="wins-and-losses"') < page.index(f"<li>{remark}</li>")
    assert remark in shown(terminal.summary(noted))


@pytest.mark.parametrize(
    ("load", "busy"),
    [("5.74 6.10 4.43", True), ("1.01 0.2 0.1", True), ("1.00 6 6", False), ("", False), ("unknown", False)],
)
def test_a_machine_that_was_busy_is_told_above_all(passing, load, busy):
    there = replace(passing.environment, threads=2, moment={"load average": load})
    results = replace(passing, environment=there)
    assert there.is_busy is busy
    assert [f"load average {load.split()[0]}, 2 threads" in note for note in headline(results).notes] == [True] * busy
    assert headline(replace(results, cells=[])).notes == ()  # what is equal does not hang on it


def test_a_mean_of_what_is_level_is_neither_good_nor_bad(passing):
    scatter = {"jax": (0.1, 0.5, 1, 2, 9), "torch": (9, 2, 1, 0.5, 0.1)}
    scattered = [
        replace(c, samples_s=[c.median_s * s for s in scatter[c.framework]])
        for c in passing.cells
        if c.median_s and c.case == "resnet18"
    ]
    tones = {t.words.partition(",")[0]: t.tone for t in headline(replace(passing, cells=scattered)).tiles}
    assert tones["JAX's time over PyTorch's fastest row's"] == ""


def test_what_was_judged_and_not_timed_is_told(passing):
    untimed = replace(passing, cells=[c for c in passing.cells if c.case != "lstm"])
    assert "Judged, and not timed: lstm." in headline(untimed).lines
    judged = replace(passing, cells=[])  # a check times nothing
    for results in (passing, judged):
        assert "not timed" not in " ".join(headline(results).lines)


def test_what_is_level_is_no_loss(passing):
    """As many are listed as are counted."""
    scattered = [
        replace(c, samples_s=[c.median_s * s for s in (0.5, 0.9, 1, 1.1, 1.5)]) for c in passing.cells if c.median_s
    ]
    for cells in (passing.cells, scattered):
        results = replace(passing, cells=cells)
        (mean,) = results.derived().means
        head = headline(results)
        assert len(head.losses) == mean.slower
        assert len(head.wins) == min(5, mean.faster)
        assert mean.slower + mean.level > 0


def test_a_slow_start_elsewhere_hides_no_bar(passing):
    """Each bar is a share of the longest of its own case and mode."""
    starts = {"resnet18": 1e4, "lstm": 1.0}
    cells = [replace(c, cold=Cold(compile_s=starts.get(c.case, 1.0))) for c in passing.cells if c.median_s]
    (section,) = (s for s in contents(replace(passing, cells=cells)).sections if s.anchor == "cold")
    table = next(block for block in section.blocks if isinstance(block, Table))
    assert {len(row[3].graphic) for row in table.rows} == {len(table.rows[0][3].graphic)}


def test_parity_line_is_one_line(passing, failing):
    lines = [terminal.parity_line(p).plain for p in passing.parity]
    assert all("\n" not in line and len(line) < 90 for line in lines)
    assert lines[0] == "conditional_scale [where]  equal and precise  error 4.4e-16  ratio 1.1  6.4 s"
    assert "NOT equal and NOT precise  error 0.031 at output[0]" in terminal.parity_line(failing.parity[5]).plain
    crashed = replace(passing.parity[0], error="ValueError: no such key", equal=False, tensors=[])
    assert "not judged  ValueError: no such key" in terminal.parity_line(crashed).plain


def test_speed_table_on_eighty_columns(passing):
    text = shown(terminal.speed_table("resnet18", "inference", passing.cells))
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 80
    cells = [c for c in passing.cells if c.case == "resnet18" and c.mode == "inference"]
    for cell in cells:
        assert cell.row in text
    assert re.search(r"torch\.compile +ok +\S+ ms \*", text)
    assert "... (whole in the report)" in text
    assert "lstm" not in text


def test_speed_table_of_nothing():
    assert "none, inference" in shown(terminal.speed_table("none", "inference", []))


def test_summary_is_plain_text_off_a_terminal(failing):
    text = shown(terminal.summary(failing))
    assert text.isascii()
    assert "What fails this run" in text
    assert "Where JAX loses" in text


def test_summary_does_not_tell_a_long_problem_again():
    results = nothing()
    told = ["the weights do not match Port: 2 problem(s)", "  - a: missing", "  - b: unused"]
    results.cases = [
        CaseInfo(name="x", summary="", problem="\n".join(told)),
        CaseInfo(name="y", summary="", problem="-"),
    ]
    lines = shown(terminal.summary(results), width=200).splitlines()
    assert lines[lines.index("What fails this run") + 1 :] == [f"- x: {told[0]} (shown above)", "- y: -"]
    results.cases = []
    assert "What fails this run" not in shown(terminal.summary(results))


def test_terminal_keeps_brackets_and_drops_escapes():
    results = nasty()
    results.cells = [replace(c, case="[bold]x[/bold]") for c in results.cells]
    text = shown(terminal.speed_table("[bold]x[/bold]", "inference", results.cells), width=200)
    assert "[bold]x[/bold], inference" in text
    assert "\x1b" not in text


def test_write_pages_fills_the_folder(tmp_path, passing):
    paths = write_pages(passing, tmp_path / "new" / "report")
    assert [p.name for p in paths] == ["report.md", "report.html"]
    assert sorted(p.name for p in paths[0].parent.iterdir()) == ["report.html", "report.md"]
    again = write_pages(passing, tmp_path / "new" / "report")
    assert again == paths


def test_pages_come_from_the_json_alone(tmp_path, failing):
    failing.save(tmp_path / "results.json")
    loaded = Results.load(tmp_path / "results.json")
    assert markdown.render(loaded) == markdown.render(failing)
    assert html.render(loaded) == html.render(failing)


def test_prepare_folder_refuses_a_file(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(ResultsError, match=r"taken is a file.*give another path"):
        prepare_folder(tmp_path / "taken")
    with pytest.raises(ResultsError, match=r"taken.*give a folder"):
        prepare_folder(tmp_path / "taken" / "below")
    assert prepare_folder(tmp_path / "fresh").is_dir()
    assert not list((tmp_path / "fresh").iterdir())


def test_a_page_that_cannot_be_replaced_is_named(tmp_path, passing):
    (tmp_path / "report.md").mkdir()
    with pytest.raises(ResultsError, match=r"report\.md"):
        write_pages(passing, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["report.md"]


def test_a_missing_package_names_what_to_install(monkeypatch, passing):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.partition(".")[0] == "jinja2":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"pip install 'graphmode\[report\]'"):
        html.render(passing)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.0, "0 s"),
        (4.2e-9, "4.20 ns"),
        (999.4e-9, "999 ns"),
        (999.6e-9, "1.00 us"),
        (-1.58e-3, "-1.58 ms"),
        (63.4e-6, "63.4 us"),
        (0.0123456, "12.3 ms"),
        (1.5, "1.50 s"),
        (1234.0, "1234 s"),
    ],
)
def test_durations(seconds, text):
    assert wording.duration(seconds) == text


def test_the_unnamed_variant_is_the_cases_own():
    assert wording.DEFAULT_VARIANT == DEFAULT_VARIANT


@pytest.mark.parametrize(
    "fields",
    [
        {"flops": 0.0, "bytes": 0.0},
        {"flops": 0.0, "bytes": 1e6},
        {"flops": 1e6, "bytes": 0.0},
        {"compile_s": 0.0, "cold": Cold()},
        {"compile_s": 0.0, "cold": Cold(build_s=0.0, warm_start_s=0.0)},
        {"memory": Memory(), "launches": Launches()},
        {"memory": Memory(peak_bytes=0), "launches": Launches(kernels=0, captured=0.0)},
        {"samples_s": []},
        {"batch": 8},
    ],
    ids=str,
)
def test_what_is_hardly_measured_is_shown(fields):
    """Nothing, or zero, where a plot takes logarithms and shares."""
    load = {"flops": 1e6, "bytes": 1e6} | {k: fields[k] for k in ("flops", "bytes") if k in fields}
    rest = {k: v for k, v in fields.items() if k not in load}
    results = SAMPLE["sample_results"]()
    results.cells = [replace(c, **rest) for c in results.cells if c.median_s is not None]
    results.floors = Floors(bytes_per_s=1e9, flops_per_s={"float32": 1e12}, launch_s={})
    results.work = [Work(case=case, mode="inference", dtype="float32", **load) for case in SAMPLE["CASES"]]
    for text in (html.render(results), markdown.render(results)):
        assert "How far from the floor?" in text
        assert not re.search(r"\b(nan|inf)\b", text)


def test_every_column_has_its_meaning(failing):
    terms = {term for key in MEANINGS for term in key.split(", ")}
    for results in (failing, ZOO["zoo_results"]()):
        for section in contents(results).sections:
            if section.anchor in ("problems", "environment", "meaning"):
                continue
            for table in (block for block in section.blocks if isinstance(block, Table)):
                for column in table.columns:
                    title = re.sub(r" \(.*\)$| [\d,]+$", "", column.title)
                    assert title in terms, f"{section.title}: {column.title}"
