"""What users type: the commands with their arguments, and the entry point."""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .choosing import choose, sizes_of
from .options import (
    BudgetS,
    Cases,
    Device,
    Dtypes,
    Everything,
    Floors,
    Folder,
    Minutes,
    Modes,
    OneProcess,
    OptionalFolder,
    Processes,
    Quick,
    Rows,
    Seed,
    SelfTest,
    Sweep,
    Tags,
    TimeS,
)
from .running import run_plan, run_self_test, verify_certificate
from .telling import FAILURE, INTERRUPTED, errors, open_console, output_told, show

DEFAULT_FOLDER = Path("reports/latest")
MAIN_MINUTES = 6.5  # of the main cases: with the installation eight

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Is the JAX/Flax port the same as the eager PyTorch original, and how fast is each way of running them?",
    epilog="Start with: graphmode compare. Exit codes: 0 all equal, precise and as expected; 1 something is not; "
    "2 wrong use.",
)


@app.command("list")
def list_cases(tag: Tags = None) -> None:
    """Show the cases of the zoo: the graph-mode technique of each, its size, and where its weights are."""
    with errors():
        from .listing import table

        show(open_console(), table(choose([], tag or [], everything=True)))


@app.command()
def check(
    cases: Cases = None,
    tag: Tags = None,
    everything: Everything = False,
    device: Device = "auto",
    dtype: Dtypes = None,
    seed: Seed = 0,
    quick: Quick = False,
    steps: Annotated[
        int, typer.Option("--steps", "-n", help="Also train in lockstep for so many.", min=0, show_default="none")
    ] = 0,
    modules: Annotated[
        bool,
        typer.Option(
            "--modules",
            help="List which module of the port stands for which, and the error that each inherits and introduces.",
        ),
    ] = False,
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
    from graphmode.compare.speed.environment import spin_briefly

    spin_briefly()
    if self_test:
        run_self_test(cases or [], quick=quick, seed=seed, out=out)
    if verify is not None:
        verify_certificate(verify, cases, tag)
        return
    plans: dict[str, Any] = {"device": device, "dtypes": tuple(dtype or ()), "seed": seed, "quick": quick}
    run_plan(cases, tag, out, everything=everything, speed=False, steps=steps, modules=modules, shrink=shrink, **plans)


@app.command()
def bench(
    cases: Cases = None,
    row: Rows = None,
    tag: Tags = None,
    everything: Everything = False,
    device: Device = "auto",
    dtype: Dtypes = None,
    mode: Modes = None,
    sweep: Sweep = "",
    seed: Seed = 0,
    quick: Quick = False,
    budget: BudgetS = None,
    time: TimeS = None,
    processes: Processes = None,
    minutes: Minutes = None,
    one_process: OneProcess = False,
    floors: Floors = True,
    out: OptionalFolder = None,
) -> None:
    """Time every way of running, each after it has passed the parity check."""
    run_plan(
        cases,
        tag,
        out,
        everything=everything,
        rows=tuple(row or ()),
        device=device,
        dtypes=tuple(dtype or ()),
        modes=tuple(mode or ()),
        sweep=sizes_of(sweep),
        seed=seed,
        quick=quick,
        prepare_s=budget,
        time_s=time,
        processes=processes,
        within_s=None if minutes is None else 60 * minutes,
        isolate=not one_process,
        floors=floors,
    )


@app.command()
def compare(
    cases: Cases = None,
    row: Rows = None,
    tag: Tags = None,
    everything: Everything = False,
    device: Device = "auto",
    dtype: Dtypes = None,
    mode: Modes = None,
    sweep: Sweep = "",
    seed: Seed = 0,
    quick: Quick = False,
    budget: BudgetS = None,
    time: TimeS = None,
    processes: Processes = None,
    minutes: Minutes = None,
    one_process: OneProcess = False,
    floors: Floors = True,
    out: Folder = DEFAULT_FOLDER,
) -> None:
    """The main job: parity and speed of every case, and the report."""
    if minutes is None and not (cases or tag or everything):
        minutes = MAIN_MINUTES
    bench(
        *(cases, row, tag, everything, device, dtype, mode, sweep, seed, quick),
        *(budget, time, processes, minutes),
        *(one_process, floors, out),
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
    with errors():
        from graphmode.compare.report import prepare_folder
        from graphmode.compare.report.terminal import page_view
        from graphmode.compare.speed.environment import choose_device
        from graphmode.compare.training import as_training, kinds_of, run_training, write_training

        training = as_training(case)
        folder = prepare_folder(out or Path("reports/train") / training.name)
        console = open_console()
        result = run_training(
            training,
            steps=steps,
            seed=seed,
            device=choose_device(device),
            kinds=kinds_of(row),
            told=lambda text: console.print(text, style="dim", highlight=False),
        )
        if result.interrupted:
            console.print("interrupted; what there is is kept", style="bold")
        page, written = write_training(result, folder)
        console.print(page_view(page))
        for path in written:
            console.print(f"wrote {path}", soft_wrap=True)
    if result.interrupted:
        raise typer.Exit(INTERRUPTED)
    if not result.passed:
        raise typer.Exit(FAILURE)


@app.command()
def draft(
    original: Annotated[
        str,
        typer.Argument(
            metavar="FILE:NAME",
            help="path/to/file.py:NAME or package.module:NAME of a torch.nn.Module that takes no arguments, or of a "
            "function that gives one.",
        ),
    ],
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            "-i",
            metavar="SHAPE",
            help="Of each positional argument: 8,3,32,32, 8,128:1000 for integers below 1000, 8,128:bool for a mask; "
            "may be repeated.",
            show_default="none, and a line to fill in",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="The file to write, in the original's folder, since it imports it.",
            show_default="FILE_port.py beside it",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    """Draft the port of an eager model, and its case: what JAX writes otherwise is marked, line by line."""
    with errors():
        from graphmode.compare.draft import draft as drafted
        from graphmode.compare.draft import written_to

        path = written_to(original, out)
        if path.exists() and not force:
            raise typer.BadParameter(f"{path} is there already; give --out, or --force to write over it")
        made = drafted(original, tuple(given or ()))
        path.write_text(made.text)
        console = open_console()
        console.print(f"wrote {path}: {', '.join(made.classes)}", soft_wrap=True)
        if made.lines:
            console.print(f"marked TODO: {path}:{', '.join(map(str, made.lines))}", soft_wrap=True)
        if made.starts_otherwise:
            console.print("initial values are not drafted: the weights are loaded from the original", soft_wrap=True)
        if made.draws:
            told = "it draws random numbers: where a check refuses the original for that, give both sides what is drawn"
            console.print(told, soft_wrap=True)
        if made.unseen:
            told = (
                "the original was not run to its end, so what it writes in place through other names is not all marked"
            )
            console.print(f"{told}: {made.unseen}", soft_wrap=True)
        check_it = f"graphmode check {path}:CASE"
        console.print(
            f"next: {check_it}" if made.lines else f"no line is marked TODO; check it: {check_it}", soft_wrap=True
        )


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
    with errors():
        from graphmode.compare.report import Results, changes_page, prepare_folder, write_changes, write_pages
        from graphmode.compare.report.terminal import page_view

        paths = results or [DEFAULT_FOLDER / "results.json"]
        if len(paths) > 2:
            raise typer.BadParameter(f"{len(paths)} results files came; give one, or two to compare")
        loaded = [Results.load(path) for path in paths]
        console = open_console()
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
    from graphmode.compare.early_exit import exits_told
    from graphmode.compare.interrupt import remembered
    from graphmode.memory import keep_freed_memory

    keep_freed_memory()
    # a crash of a framework is told even while what it prints is caught
    apart = os.fdopen(os.dup(2) if sys.stderr is not None else os.open(os.devnull, os.O_WRONLY), "w")
    faulthandler.enable(apart)
    try:
        with output_told(), remembered(), exits_told(apart):
            app()
    except SystemExit as ended:
        if ended.code == INTERRUPTED:  # while threads still compile, whose end with the interpreter aborts the process
            atexit._run_exitfuncs()
            for stream in filter(None, (sys.stdout, sys.stderr)):
                with contextlib.suppress(OSError, ValueError):  # a pipe that nobody reads, or one that is closed
                    stream.flush()
            os._exit(INTERRUPTED)
        raise
