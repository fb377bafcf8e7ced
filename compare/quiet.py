"""What models print while the harness runs them is kept apart from what the harness says."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator


class Printed:
    """What was printed inside a `quiet` block; filled when it ends."""

    text: str = ""


@contextlib.contextmanager
def quiet() -> Iterator[Printed]:
    """Catches standard output and error, Python's (`jax.debug.print`, what an exporter logs) and C++'s (a print in
    TorchScript); mutes warnings."""
    printed = Printed()
    python = io.StringIO()
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        saved = {number: os.dup(number) for number in (1, 2)}
        for number in saved:
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
            file.seek(0)
            printed.text = file.read().decode(errors="replace") + python.getvalue()
