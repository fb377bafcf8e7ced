"""The cases of a run, and its cells: one way of running one variant of a case."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .finite import drop_non_finite, require_measured

Status = Literal["ok", "wrong", "unsupported", "unavailable", "failed", "timeout"]


@dataclass(frozen=True, kw_only=True)
class CaseInfo:
    """What a page says of a case before its numbers. `problem` is set where the case itself could not be compared;
    `notes` say what was done in another way than usual."""

    name: str
    summary: str
    inputs: str = ""
    parameters: int = 0
    problem: str = ""
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Cold:
    """What came before the first timed call, in seconds, part by part; None where this way of running has no such part,
    or does not tell it.

    `build_s` is what makes the callable without running it: scripting, export, freezing, capture. `warm_start_s` is all
    of it in a fresh process that finds on disk what an earlier one left in the compiler's cache. In train_step the
    first run is that of the steps that are judged.
    """

    build_s: float | None = None
    trace_s: float | None = None
    lower_s: float | None = None
    compile_s: float | None = None
    first_run_s: float | None = None
    warm_start_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes. `peak_bytes` is the most that the row's own process held: on a GPU by its framework's allocator, on a CPU
    resident, above what it held before the row was built. The others are XLA's own analysis of one call."""

    peak_bytes: int | None = None
    arguments_bytes: int | None = None
    outputs_bytes: int | None = None
    temporaries_bytes: int | None = None
    code_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Launches:
    """What one call sets going: `kernels` on a GPU, and on a CPU the operations or fused functions that are called one
    by one; `captured` is the share of them that a captured graph replays. `by_kind` counts them by what they are."""

    kernels: int | None = None
    captured: float | None = None
    by_kind: dict[str, int] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One way of running one variant of one case: its status, and its time where the status is `ok`.

    Times are seconds a call. `samples_s` are interleaved repeats, synchronised, each the mean of its calls, on a GPU
    their median; `median_s`, `iqr_s` (75th minus 25th percentile) and `p95_s` (95th percentile) are theirs. `enqueue_s`
    is the median time until a call returns, before anything is waited for; `steady_s` that of one of many calls with
    one synchronisation at their end. `compile_s` is what came before the first timed call, and `cold` its parts. A
    sample comes from one of `processes` processes, whose index stands in `process_of` beside it; empty where there was
    one. `steps_per_call` is above 1 where one launch runs several steps; all times are of one step.

    `error_ratio` is the worst float32 error ratio over judged tensors; `equal` the float64 verdict on the function that
    the row runs, None where that was not evaluated. `expected` is the case's own reason for a status that is not `ok`.
    `unprinted` is the number of lines that the reference prints in a call and the row does not; it is no fastest row
    where the port prints more. `batch` is the size in a batch sweep, None for the case's own inputs. Cells of the
    judge, the reference's first variant, come before those of its further variants.
    """

    case: str
    variant: str
    row: str
    mode: str
    device: str
    dtype: str
    status: Status
    reason: str = ""
    expected: str | None = None
    noisy: bool = False
    error_ratio: float | None = None
    equal: bool | None = None
    median_s: float | None = None
    iqr_s: float | None = None
    p95_s: float | None = None
    samples_s: list[float] = field(default_factory=list)
    calls_per_sample: int = 0
    process_of: list[int] = field(default_factory=list)
    steps_per_call: int = 1
    enqueue_s: float | None = None
    steady_s: float | None = None
    compile_s: float | None = None
    cold: Cold | None = None
    memory: Memory | None = None
    launches: Launches | None = None
    unprinted: int = 0
    batch: int | None = None

    def __post_init__(self) -> None:
        if (self.median_s is not None or self.samples_s) and self.status != "ok":
            raise ValueError(f"cell {self.case}/{self.row} has a speed though its status is {self.status!r}")
        if self.status == "ok" and self.equal is False:
            raise ValueError(f"cell {self.case}/{self.row} is 'ok' though its function is not equal to the reference")
        if self.process_of and len(self.process_of) != len(self.samples_s):
            raise ValueError(
                f"cell {self.case}/{self.row} has {len(self.samples_s)} samples of {len(self.process_of)} processes: "
                "each has the index of its own"
            )
        if self.steps_per_call < 1 or (self.batch is not None and self.batch < 1):
            raise ValueError(
                f"cell {self.case}/{self.row} has {self.steps_per_call} steps a call and the batch size {self.batch}: "
                "both start at 1"
            )
        require_measured(self, "median_s", "samples_s")
        require_measured(self, "iqr_s", "p95_s", "enqueue_s", "steady_s", "compile_s", or_zero=True)
        drop_non_finite(self, "error_ratio")

    @property
    def framework(self) -> str:
        return "jax" if self.row.startswith("jax.") else "torch"

    @property
    def unexpected(self) -> bool:
        """Whether this cell makes the exit code 1.

        A graph of JAX has to run wherever it is available. A PyTorch row may also be unsupported or too slow, and JAX
        too slow where it compiles each operation by itself, which nobody is to wait for.
        """
        if self.expected is not None or self.status in ("ok", "unavailable"):
            return False
        if self.row == "jax.eager" and self.status == "timeout":
            return False
        return self.framework == "jax" or self.status in ("wrong", "failed")
