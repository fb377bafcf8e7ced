"""Errors as a reader of a message or a report meets them."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import traceback
from pathlib import Path

import graphmode

from .report.wording import plain

FROM_A_CALLBACK = "error calling callback: Traceback (most recent call last)"
LONGEST = 600  # characters of one line of a report
LIBRARIES = ("jax", "jaxlib", "flax", "optax", "chex", "numpy", "torch", "torchvision", "transformers")
# of ours, all but the models, which are read as a user's
OURS = (
    str(Path(__file__).parent),
    *(
        str(Path(folder) / part)
        for folder in graphmode.__path__
        for part in ("graph", "nn", "ops", "optim", "training", "weights")
    ),
)


def describe(error: BaseException) -> str:
    """Its type and its text, files named from where Python finds them: `models/lstm/model.py`."""
    text = str(error)
    if FROM_A_CALLBACK in text:  # the traceback in it is of what runs the graph
        last = [line for line in text.splitlines() if line.strip() and not line.startswith(" ")][-1]
        return f"{_portable(last)}, raised as the graph ran"
    return f"{type(error).__name__}: {_portable(text)}"


def describe_with_line(error: BaseException) -> str:
    """The same, with the innermost line that a user wrote, `model.py:31`, where one is on the way."""
    return f"{describe(error)}{line_of(error)}"


def line_of(error: BaseException) -> str:
    """` (model.py:31)`, the innermost line that a user wrote; empty where there is none."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not is_of_a_library(f.filename)]
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""


def is_of_ours(error: BaseException) -> bool:
    """Whether it is raised by a line of this library."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and frames[-1].filename.startswith(OURS)


def what_came(value: object) -> str:
    """`int`, `the class Port`, `None`: what a callable gave in place of what was wanted."""
    if value is None:
        return "None"
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


@functools.cache
def is_of_a_library(file: str) -> bool:
    """Whether a line of this file is ours, JAX's, Flax's, PyTorch's or Python's own, and not one of a model."""
    packages = [
        folder for name in LIBRARIES if name in sys.modules for folder in getattr(sys.modules[name], "__path__", ())
    ]
    in_python = file.startswith(("<", sysconfig.get_path("stdlib"))) and "site-packages" not in file
    return in_python or file.startswith((*OURS, *packages))


def describe_briefly(error: BaseException) -> str:
    """The same in one readable line, with how much of it was left out."""
    text = " ".join(plain(describe(error)).split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ... [{len(text) - LONGEST} more characters]"


def _portable(text: str) -> str:
    """Without the folders of this machine: a report is read on another."""
    here = Path(__file__).parent.parent  # where graphmode.compare lies
    folders = {os.path.join(path, "") for path in (*sys.path, os.getcwd(), str(here)) if os.path.isabs(path)}
    for folder in sorted(folders - {os.sep}, key=len, reverse=True):
        text = text.replace(folder, "")
    return text
