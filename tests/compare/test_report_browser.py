"""The page in a browser: it opens offline and quickly, sorts, filters, opens what is linked, prints, fits a phone."""

from __future__ import annotations

import os
import re
import runpy
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from graphmode.compare.report import Results, html
from graphmode.compare.report.json_form import from_json, to_json

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is on the PATH")

HERE = Path(__file__).parent
SAMPLE = runpy.run_path(str(HERE / "sample_results.py"))
ZOO = runpy.run_path(str(HERE / "sample_zoo.py"))
PHONE = {"width": 390, "height": 844}
MAX_BYTES = 3_000_000
MAX_LOAD_MS = 2000
LOADS = 3  # the quickest counts: what else the machine does is no part of the page


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    made = {"sample": SAMPLE["sample_results"](failing=True), "zoo": ZOO["zoo_results"]()}
    names = to_json(made["sample"]).replace(b'"lstm"', b'"' + b"long_name_" * 20 + b'"')
    made["long"] = from_json(names, Results)
    for name, results in made.items():
        (folder / f"{name}.html").write_text(html.render(results), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in made}


@pytest.fixture(scope="module")
def browser() -> Iterator:
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium's own sandbox refuses root
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield started
        started.close()


@pytest.fixture
def show(browser, pages) -> Iterator[Callable]:
    """Opens a page without a network; afterwards, nothing may have been asked for and nothing complained of."""
    contexts, complaints, requests = [], [], []

    def opened(name: str = "sample", anchor: str = "", **options):
        context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))
        context.set_offline(True)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(f"{pages[name].as_uri()}#{anchor}" if anchor else pages[name].as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
    assert {url.partition("#")[0] for url in requests} <= {path.as_uri() for path in pages.values()}


def column(page, table: str, number: int) -> list[str]:
    return page.locator(f"{table} tbody td:nth-child({number})").evaluate_all(
        "fields => fields.map(field => field.dataset.value ?? field.textContent.trim())"
    )


def seconds(text: str) -> float:
    amount, unit = text.split()
    return float(amount) * {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[unit]


def test_the_whole_zoo_is_small_and_opens_quickly(show, pages):
    assert pages["zoo"].stat().st_size < MAX_BYTES
    times = []
    for _ in range(LOADS):
        page = show("zoo")
        times.append(page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"))
    assert 0 < min(times) < MAX_LOAD_MS


def test_the_head_is_seen_and_the_rest_is_one_click_below(show):
    page = show()
    assert page.locator("#wins-and-losses").is_visible()
    assert page.locator(".bars .figure").first.is_visible()
    assert not page.locator("#speed table").is_visible()
    page.click("#speed > summary")
    assert page.locator("#speed table").is_visible()


def test_every_bar_leads_to_its_case(show):
    page = show()
    link = page.locator(".bars a").first
    case, anchor = link.locator(".label").text_content(), link.get_attribute("href")
    link.click()
    page.wait_for_function("anchor => document.querySelector(anchor).open", arg=anchor)
    heading = page.locator(f"{anchor} > summary")
    assert heading.text_content().strip() == f"Every row of {case}"
    page.wait_for_function("scrollY > 0")
    assert page.locator(f"{anchor} table").first.is_visible()


@pytest.mark.parametrize("anchor", ["speed", "case-3", "environment"])
def test_a_link_into_a_closed_part_opens_it(show, anchor):
    page = show(anchor=anchor)
    assert page.locator(f"#{anchor} table").first.is_visible()
    assert page.locator(f"#{anchor}").bounding_box()["y"] < 900


def test_a_table_sorts_by_value_by_mouse_and_by_keyboard(show):
    page = show("zoo", anchor="speed")
    header = page.locator("#speed th:nth-child(6)")
    assert header.text_content() == "median"
    before = column(page, "#speed", 6)
    texts = page.locator("#speed tbody td:nth-child(6)").all_text_contents()
    assert {text.split()[1] for text in texts} >= {"us", "ms"}
    header.locator("button").click()
    assert header.get_attribute("aria-sort") == "ascending"
    assert [seconds(v) for v in column(page, "#speed", 6)] == sorted(map(seconds, before))
    header.locator("button").focus()
    page.keyboard.press("Enter")
    assert header.get_attribute("aria-sort") == "descending"
    assert [seconds(v) for v in column(page, "#speed", 6)] == sorted(map(seconds, before), reverse=True)
    page.locator("#speed th:nth-child(1) button").press("Space")
    assert column(page, "#speed", 1) == sorted(column(page, "#speed", 1))
    assert header.get_attribute("aria-sort") is None


def test_fields_without_a_number_stay_last(show):
    page = show("zoo", anchor="cold")
    button = page.locator("#cold th", has_text="pays back after").locator("button")
    number = button.evaluate("button => button.parentElement.cellIndex + 1")
    for _ in range(2):
        button.click()
        shown = column(page, "#cold", number)
        assert 0 < shown.index("-") < len(shown)
        assert set(shown[shown.index("-") :]) == {"-"}


def test_the_filter_leaves_what_matches(show):
    page = show()
    page.fill("#filter", "lstm")
    page.click("#speed > summary")
    assert set(page.locator("#speed tbody tr:visible td:first-child").all_text_contents()) == {"lstm"}
    page.click("#cases > summary")
    assert page.locator("#cases details.inner:visible").count() == 1
    page.fill("#filter", "")
    assert page.locator("#cases details.inner:visible").count() == len(SAMPLE["CASES"])


def test_a_link_to_what_the_filter_hides_ends_it(show):
    page = show()
    page.fill("#filter", "lstm")
    page.get_by_role("link", name="efficientnet_lite0, inference: ").click()
    shown = page.locator("#cases details.inner:visible")
    page.wait_for_function("document.querySelector('#cases details.inner[open]')")
    assert shown.count() == len(SAMPLE["CASES"])
    assert (
        page.locator("#cases details.inner[open] > summary").text_content().strip() == "Every row of efficientnet_lite0"
    )
    assert page.input_value("#filter") == ""


def test_open_all_and_close_all(show):
    page = show()
    page.click("#open-all")
    assert page.locator("details:not([open])").count() == 0
    page.click("#close-all")
    assert page.locator("details[open]").count() == 0


@pytest.mark.parametrize("name", ["sample", "zoo", "long"])
def test_a_phone_never_scrolls_sideways(show, name):
    page = show(name, viewport=PHONE, is_mobile=True, has_touch=True)
    for part in (None, "#speed", "#cases", "#case-1", "#case-3", "#parity", "#cold"):
        if part is not None:
            page.locator(f"{part} > summary").tap()
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"], part
    page.locator("#case-1 .box").first.evaluate("box => box.scrollLeft = 200")
    assert page.locator("#case-1 .box").first.evaluate("box => box.scrollLeft") == 200


def test_the_colours_follow_the_reader(show):
    page = show()

    def colours() -> tuple[str, ...]:
        return tuple(
            page.locator(where).first.evaluate(f"element => getComputedStyle(element).{name}")
            for where, name in (("body", "backgroundColor"), ("body", "color"), (".bars .label", "fill"))
        )

    page.emulate_media(color_scheme="light")
    light = colours()
    page.emulate_media(color_scheme="dark")
    paper, ink, label = colours()
    assert light[0] == "rgb(255, 255, 255)"
    assert light[1] == light[2] != ink
    assert label == ink
    assert brightness(paper) < 60 < 180 < brightness(ink)


def brightness(colour: str) -> float:
    return sum(channels(colour)) / 3


def channels(colour: str) -> list[int]:
    return [int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]


def contrast(one: str, other: str) -> float:
    """That of the Web Content Accessibility Guidelines, 1 to 21."""

    def luminance(colour: str) -> float:
        parts = [c / 255 for c in channels(colour)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


READ = (
    *(("zoo", f".bars {kind}", "fill", 4.5) for kind in (".label", ".figure", ".tick", "text.jax", "text.torch")),
    *(("zoo", f".bars rect.{kind}", "fill", 3.0) for kind in ("jax", "torch", "level")),
    *(("sample", f"header .{kind}", "color", 4.5) for kind in ("source", "lead", "bad")),
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_is_read_stands_out_from_the_paper(show, scheme):
    """By 4.5 for text and 3 for what is drawn, as the guidelines ask for."""
    shown = {name: show(name, color_scheme=scheme) for name in ("zoo", "sample")}
    faint = []
    for name, where, style, least in READ:
        paper = shown[name].evaluate("getComputedStyle(document.body).backgroundColor")
        colour = shown[name].locator(where).first.evaluate(f"element => getComputedStyle(element).{style}")
        if contrast(colour, paper) < least:
            faint.append((where, colour))
    assert faint == []


def test_paper_shows_everything(show):
    page = show()
    hidden = page.locator("#environment td").first
    assert not hidden.is_visible()
    screen = page.evaluate("document.documentElement.scrollHeight")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("document.documentElement.scrollHeight") > 3 * screen
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.pdf().count(b"/Type /Page\n") > 5


def test_paper_names_the_columns_on_every_page(show):
    """Chromium leaves out buttons where it repeats a table's head."""
    page = show()
    header = page.locator("#case-1 th", has_text="median").first
    shown = """header => [
        getComputedStyle(header, "::before").content, getComputedStyle(header.querySelector("button")).display
    ]"""
    assert header.evaluate(shown)[0] == "none"
    page.emulate_media(media="print")
    assert header.evaluate(shown) == ['"median"', "none"]


def test_tables_that_scroll_have_a_name(show):
    """A keyboard stops at each, and a reader hears where."""
    page = show(anchor="speed")
    assert page.get_by_role("group", name="Is it faster?").get_by_role("table").is_visible()
    assert page.locator(".box:not([aria-label]), .box[aria-label='']").count() == 0


def test_paper_can_break_between_the_bars(show):
    """A picture that is higher than a page would be cut, and what comes after it printed over its end."""
    page = show("zoo")
    page.emulate_media(media="print")
    heights = page.locator("header svg").evaluate_all("pictures => pictures.map(p => p.getBoundingClientRect().height)")
    assert len(heights) > 60
    assert max(heights) < 100


def test_a_bar_is_a_link_that_says_what_it_shows(show):
    page = show()
    assert page.locator("[role=img] a").count() == 0  # a picture has no parts for who cannot see it
    title = page.get_by_role("link", name="lstm, inference: ").get_by_role("img").locator("title").text_content()
    assert re.fullmatch(r"lstm, inference: \d\.\d\d \(\S+ to \S+\), jax\.graphed \[.*\] over torch\.\S+ \[.*\]", title)


def test_without_its_script_everything_can_be_read(show):
    page = show(java_script_enabled=False)
    assert not page.locator("#tools").is_visible()
    page.locator("#cases > summary").click()
    page.locator("#case-1 > summary").click()
    assert page.locator("#case-1 table").first.is_visible()
    assert page.locator("#case-1 th").first.text_content() == "row"
