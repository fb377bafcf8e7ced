"""The `graphmode` command. The wings are imported when a command needs them."""

from __future__ import annotations

import faulthandler
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TextIO

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from graphmode.compare import Case
    from graphmode.compare.comparison import Listener, Plan
    from graphmode.compare.report import Results

DEFAULT_FOLDER = Path("reports/latest")
USAGE, FAILURE, INTERRUPTED = 2, 1, 130

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Is the JAX/Flax port the same as the eager PyTorch original, and how fast is each way of running them?",
    epilog="Start with: graphmode compare. Exit codes: 0 all equal, precise and as expected; 1 something is not; "
    "2 wrong use.",
)

Cases = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[CASE]...",
        help="Names or patterns of the zoo ('graphmode list'), path/to/file.py:NAME or package.module:NAME. "
        "The whole zoo where none is given.",
        show_default=False,
    ),
]
Rows = Annotated[
    list[str] | None,
    typer.Option("--row", "-r", help="Only these ways of running, as 'jax.*'; may be repeated.", show_default=False),
]
Tags = Annotated[
    list[str] | None, typer.Option("--tag", "-t", help="Only cases with this tag; may be repeated.", show_default=False)
]
Device = Annotated[str, typer.Option(help="auto, cpu or gpu; auto takes a GPU that both frameworks see.")]
Seed = Annotated[int, typer.Option(help="Of weights, inputs and cotangents; the same seed repeats a run.", min=0)]
Quick = Annotated[bool, typer.Option("--quick", help="Shorter budgets for each cell: rough times, sooner.")]
BudgetS = Annotated[
    float | None,
    typer.Option(
        "--budget",
        help="Seconds that each cell may take to compile and be checked, also where its case gives it less.",
        min=1,
        show_default="30; quick: 15",
    ),
]
Dtypes = Annotated[
    list[str] | None,
    typer.Option(
        "--dtype",
        help="float32, bfloat16 or, on a GPU, tf32: what people run; may be repeated.",
        show_default="float32",
    ),
]
Modes = Annotated[
    list[str] | None,
    typer.Option(
        "--mode",
        "-m",
        help="Only inference, forward_backward or train_step is timed; may be repeated.",
        show_default="what the case has",
    ),
]
Sweep = Annotated[
    str,
    typer.Option(
        help="Batch sizes, as 1,8,64, at which the fastest rows of a case with a sweep are timed too.",
        show_default="none",
    ),
]
TimeS = Annotated[
    float | None,
    typer.Option(
        "--time",
        help="Seconds of timed calls for each cell: more of them tell smaller differences.",
        min=0.01,
        show_default="0.4; quick: 0.25",
    ),
]
Processes = Annotated[
    int | None,
    typer.Option(
        help="That each contender for the fastest row is timed in.",
        min=1,
        max=20,
        show_default="2 where that is soon done",
    ),
]
OneProcess = Annotated[
    bool, typer.Option("--one-process", help="Run every row in this process, where a debugger reaches it.")
]
SelfTest = Annotated[
    bool,
    typer.Option(
        "--self-test",
        help="Check the check: plant porting bugs into small correct ports, and count those caught, located and "
        "explained. CASE then names kinds of bugs or ports.",
    ),
]
Folder = Annotated[Path, typer.Option("--out", "-o", help="Where results.json, report.md and report.html go.")]
OptionalFolder = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="Also write results.json, certificate.json, report.md and report.html there.",
        show_default=False,
    ),
]


@app.command("list")
def list_cases(tag: Tags = None) -> None:
    """Show the cases of the zoo and the graph-mode technique that each shows."""
    with _errors():
        from graphmode.models import zoo

        table = Table(box=None, pad_edge=False)
        for heading in ("case", "variants", "what it shows", "tags"):
            table.add_column(heading, no_wrap=heading == "case")
        for name in zoo.CASES:
            case = zoo.load(name)
            if not tag or set(tag) & set(case.tags):
                table.add_row(name, ", ".join(case.models), case.summary, ", ".join(case.tags))
        _console().print(table)


