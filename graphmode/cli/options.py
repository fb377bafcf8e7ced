"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Cases = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[CASE]...",
        help="Names or patterns of the zoo ('graphmode list'), path/to/file.py:NAME or package.module:NAME. "
        "The main cases of the zoo where none is given.",
        show_default=False,
    ),
]
Everything = Annotated[bool, typer.Option("--all", help="The whole zoo, beyond its main cases.")]
Rows = Annotated[
    list[str] | None,
    typer.Option("--row", "-r", help="Only these ways of running, as 'jax.*'; may be repeated.", show_default=False),
]
Tags = Annotated[
    list[str] | None, typer.Option("--tag", "-t", help="Only cases with this tag; may be repeated.", show_default=False)
]
Device = Annotated[str, typer.Option(help="auto, cpu or gpu; auto takes a GPU that both frameworks see.")]
Seed = Annotated[
    int,  # of a generator of JAX's, which takes 64 bits
    typer.Option(help="Of weights, inputs and cotangents; the same seed repeats a run.", min=0, max=2**63 - 1),
]
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
Floors = Annotated[
    bool,
    typer.Option("--floors/--no-floors", help="Measure what this machine can do at best, too."),
]
Minutes = Annotated[
    float | None,
    typer.Option(
        help="In which the run shall end: a case that would not, by the longest before it, is left out and named.",
        min=0.01,
        show_default="6.5 where no case is named; else as long as it takes",
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
