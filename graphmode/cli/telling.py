"""What a user is told: errors that can be mended, and the console."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn, TextIO

import typer
from rich.console import Console
from rich.table import Table

USAGE, FAILURE, INTERRUPTED = 2, 1, 130
BROKEN_PIPE = 141  # what a shell says of a program that wrote to a pipe that nobody reads
WIDTH = 120  # where there is no terminal


class PipeClosed(BaseException):
    """Nobody reads the output any more, as after `| head -1`. No error of a case, so that none takes it for one."""


@contextmanager
def errors() -> Iterator[None]:
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


class _Console(Console):
    def on_broken_pipe(self) -> None:
        self.quiet = True
        with open(os.devnull, "w") as nothing:  # what is still buffered goes there
            os.dup2(nothing.fileno(), self.file.fileno())
        raise PipeClosed


def show(console: Console, table: Table) -> None:
    """Prints a table: where there is no terminal with all its columns, however narrow COLUMNS is."""
    usual = console.width
    if not console.is_terminal:
        console.width = max(usual, WIDTH)
    console.print(table)
    console.width = usual


def open_console() -> Console:
    """Writes to standard output even while what models print there is caught; brackets in names are no markup."""
    stdout: TextIO = sys.stdout
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() and int(columns) else WIDTH
    if stdout is sys.__stdout__:
        terminal = stdout.isatty()
        file = os.fdopen(os.dup(1), "w", buffering=1, encoding=stdout.encoding)
        return _Console(file=file, force_terminal=terminal or None, width=None if terminal else width, markup=False)
    return Console(width=width, markup=False)