@app.command()
def check(
    cases: Cases = None,
    tag: Tags = None,
    device: Device = "auto",
    dtype: Dtypes = None,
    seed: Seed = 0,
    quick: Quick = False,
    steps: Annotated[
        int, typer.Option("--steps", "-n", help="Also train in lockstep for so many.", min=0, show_default="none")
    ] = 0,
    shrink: Annotated[
        Path | None,
        typer.Option(help="Folder for a small script that shows what is wrong, of each port.", show_default="none"),
    ] = None,
    self_test: SelfTest = False,
    out: OptionalFolder = None,
    verify: Annotated[
        Path | None,
        typer.Option(
            "--verify",
            help="A certificate.json that --out wrote: check again as it says, and say what differs from it.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Check that ports are equal (float64) and precise (float32): outputs, gradients, buffers."""
    if self_test:
        _self_test(cases or [], quick=quick, seed=seed, out=out)
    if verify is not None:
        _verify(verify, cases, tag)
        return
    plans: dict[str, Any] = {"device": device, "dtypes": tuple(dtype or ()), "seed": seed, "quick": quick}
    _main(cases, tag, out, speed=False, steps=steps, shrink=shrink, **plans)


@app.command()
def bench(
    cases: Cases = None,
    row: Rows = None,
    tag: Tags = None,
    device: Device = "auto",
    dtype: Dtypes = None,
    mode: Modes = None,
    sweep: Sweep = "",
    seed: Seed = 0,
    quick: Quick = False,
    budget: BudgetS = None,
    time: TimeS = None,
    processes: Processes = None,
    one_process: OneProcess = False,
    out: OptionalFolder = None,
) -> None:
    """Time every way of running, each after it has passed the parity check."""
    _main(
        cases,
        tag,
        out,
        rows=tuple(row or ()),
        device=device,
        dtypes=tuple(dtype or ()),
        modes=tuple(mode or ()),
        sweep=_sizes(sweep),
        seed=seed,
        quick=quick,
        prepare_s=budget,
        time_s=time,
        processes=processes,
        isolate=not one_process,
    )


@app.command()
def compare(
    cases: Cases = None,
    row: Rows = None,
    tag: Tags = None,
    device: Device = "auto",
    dtype: Dtypes = None,
    mode: Modes = None,
    sweep: Sweep = "",
    seed: Seed = 0,
    quick: Quick = False,
    budget: BudgetS = None,
    time: TimeS = None,
    processes: Processes = None,
    one_process: OneProcess = False,
    out: Folder = DEFAULT_FOLDER,
) -> None:
    """The main job: parity and speed of every case, and the report."""
    bench(
        *(cases, row, tag, device, dtype, mode, sweep),
        *(seed, quick, budget, time, processes, one_process, out),
    )


@app.command()
def train(
    case: Annotated[
        str,
        typer.Argument(
            metavar="CASE_OR_FILE",
            help="A training of the zoo (double_sine, digits, characters), path/to/file.py:NAME or package.module:NAME "
            "of a Training or of a Case with an optimizer and a loss, or such a case of the zoo.",
        ),
    ],
    steps: Annotated[
        int | None, typer.Option("--steps", "-n", help="How many.", min=1, show_default="the training's own")
    ] = None,
    row: Annotated[
        list[str] | None,
        typer.Option(
            "--row",
            "-r",
            help="Ways of running PyTorch's step: torch.eager, torch.compile, torch.cudagraph; may be repeated.",
            show_default="all that the device has",
        ),
    ] = None,
    device: Device = "auto",
    seed: Seed = 0,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Where training.json and the page go.", show_default="reports/train/NAME"),
    ] = None,
) -> None:
    """Train a script and its PyTorch twin over the same batches, and plot both loss curves."""
    with _errors():
        from graphmode.compare.report import prepare_folder
        from graphmode.compare.report.terminal import page_view
        from graphmode.compare.speed.environment import choose_device
        from graphmode.compare.training import as_training, kinds_of, run_training, write_training

        training = as_training(case)
        folder = prepare_folder(out or Path("reports/train") / training.name)
        console = _console()
        result = run_training(
            training,
            steps=steps,
            seed=seed,
            device=choose_device(device),
            kinds=kinds_of(row),
            told=lambda text: console.print(text, style="dim", highlight=False),
        )
        page, written = write_training(result, folder)
        console.print(page_view(page))
        for path in written:
            console.print(f"wrote {path}", soft_wrap=True)
    if not result.passed:
        raise typer.Exit(FAILURE)


@app.command()
def report(
    results: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RESULTS] [LATER]",
            help="A results.json, of an interrupted run too; or two of them, the earlier run first.",
            show_default=str(DEFAULT_FOLDER / "results.json"),
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Folder for the pages. Of one run: beside the file; of two: none where it is not given."
        ),
    ] = None,
) -> None:
    """Of one results.json: make report.md and report.html. Of two: what got faster or slower, beyond noise."""
    with _errors():
        from graphmode.compare.report import Results, changes_page, prepare_folder, write_changes, write_pages
        from graphmode.compare.report.terminal import page_view

        paths = results or [DEFAULT_FOLDER / "results.json"]
        if len(paths) > 2:
            raise typer.BadParameter(f"{len(paths)} results files came; give one, or two to compare")
        loaded = [Results.load(path) for path in paths]
        console = _console()
        if len(paths) == 1:
            written = write_pages(loaded[0], prepare_folder(out or paths[0].parent))
        else:
            page = changes_page(loaded[0], loaded[1], names=(str(paths[0]), str(paths[1])))
            console.print(page_view(page))
            written = [write_changes(page, out)] if out else []
        for path in written:
            console.print(f"wrote {path}", soft_wrap=True)


