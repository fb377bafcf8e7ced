"""The ways of running, one `Row` each. A row builds a `Step` for one side in one mode, or says why it cannot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, Protocol

from ..case import TRAIN_STEPS, Mode, identity
from ..nearest import nearest
from ..observation import Observation

Step = Callable[[Any], Any]  # takes a placed batch, gives what `observe` names; does not synchronise


class TrainStep(Protocol):
    """The `Step` of the mode train_step: each call goes on from where the one before ended."""

    def __call__(self, batch: Any) -> Any:
        """Forward, backward and update, once or `Row.steps_per_call` times; does not synchronise."""

    def reset(self) -> None:
        """Parameters, buffers and the optimizer's state are again the first ones."""

    def observe(self, result: Any) -> Observation:
        """What the judge's `TRAIN_STEPS` steps show, given what the last of `Row.judged_calls` calls after `reset`
        gave. To be asked before the next call, which may overwrite it."""


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
      build: takes the side (its own copy, which it may change), the mode and a placed sample batch, and gives the step:
        a `TrainStep` in the mode train_step. Raises `Unavailable` where it cannot be tried; any other error means
        unsupported.
      needs_cuda: whether it exists on a CUDA device alone.
      left_out: why it is left out on a CPU unless a run names its rows; empty where it is not.
      kept_in: the modes in which it is not left out.
      is_slow_to_compile: whether that takes seconds, whatever the model.
      fills_processors: whether its compiler keeps those of a small machine busy: on a CPU it is prepared alone, last.
      again_s: the first start after which a second process is too costly, unless a run asks for it.
      steps_per_call: how many steps one call makes; a time is that of a call over this.
      pack: makes of a placed batch what the step takes; once for each batch, and not timed.
      unpack: makes of what the step gave what `observe` takes, in the modes but train_step: of several steps, one.
    """

    name: str
    framework: Literal["torch", "jax"]
    build: Callable[[Any, Mode, Any], Step]
    needs_cuda: bool = False
    left_out: str = ""
    kept_in: tuple[Mode, ...] = ()
    is_slow_to_compile: bool = False
    fills_processors: bool = False
    again_s: float = 8.0
    steps_per_call: int = 1
    pack: Callable[[Any], Any] = identity
    unpack: Callable[[Any], Any] = identity

    @property
    def judged_calls(self) -> int:
        """Calls that make the judge's `TRAIN_STEPS` steps, or the first that makes more."""
        return -(-TRAIN_STEPS // self.steps_per_call)


def all_rows() -> tuple[Row, ...]:
    """Every row, PyTorch's first, in the order of the report."""
    from .exported_rows import ROWS as EXPORTED_ROWS
    from .jax_rows import ROWS as JAX_ROWS
    from .scan_row import ROWS as SCAN_ROWS
    from .torch_rows import ROWS as TORCH_ROWS

    return (*TORCH_ROWS, *EXPORTED_ROWS, *JAX_ROWS, *SCAN_ROWS)


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
    "jax.scan",
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
            near = nearest(pattern, ROW_NAMES)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise RowError(f"no row matches {pattern!r}; the rows are {', '.join(ROW_NAMES)}{hint}")
    return frozenset(name for name in ROW_NAMES if any(fnmatchcase(name, p) for p in patterns))
