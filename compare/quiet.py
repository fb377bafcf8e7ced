"""What models print while the harness runs them is kept apart from what the harness says."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from typing import IO


class Printed:
    """What was printed inside a `quiet` block; filled when it ends.

    Attributes:
      text: all of it.
      lines: how many lines went to standard output.
    """

    text: str = ""
    lines: int = 0


@contextlib.contextmanager
def quiet() -> Iterator[Printed]:
    """Catches standard output and error, Python's (`jax.debug.print`, what an exporter logs) and C++'s (a print in
    TorchScript); mutes warnings."""
    printed = Printed()
    python = io.StringIO()
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        saved = {number: os.dup(number) for number in (1, 2)}
        for number, file in ((1, out), (2, err)):
            os.dup2(file.fileno(), number)
        try:
            with contextlib.redirect_stdout(python):
                yield printed
        finally:
            if "jax" in sys.modules:
                sys.modules["jax"].effects_barrier()
            sys.stderr.flush()
            for number, copy in saved.items():
                os.dup2(copy, number)
                os.close(copy)
            to_out = _read(out) + python.getvalue()
            printed.text, printed.lines = _read(err) + to_out, len(to_out.splitlines())


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