def main() -> None:
    """Entry point of the `graphmode` command."""
    from graphmode.compare.interrupt import remembered
    from graphmode.compare.speed.environment import settle

    settle()
    # a crash of a framework is told even while what it prints is caught
    faulthandler.enable(os.fdopen(os.dup(2), "w"))
    with remembered():
        app()


def _main(
    names: list[str] | None,
    tags: list[str] | None,
    out: Path | None,
    *,
    device: str,
    dtypes: tuple[str, ...],
    **plans: Any,
) -> None:
    """Makes the plan, whose other fields are `plans`, and runs it."""
    with _errors():
        from graphmode.compare.comparison import Plan
        from graphmode.compare.report import prepare_folder

        chosen = _choose(names or [], tags or [])
        folder = prepare_folder(out) if out is not None else None
        plan = Plan(device=device, dtypes=tuple(dict.fromkeys(dtypes)) or ("float32",), **plans)
        _run(chosen, plan, folder)


def _self_test(only: list[str], *, quick: bool, seed: int, out: Path | None) -> NoReturn:
    with _errors():
        from graphmode.compare.parity.mutations.command import self_test
        from graphmode.compare.report import prepare_folder

        folder = prepare_folder(out) if out is not None else None
        passed = self_test(_console(), quick=quick, seed=seed, out=folder, only=only)
    raise typer.Exit(0 if passed else FAILURE)


def _run(cases: dict[str, Case], plan: Plan, folder: Path | None) -> None:
    """Runs, prints while it runs, writes the pages, and exits with the design's code."""
    from graphmode.compare.comparison import run
    from graphmode.compare.report import CERTIFICATE, Results, write_pages
    from graphmode.compare.report.terminal import summary

    gc.freeze()  # what is imported stays: a collection between cases need not walk it
    console = _console()
    save_to = folder / "results.json" if folder else None
    interrupted = False
    with console.status("starting") if console.is_terminal else nullcontext() as status:
        listener = _listener(console, status, len(cases))
        try:
            locations = [_location(text) for text in cases]
            results: Results = run(cases.values(), plan, listener=listener, save_to=save_to, locations=locations)
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


def _verify(path: Path, names: list[str] | None, tags: list[str] | None) -> None:
    """Holds cases against a certificate; exit code 1 where weights, inputs, overrides or verdicts differ, or where the
    certificate itself is one of a failure."""
    with _errors():
        from graphmode.compare.parity.certificate import verify
        from graphmode.compare.report import Certificate

        certified = Certificate.load(path)
        console, holds = _console(), True
        for case in _choose(names or [each.case for each in certified.cases], tags or []).values():
            found = verify(certified, case)
            differs = [each for each in found if not each.is_of_environment]
            passed = all(each.passed for each in certified.of(case.name))
            holds = holds and passed and not differs
            verdict = "differs from the certificate" if differs else "as certified"
            verdict += "" if passed else "; the certificate is one of a failure"
            console.print(f"{case.name}: {verdict}", style="green" if passed and not differs else "bold red")
            for each in found:
                style = "yellow" if each.is_of_environment else "red"
                console.print(f"- {each}", style=style, markup=False, highlight=False)
    if not holds:
        raise typer.Exit(FAILURE)


