"""`graphmode check --self-test`: runs it, shows it, writes it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console

from .records import Alarm, Outcome
from .self_test import run_self_test
from .table import result_line, summary


def self_test(console: Console, *, quick: bool, seed: int, out: Path | None, only: Sequence[str] = ()) -> bool:
    """Shows progress and the table on `console`; writes `self_test.json` into `out`.

    Returns:
      Whether every plant that counts was caught, and no correct port was blamed.
    """
    with console.status("starting") if console.is_terminal else nullcontext() as status:

        def on_result(result: Outcome | Alarm, done: int, total: int) -> None:
            line = result_line(result, done, total)
            bad = not result.passed if isinstance(result, Alarm) else not (result.idle or result.located)
            if status is None or bad:
                console.print(line, soft_wrap=True)
            if status is not None:
                status.update(line)

        test = run_self_test(quick=quick, seed=seed, only=only, on_result=on_result)
    console.print()
    console.print(summary(test))
    if out is not None:
        test.save(out / "self_test.json")
        console.print(f"wrote {out / 'self_test.json'}", soft_wrap=True)
    return test.passed
