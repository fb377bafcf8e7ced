"""A plan run in front of a user: progress while it runs, pages at its end, and the exit code."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from rich.console import Console
from rich.text import Text

from .choosing import choose, location
from .telling import FAILURE, INTERRUPTED, USAGE, errors, open_console, show

if TYPE_CHECKING:
    from graphmode.compare import Case
    from graphmode.compare.plan import Listener, Plan
    from graphmode.compare.report import Results
    from graphmode.compare.report.records import Parity

QUIET_S = 10.0  # after which a line says what is being done, where no terminal shows it


def run_plan(
    names: list[str] | None,
    tags: list[str] | None,
    out: Path | None,
    *,
    everything: bool,
    device: str,
    dtypes: tuple[str, ...],
    **plans: Any,
) -> None:
    """Makes the plan, whose other fields are `plans`, and runs it."""
    with errors():
        from graphmode.compare.plan import Plan
        from graphmode.compare.report import prepare_folder
        from graphmode.models import zoo

        refused: dict[str, str] = {}
        chosen = choose(names or [], tags or [], everything=everything, refused=refused)
        folder = prepare_folder(out) if out is not None else None
        plan = Plan(device=device, dtypes=tuple(dict.fromkeys(dtypes)) or ("float32",), usual_s=zoo.MAIN, **plans)
        left = len(zoo.CASES) - len(chosen) if not names and not tags else 0
        _run(chosen, plan, folder, left=left, refused=refused)


def run_self_test(only: list[str], *, quick: bool, seed: int, out: Path | None) -> NoReturn:
    with errors():
        from graphmode.compare.parity.mutations.command import self_test
        from graphmode.compare.report import prepare_folder

        folder = prepare_folder(out) if out is not None else None
        passed = self_test(open_console(), quick=quick, seed=seed, out=folder, only=only)
    raise typer.Exit(0 if passed else FAILURE)


def _run(cases: dict[str, Case], plan: Plan, folder: Path | None, *, left: int, refused: dict[str, str]) -> None:
    """Runs, prints while it runs, writes the pages, and exits with the design's code."""
    from graphmode.compare.comparison import run
    from graphmode.compare.report import CERTIFICATE, Results, write_pages
    from graphmode.compare.report.terminal import summary

    gc.freeze()  # what is imported stays: a collection between cases need not walk it
    console = open_console()
    save_to = folder / "results.json" if folder else None
    interrupted = False
    with console.status("starting") if console.is_terminal else nullcontext() as status:
        listener = _listener(console, status, len(cases), modules=plan.modules)
        try:
            locations = [location(text) for text in cases]
            results: Results = run(
                cases.values(), plan, listener=listener, save_to=save_to, locations=locations, refused=refused
            )
        except KeyboardInterrupt:
            interrupted = True
    if interrupted:
        console.print("interrupted; what had finished is kept" if save_to else "interrupted", style="bold")
        if save_to is None or not save_to.exists():
            raise typer.Exit(INTERRUPTED)
        results = Results.load(save_to)
    if not interrupted or results.cells or results.parity:
        console.print()
        console.print(summary(results))
    if left:
        console.print(f"{left} more cases of the zoo with --all; graphmode list shows them")
    if folder is not None:
        certificate = [folder / CERTIFICATE] if results.certificate is not None else []
        if results.certificate is not None:
            results.certificate.save(*certificate)
        for path in (folder / "results.json", *certificate, *write_pages(results, folder)):
            console.print(f"wrote {path}", soft_wrap=True)
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if results.problems:
        raise typer.Exit(USAGE)
    raise typer.Exit(0 if results.passed else FAILURE)


def verify_certificate(path: Path, names: list[str] | None, tags: list[str] | None) -> None:
    """Holds cases against a certificate; exit code 1 where weights, inputs, overrides or verdicts differ, or where the
    certificate itself is one of a failure."""
    with errors():
        from graphmode.compare.parity.certificate import verify
        from graphmode.compare.report import Certificate

        certified = Certificate.load(path)
        console, holds = open_console(), True
        for case in choose(names or [each.case for each in certified.cases], tags or []).values():
            found = verify(certified, case)
            differs = [each for each in found if not each.is_of_environment]
            passed = all(each.passed for each in certified.of(case.name))
            holds = holds and passed and not differs
            verdict = "differs from the certificate" if differs else "as certified"
            verdict += "" if passed else "; the certificate is one of a failure"
            console.print(f"{case.name}: {verdict}", style="green" if passed and not differs else "bold red")
            for each in found:
                style = "yellow" if each.is_of_environment else "red"
                console.print(f"- {each}", style=style, highlight=False)
    if not holds:
        raise typer.Exit(FAILURE)


def _listener(console: Console, status: object, total: int, *, modules: bool) -> Listener:
    from graphmode.compare.plan import Listener
    from graphmode.compare.report.terminal import modules_table, parity_text, speed_table
    from graphmode.compare.report.wording import plain

    start, seen = perf_counter(), iter(range(1, total + 1))
    told = [start]  # when something was printed last

    def on_case(case: Case) -> None:
        console.print()
        console.print(plain(case.name), style="bold", end=" ")
        console.print(f"({next(seen)} of {total}, {perf_counter() - start:.0f} s): {plain(case.summary)}")
        told[0] = perf_counter()

    def on_step(text: str) -> None:
        if status is not None:
            status.update(Text(plain(text)))  # type: ignore[attr-defined]
        elif perf_counter() - told[0] > QUIET_S:
            console.print(f"... {text}", style="dim", highlight=False)
            told[0] = perf_counter()

    def on_parity(parity: Parity) -> None:
        console.print(parity_text(parity))
        told[0] = perf_counter()
        if modules and parity.modules:
            show(console, modules_table(parity))

    return Listener(
        on_case=on_case,
        on_step=on_step,
        on_parity=on_parity,
        on_told=lambda text: console.print(text, highlight=False, soft_wrap=True),
        on_cells=lambda cells: show(console, speed_table(cells[0].case, cells[0].mode, cells)) if cells else None,
        on_problem=lambda info: console.print(info.problem, style="bold red"),
    )
