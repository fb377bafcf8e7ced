"""The self-test on a terminal: a line for each result, and the table of all kinds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from .records import Alarm, Outcome, SelfTest


def result_line(result: Outcome | Alarm, done: int, total: int) -> Text:
    """`12 of 300  gelu-form at encoder.blocks.0  caught, located  1.2 s`."""
    if isinstance(result, Alarm):
        name, words = f"{result.specimen}, seed {result.seed}", "passed" if result.passed else "FALSE ALARM"
        good = result.passed
    else:
        name, words = result.name, verdict(result)
        good = result.idle or result.located
    return Text.assemble(
        (f"{done} of {total}  ", "dim"),
        name,
        "  ",
        (words, "green" if good else "bold red"),
        (f"  {result.duration_s:.1f} s", "dim"),
    )


def verdict(outcome: Outcome) -> str:
    """What became of a plant, in words."""
    if outcome.error:
        return f"failed: {outcome.error}"
    if outcome.idle:
        return "idle: it moves nothing"
    if not outcome.caught:
        return "NOT CAUGHT"
    if outcome.refused:
        return f"refused, and so not located: {outcome.refused}"
    words = ["caught", "located" if outcome.located else f"NOT LOCATED: {', '.join(outcome.accused) or 'nothing'}"]
    if outcome.explained:
        words.append("explained")
    elif outcome.explained_wrongly:
        words.append(f"EXPLAINED WRONGLY by {', '.join(outcome.causes)}")
    return ", ".join(words)


def summary(test: SelfTest) -> RenderableType:
    """The table by kind, what was missed, and the false alarms."""
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("kind of bug", no_wrap=True)
    for title in ("plants", "caught", "located", "first", "explained", "wrongly", "idle"):
        table.add_column(title, justify="right")
    for kind in dict.fromkeys(each.kind for each in test.outcomes):
        row(table, kind, [each for each in test.outcomes if each.kind == kind])
    table.add_section()
    row(table, "all", test.outcomes, style="bold")
    lines: list[RenderableType] = [table, Text()]
    missed = [each for each in test.counted if not each.located]
    if missed:
        lines.append(Text("Not caught, or not located:", style="bold"))
        lines += [Text(f"  {each.name}: {verdict(each)}") for each in missed]
    if idle := [each for each in test.outcomes if each.idle]:
        lines.append(Text("Idle, and not counted: ", style="bold") + Text("; ".join(each.name for each in idle)))
    lines += [Text(f"Left out: {name}, {why}", style="bold yellow") for name, why in test.left_out.items()]
    lines.append(
        Text(
            f"{len(test.false_alarms)} false alarms in {len(test.alarms)} checks of correct ports; "
            f"{test.duration_s:.0f} s in all",
            style="bold red" if test.false_alarms else "bold",
        )
    )
    lines += [Text(f"  {each.specimen}, seed {each.seed}: {each.told}") for each in test.false_alarms]
    return Lines(*lines)


def row(table: Table, name: str, outcomes: Sequence[Outcome], style: str = "") -> None:
    """Adds the counts of these outcomes."""
    counted = [each for each in outcomes if not each.idle]

    def share(of: Iterable[bool]) -> Text:
        count = sum(of)
        return Text(str(count), style="" if count == len(counted) else "yellow")

    table.add_row(
        name,
        str(len(counted)),
        share(each.caught for each in counted),
        share(each.located for each in counted),
        share(each.first_right for each in counted),
        str(sum(each.explained for each in counted)),
        str(sum(each.explained_wrongly for each in counted) or ""),
        str(len(outcomes) - len(counted) or ""),
        style=style,
    )