def _listener(console: Console, status: object, total: int) -> Listener:
    from graphmode.compare.comparison import Listener
    from graphmode.compare.report.terminal import parity_text, speed_table

    start, seen = perf_counter(), iter(range(1, total + 1))

    def on_case(case: Case) -> None:
        console.print()
        console.print(f"[bold]{case.name}[/bold] ({next(seen)} of {total}, {perf_counter() - start:.0f} s): ", end="")
        console.print(case.summary, markup=False)

    def on_step(text: str) -> None:
        if status is not None:
            status.update(text)  # type: ignore[attr-defined]

    return Listener(
        on_case=on_case,
        on_step=on_step,
        on_parity=lambda parity: console.print(parity_text(parity)),
        on_told=lambda text: console.print(text, markup=False, highlight=False, soft_wrap=True),
        on_cells=lambda cells: console.print(speed_table(cells[0].case, cells[0].mode, cells)) if cells else None,
        on_problem=lambda info: console.print(info.problem, style="bold red", markup=False),
    )


def _sizes(text: str) -> tuple[int, ...]:
    """`1,8,64` as numbers."""
    try:
        sizes = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        sizes = (0,)
    if any(size < 1 for size in sizes):
        raise typer.BadParameter(f"--sweep is {text!r}; give batch sizes from 1 on with commas between them, as 1,8,64")
    return tuple(dict.fromkeys(sizes))


def _location(text: str) -> str:
    from graphmode.models import zoo

    return zoo.CASES.get(text, text)


def _choose(names: list[str], tags: list[str]) -> dict[str, Case]:
    """The cases by what names them (the zoo's names, files, modules), in order, once each."""
    from fnmatch import fnmatchcase

    from graphmode.compare.locate import is_location, locate
    from graphmode.models import zoo

    chosen: dict[str, Case] = {}
    for text in names or ["*"]:
        if any(char in text for char in "*?[") and (matching := [n for n in zoo.CASES if fnmatchcase(n, text)]):
            chosen.update({name: zoo.load(name) for name in matching})
        elif text not in zoo.CASES and is_location(text):
            chosen[text] = locate(text)
        else:
            chosen[text] = zoo.load(text)
    kept = {text: case for text, case in chosen.items() if not tags or set(tags) & set(case.tags)}
    if not kept:
        known = sorted({tag for case in chosen.values() for tag in case.tags})
        raise typer.BadParameter(f"no case has the tag {', '.join(tags)}; the tags are {', '.join(known) or 'none'}")
    return kept


@contextmanager
def _errors() -> Iterator[None]:
    """What a user can mend becomes one message and exit code 2, without a traceback."""
    try:
        yield
    except ImportError as error:
        message = str(error)
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            message = "PyTorch is not installed, and the harness compares with it: pip install 'graphmode[compare]'"
        _refuse(message)
    except ValueError as error:
        if not isinstance(error, _user_errors()):
            raise
        _refuse(str(error))


def _refuse(message: str) -> NoReturn:
    typer.echo(f"graphmode: {message}", err=True)
    raise typer.Exit(USAGE) from None


def _user_errors() -> tuple[type[ValueError], ...]:
    from graphmode.compare import CaseError
    from graphmode.compare.dtypes import DtypeError
    from graphmode.compare.report import ResultsError
    from graphmode.compare.speed.environment import DeviceError
    from graphmode.compare.speed.rows import RowError
    from graphmode.weights import WeightsError

    return CaseError, WeightsError, ResultsError, DeviceError, DtypeError, RowError


def _console() -> Console:
    """Writes to standard output even while what models print there is caught."""
    stdout: TextIO = sys.stdout
    if stdout is sys.__stdout__:
        terminal = stdout.isatty()
        file = os.fdopen(os.dup(1), "w", buffering=1, encoding=stdout.encoding)
        return Console(file=file, force_terminal=terminal or None, width=None if terminal else 120)
    return Console(width=120)
