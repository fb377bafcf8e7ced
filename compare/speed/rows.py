"""The ways of running, one `Row` each. A row builds a `Step` for one side in one mode, or says why it cannot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from ..case import Mode

Step = Callable[[Any], Any]  # takes a placed batch, gives what `observe` names; does not synchronise


class RowError(ValueError):
    """A pattern that matches no row."""


class Unavailable(Exception):
    """This row cannot be run here, for lack of hardware or of anything to apply it to; the message says what lacks."""


@dataclass(frozen=True)
class Row:
    """One way of running a side.

    Attributes:
      name: as in `results.json`.
      framework: which side it runs.
      build: takes the side (its own copy, which it may change), the mode and a placed sample batch, and gives the step.
        Raises `Unavailable` where it cannot be tried; any other error means unsupported.
      needs_cuda: whether it exists on a CUDA device alone.
      left_out: why it is left out on a CPU unless a run names its rows; empty where it is not.
      optimises_late: whether it sets to work at the second call, and then cannot be interrupted.
    """

    name: str
    framework: Literal["torch", "jax"]
    build: Callable[[Any, Mode, Any], Step]
    needs_cuda: bool = False
    left_out: str = ""
    optimises_late: bool = False


def all_rows() -> tuple[Row, ...]:
    """Every row, PyTorch's first, in the order of the report."""
    from .exported_rows import ROWS as EXPORTED_ROWS
    from .jax_rows import ROWS as JAX_ROWS
    from .torch_rows import ROWS as TORCH_ROWS

    return (*TORCH_ROWS, *EXPORTED_ROWS, *JAX_ROWS)


ROW_NAMES = (
    "torch.eager",
    "torch.channels_last",
    "torch.trace",
    "torch.script",
    "torch.compile",
    "torch.compile.reduce_overhead",
    "torch.cudagraph",
    "torch.graphed_callables",
    "torch.compile.cudagraph",
    "torch.aoti",
    "onnxruntime",
    "jax.eager",
    "jax.nnx_jit",
    "jax.jit",
    "jax.graphed",
    "jax.graphed.no_command_buffers",
)


def selected(patterns: Sequence[str]) -> frozenset[str]:
    """The names that match any of the patterns (shell wildcards); all where there are none.

    Raises:
      RowError: for a pattern that matches no row.
    """
    if not patterns:
        return frozenset(ROW_NAMES)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in ROW_NAMES):
            raise RowError(f"no row matches {pattern!r}; the rows are {', '.join(ROW_NAMES)}")
    return frozenset(name for name in ROW_NAMES if any(fnmatchcase(name, p) for p in patterns))
