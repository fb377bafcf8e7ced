"""What came of a training run: `training.json`, and a page with both loss curves, made from it alone."""

from __future__ import annotations

import math
from pathlib import Path

from ..parity.yardstick import JUDGED_ELEMENTS, PRECISE_RATIO
from ..report.atomic import write_atomically
from ..report.json_form import to_json
from ..report.page import Column, Entry, Headline, Page, Paragraph, Plot, Plots, Section, Table, Tile, Tone
from ..report.pages import prepare_folder, write_page
from ..report.plots.losses import difference_plot, loss_plot
from ..report.wording import count, duration, number, plain
from .result import EAGER, EQUAL, PORT, Apart, TrainingResult, Way

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
APART = (
    Column("what"),
    Column("name"),
    Column("error", "number"),
    Column("port", "number"),
    Column("PyTorch", "number"),
    Column("note", "prose"),
)


def write_training(result: TrainingResult, folder: str | Path) -> tuple[Page, list[Path]]:
    """Writes `training.json`, `report.md` and `report.html` into the folder; gives the page and the paths.

    Raises:
      ResultsError: where the folder cannot be written to.
      ImportError: where jinja2 is missing.
    """
    target = prepare_folder(folder) / RESULTS
    write_atomically(target, to_json(result, indent=1))
    made = page(result)
    return made, [target, *write_page(made, folder)]


def page(result: TrainingResult) -> Page:
    """The page of one run."""
    wide, port = result.way(EAGER, "float64"), result.way(PORT, "float64")
    usual = [way for way in result.ways if way.dtype == "float32" and not way.reason]
    losses = {way.name: way.losses for way in usual}
    made = min(map(len, losses.values()), default=0)  # fewer where the run was interrupted
    verdict, tone = verdict_on(result)
    return Page(
        title=f"graphmode train: {plain(result.name)}",
        source=f"{len(wide.losses)} steps on a {result.device.upper()}; {plain(result.summary)}",
        headline=Headline(
            verdict,
            tone,
            tuple(_lines(result)),
            tuple(_tiles(result)),
            plots=(Plot(loss_plot(wide.losses, port.losses)),),
        ),
        sections=(
            Section("Every way of running it", "ways", (table(result), Paragraph(_HOW))),
            *([Section("What is off after the last step", "apart", (_apart_table(result),))] if result.apart else []),
            Section(
                "How far the losses are apart",
                "differences",
                (
                    Plots(
                        (
                            Plot(difference_plot(wide.losses, {PORT: port.losses}), "float64"),
                            *([Plot(difference_plot(wide.losses[:made], losses), "float32")] if usual else []),
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


def verdict_on(result: TrainingResult) -> tuple[str, Tone]:
    """In one sentence."""
    if result.first_step is not None:
        return (
            f"The losses part at step {result.first_step} in float64{_how_far(result)}; {EQUAL:.0e} is the bar.",
            "bad",
        )
    if result.apart:
        return (
            f"The losses agree, and {len(result.apart)} of {sum(result.compared.values())} tensors and scores after "
            f"the last step in float64 do not; {EQUAL:.0e} is the bar."
        ), "bad"
    if result.precise is False:
        return f"Equal in float64, and {number(result.ratio)} times PyTorch's error in float32.", "bad"
    if result.interrupted:
        steps = count(len(result.way(EAGER, "float64").losses), "step")
        return f"Interrupted: the losses of {steps} agree in float64; the rest was not judged.", "warn"
    if result.narrow:
        return "Both scripts take the same steps in float64, and run in different precisions.", "warn"
    if result.precise is None:
        return (
            f"Both scripts take the same steps in float64; precision was not judged, which takes {JUDGED_ELEMENTS} "
            "steps."
        ), "warn"
    return "Both scripts take the same steps.", "good"


def _how_far(result: TrainingResult) -> str:
    """At the first step above the bar, and at the one that is farthest off."""
    if not math.isfinite(result.error):
        loss = result.way(PORT, "float64").losses[result.error_step]
        return f", and the port's is {loss} at step {result.error_step}"
    return f", and at step {result.error_step}, where they are farthest apart, by {result.error:.1e} of the loss"


def _lines(result: TrainingResult) -> list[str]:
    lines = []
    if result.apart:
        first, worst = result.apart[0], max(result.apart, key=lambda each: each.error)
        lines = [f"The first and the worst of them: {_told(first)}."]
        if first is not worst:
            lines = [f"The first of them: {_told(first)}.", f"The worst: {_told(worst)}."]
    if result.case and not result.equal:
        steps = len(result.way(EAGER, "float64").losses) if result.first_step is None else result.first_step + 1
        lines.append(
            f"graphmode check {result.case} --steps {steps} names the first tensor that goes wrong, and where."
        )
    if result.interrupted:
        made = {way.dtype: len(way.losses) for way in result.ways if not way.reason}
        lines.append(
            f"The run was interrupted: of {result.asked} steps there are {made['float64']} in float64 and "
            f"{made.get('float32', 0)} in float32."
        )
    return [plain(line) for line in (*lines, *result.warnings)]


def _told(apart: Apart) -> str:
    values = f", {apart.port} for {apart.reference}" if apart.port else ""
    where = f" at {list(apart.index)}" if apart.index else ""
    size = apart.note or (f"off by {apart.error:.1e} of its size" if math.isfinite(apart.error) else "zero in PyTorch")
    return f"the {apart.kind} {apart.name} is {size}{where}{values}"


def _apart_table(result: TrainingResult) -> Table:
    return Table(
        APART,
        tuple(
            (
                Entry(each.kind),
                Entry(each.name, code=True),
                Entry(f"{each.error:.1e}", value=each.error),
                Entry(each.port),
                Entry(each.reference),
                Entry(plain(each.note)),
            )
            for each in result.apart
        ),
        f"Of {', '.join(f'{count} {kind}s' for kind, count in result.compared.items())} in float64.",
    )


def _precision_tone(result: TrainingResult) -> Tone:
    if result.precise is None:
        return ""
    return "bad" if not result.precise else "warn" if result.narrow else "good"


def _tiles(result: TrainingResult) -> list[Tile]:
    in_float32 = [way for way in result.ways if way.dtype == "float32" and not way.reason and way.name != PORT]
    fastest = min(in_float32, key=lambda way: way.median_s, default=None)
    ratio = result.way(PORT, "float32").median_s / fastest.median_s if fastest else 0
    return [
        Tile(f"{result.error:.1e}", f"largest relative difference of the losses in float64 (bar {EQUAL:.0e})",
             "good" if result.first_step is None else "bad"),
        Tile(number(result.ratio), f"float32 error over PyTorch's own (bar {PRECISE_RATIO:g})",
             _precision_tone(result)),
        *([Tile(number(ratio), f"time of a step over {fastest.name}", "good" if ratio < 1 else "warn")]
          if fastest else []),
        Tile(str(result.traces), "compilations of the step"),
    ]  # fmt: skip


_HOW = (
    "All ways start from the same weights and take the same batch in turn. A time is the median over steps, the first "
    "ones left out, from the call until the loss is on the host."
)
_APART = "Relative to PyTorch's eager losses in float64. Differences grow with the steps: each starts from the last."
