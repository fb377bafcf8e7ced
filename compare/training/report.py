"""What came of a training run: `training.json`, and a page with both loss curves, made from it alone."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from ..parity.yardstick import PRECISE_RATIO
from ..report.atomic import write_atomically
from ..report.page import Column, Entry, Headline, Page, Paragraph, Plot, Plots, Section, Table, Tile, Tone
from ..report.pages import prepare_folder, write_page
from ..report.plots.losses import difference_plot, loss_plot
from ..report.wording import duration, number, plain
from .runs import EAGER, EQUAL, PORT, TrainingResult, Way

RESULTS = "training.json"
WAYS = (
    Column("way"),
    Column("dtype"),
    Column("first loss", "number"),
    Column("last loss", "number"),
    Column("time a step", "number"),
    Column("to torch.eager", "number"),
    Column("scores", "prose"),
)


def write_training(result: TrainingResult, folder: str | Path) -> tuple[Page, list[Path]]:
    """Writes `training.json`, `report.md` and `report.html` into the folder; gives the page and the paths.

    Raises:
      ResultsError: where the folder cannot be written to.
      ImportError: where jinja2 is missing.
    """
    target = prepare_folder(folder) / RESULTS
    write_atomically(target, msgspec.json.format(msgspec.json.encode(result), indent=1))
    made = page(result)
    return made, [target, *write_page(made, folder)]


def page(result: TrainingResult) -> Page:
    """The page of one run."""
    wide, port = result.way(EAGER, "float64"), result.way(PORT, "float64")
    usual = [way for way in result.ways if way.dtype == "float32" and not way.reason]
    verdict, tone = _verdict(result)
    return Page(
        title=f"graphmode train: {plain(result.name)}",
        source=f"{len(wide.losses)} steps on a {result.device.upper()}; {plain(result.summary)}",
        headline=Headline(verdict, tone, (), tuple(_tiles(result)), plots=(Plot(loss_plot(wide.losses, port.losses)),)),
        sections=(
            Section("Every way of running it", "ways", (table(result), Paragraph(_HOW))),
            Section(
                "How far the losses are apart",
                "differences",
                (
                    Plots(
                        (
                            Plot(difference_plot(wide.losses, {PORT: port.losses}), "float64"),
                            Plot(difference_plot(wide.losses, {way.name: way.losses for way in usual}), "float32"),
                        )
                    ),
                    Paragraph(_APART),
                ),
            ),
        ),
    )


def table(result: TrainingResult) -> Table:
    return Table(WAYS, tuple(_row(result, way) for way in result.ways))


def _row(result: TrainingResult, way: Way) -> tuple[Entry, ...]:
    strong = way.name == PORT
    if way.reason:
        return (Entry(way.name, code=True), Entry(way.dtype), *(Entry("-") for _ in range(4)), Entry(plain(way.reason)))
    ratio = way.median_s / result.way(EAGER, way.dtype).median_s
    return (
        Entry(way.name, code=True, strong=strong),
        Entry(way.dtype),
        Entry(f"{way.losses[0]:.6g}", value=way.losses[0]),
        Entry(f"{way.losses[-1]:.6g}", value=way.losses[-1]),
        Entry(duration(way.median_s), value=way.median_s),
        Entry(number(ratio), value=ratio),
        Entry(", ".join(f"{plain(name)} {value:.4g}" for name, value in way.scores.items())),
    )


def _verdict(result: TrainingResult) -> tuple[str, Tone]:
    if not result.equal:
        at = f"{result.error:.1e} at step {result.error_step}" if math.isfinite(result.error) else "not finite alone"
        return f"The losses part: {at} in float64, and {EQUAL:.0e} is the bar.", "bad"
    if result.precise is False:
        return f"Equal in float64, and {number(result.ratio)} times PyTorch's error in float32.", "bad"
    return "Both scripts take the same steps.", "good"


def _tiles(result: TrainingResult) -> list[Tile]:
    fastest = min(
        (way for way in result.ways if way.dtype == "float32" and not way.reason and way.name != PORT),
        key=lambda way: way.median_s,
    )
    ratio = result.way(PORT, "float32").median_s / fastest.median_s
    return [
        Tile(f"{result.error:.1e}", f"largest relative difference of the losses in float64 (bar {EQUAL:.0e})",
             "good" if result.equal else "bad"),
        Tile(number(result.ratio), f"float32 error over PyTorch's own (bar {PRECISE_RATIO:g})",
             "bad" if result.precise is False else "good" if result.precise else ""),
        Tile(number(ratio), f"time of a step over {fastest.name}", "good" if ratio < 1 else "warn"),
        Tile(str(result.traces), "compilations of the step"),
    ]  # fmt: skip


_HOW = (
    "All ways start from the same weights and take the same batch in turn. A time is the median over steps, the first "
    "ones left out, from the call until the loss is on the host."
)
_APART = "Relative to PyTorch's eager losses in float64. Differences grow with the steps: each starts from the last."
