"""What a run tells while it goes on: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress


class Report(Protocol):
    """Takes what there is to tell."""

    def start(self, step: int) -> None: ...

    def trained(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None: ...


@contextmanager
def reporter(progress: bool | None, *, total: int | None) -> Iterator[Report]:
    """A bar on a terminal, lines on what is none; silence for False. Both go to standard error.

    Args:
      progress: None for True.
      total: steps in all; None where that is not known.
    """
    if progress is False:
        yield _Silence()
    elif not sys.stderr.isatty():
        yield _Lines(total)
    else:
        with _bar() as bar:
            yield _Bar(bar, total)


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[told]}"),
        console=Console(stderr=True),
    )


class _Silence:
    def start(self, step: int) -> None: ...

    def trained(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None: ...


class _Lines:
    def __init__(self, total: int | None):
        self._total = total
        self._of = "" if total is None else f"/{total}"

    def start(self, step: int) -> None:
        if step and self._total is not None and step >= self._total:
            self._print(f"at step {step} of {self._total} already: nothing is left to train")
        elif step:
            self._print(f"going on from step {step}")

    def trained(self, step: int, metrics: Mapping[str, float]) -> None:
        self._print(f"step {step}{self._of}  {_told(metrics)}")

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        self._print(f"step {step}{self._of}  evaluation: {_told(metrics)}")

    def _print(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


class _Bar:
    def __init__(self, bar: Progress, total: int | None):
        self._bar = bar
        self._task = bar.add_task("training", total=total, told="")

    def start(self, step: int) -> None:
        self._bar.update(self._task, completed=step)

    def trained(self, step: int, metrics: Mapping[str, float]) -> None:
        self._bar.update(self._task, completed=step, told=_told(metrics))

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        self._bar.console.print(f"step {step}  evaluation: {_told(metrics)}")


def _told(metrics: Mapping[str, float]) -> str:
    """`loss 0.3124  accuracy 0.91  1,204 rows/s`"""
    hidden = ("steps_per_second", "rows_per_second", "epoch")
    parts = [f"{name} {value:.4g}" for name, value in metrics.items() if name not in hidden]
    if "epoch" in metrics:
        parts.insert(0, f"epoch {metrics['epoch']:.0f}")
    if "rows_per_second" in metrics:
        parts.append(f"{metrics['rows_per_second']:,.0f} rows/s")
    return "  ".join(parts)
