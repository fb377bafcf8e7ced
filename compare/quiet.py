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
    """Catches standard output, Python's (`jax.debug.print`) and C++'s (a print in TorchScript); mutes warnings."""
    printed = Printed()
    python = io.StringIO()
    sys.stdout.flush()
    with tempfile.TemporaryFile() as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        saved = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            with contextlib.redirect_stdout(python):
                yield printed
        finally:
            if "jax" in sys.modules:
                sys.modules["jax"].effects_barrier()
            os.dup2(saved, 1)
            os.close(saved)
            file.seek(0)
            printed.text = file.read().decode(errors="replace") + python.getvalue()
