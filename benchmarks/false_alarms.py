"""Checks correct ports again and again with other weights and inputs: nobody right may be accused.

    python benchmarks/false_alarms.py --seeds 20            # the zoo and the self-test's specimens
    python benchmarks/false_alarms.py bert gpt2 --seeds 5

Each line has a port, how many seeds it passed, and the time; the last one the number of false alarms, which is also
whether the exit code is 1. With `GRAPHMODE_ONEDNN=0` what a port compiles is read from a cache from its second seed
on, and XLA's own operations run; without it those of oneDNN, as users have them.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Annotated

import jax
import typer
from graphmode.compare import Case, check
from graphmode.compare.parity.mutations.specimens import SPECIMENS, specimen
from graphmode.compare.release import release
from graphmode.models import zoo


def alarms(name: str, build: Callable[[], Case], seeds: int, first: int) -> list[tuple[int, str]]:
    """The seeds with which a port was accused, with the report; each is told on the error stream as it is done."""
    found = []
    for seed in range(first, first + seeds):
        start = time.perf_counter()
        report = check(build(), seed=seed)
        if not report.passed:
            found.append((seed, str(report)))
        took = time.perf_counter() - start
        print(f"{name}, seed {seed}: {'passed' if report.passed else 'ACCUSED'}, {took:.0f} s", file=sys.stderr)
        release()
    return found


def main(
    cases: Annotated[list[str] | None, typer.Argument(help="Names of ports, with shell wildcards; all.")] = None,
    seeds: Annotated[int, typer.Option(help="For each port.", min=1)] = 20,
    first: Annotated[int, typer.Option(help="The first of them.")] = 0,
) -> None:
    """Checks every port with many seeds."""
    known: dict[str, Callable[[], Case]] = {
        **{name: lambda name=name: zoo.load(name) for name in zoo.CASES},
        **{f"specimen {name}": lambda name=name: specimen(name) for name in SPECIMENS},
    }
    chosen = [name for name in known if not cases or any(fnmatchcase(name, pattern) for pattern in cases)]
    if not chosen:
        raise typer.BadParameter(f"cases is {cases}, and no port is called so; there are {', '.join(known)}")
    total = 0
    with tempfile.TemporaryDirectory() as folder:
        if os.environ.get("GRAPHMODE_ONEDNN") == "0":
            jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
        for name in chosen:
            start = time.perf_counter()
            found = alarms(name, known[name], seeds, first)
            total += len(found)
            print(f"{name}: {seeds - len(found)} of {seeds} passed, {time.perf_counter() - start:.0f} s", flush=True)
            for seed, report in found:
                print(f"seed {seed}:\n{report}", flush=True)
    print(f"{total} false alarms in {seeds * len(chosen)} checks of correct ports")
    raise typer.Exit(1 if total else 0)


if __name__ == "__main__":
    typer.run(main)
