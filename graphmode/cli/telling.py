"""What a user is told: errors that can be mended, and the console."""

from __future__ import annotations

import io
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


class OutputLost(BaseException):
    """What is printed cannot be written, as on a full disk. No error of a case, either."""


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


class _Output(io.TextIOWrapper):
    """Text whose loss ends the command, whatever runs."""

    def write(self, text: str, /) -> int:
        with self._loss_told():
            return super().write(text)

    def flush(self) -> None:
        with self._loss_told():
            super().flush()

    @contextmanager
    def _loss_told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            with open(os.devnull, "w") as nothing:  # what is still buffered goes there
                os.dup2(nothing.fileno(), self.fileno())
            raise (PipeClosed() if isinstance(error, BrokenPipeError) else OutputLost(error.strerror)) from None


def _output(stdout: TextIO) -> _Output:
    """The same standard output, even while what models print there is caught."""
    binary = os.fdopen(os.dup(1), "wb")
    return _Output(binary, encoding=stdout.encoding, errors=stdout.errors, line_buffering=True)


@contextmanager
def output_told() -> Iterator[None]:
    """Output that cannot be written ends the block, and the command, with one line on standard error; a pipe that
    nobody reads ends it without a word."""
    usual = sys.stdout
    if usual is None:
        _end("standard output is closed, and what is found is written there: send it to /dev/null to do without", USAGE)
    sys.stdout = output = _output(usual)
    try:
        try:
            yield
        finally:
            output.flush()
    except PipeClosed:
        sys.exit(BROKEN_PIPE)
    except OutputLost as error:
        _end(f"standard output cannot be written: {error}", USAGE)
    finally:
        sys.stdout = usual


def _end(message: str, code: int) -> NoReturn:
    typer.echo(f"graphmode: {message}", err=True)
    sys.exit(code)


def show(console: Console, table: Table) -> None:
    """Prints a table: where there is no terminal with all its columns, however narrow COLUMNS is."""
    usual = console.width
    if not console.is_terminal:
        console.width = max(usual, WIDTH)
    console.print(table)
    console.width = usual


def open_console() -> Console:
    """Writes to standard output even while what models print there is caught; brackets in names are no markup."""
    stdout = sys.stdout
    if stdout is sys.__stdout__ and stdout is not None:
        stdout = _output(stdout)
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() and int(columns) else WIDTH
    if isinstance(stdout, _Output):
        terminal = stdout.isatty()
        return Console(file=stdout, force_terminal=terminal or None, width=None if terminal else width, markup=False)
    return Console(width=width, markup=False)
