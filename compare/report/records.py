"""The records of the results schema: verdicts, cells, the machine and what it can do at best."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

Status = Literal["ok", "wrong", "unsupported", "unavailable", "failed", "timeout"]


class Tensor(msgspec.Struct, frozen=True, kw_only=True):
    """Both verdicts on one tensor (or on one kind of scalars), the worst over all inputs of one mode.

    `error` is the largest absolute difference in float64 over the tensor's scale; `ratio` the float32 RMSE of the port
    over that of PyTorch, both against the float64 reference; None where it was not judged, with the reason in `note`,
    and where it is not finite, which JSON cannot hold: a tensor that is not `equal` and has no `error` failed so, or by
    its shape or dtype.

    The kind `parameter` is what steps of training added to a parameter; `update` what the optimizer by itself makes of
    given gradients.
    """

    name: str
    kind: Literal["output", "input_gradient", "parameter_gradient", "parameter", "update", "buffer"]
    mode: str
    equal: bool
    precise: bool
    error: float | None = None
    ratio: float | None = None
    input: str = ""
    index: tuple[int, ...] = ()
    port_value: str = ""
    reference_value: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        _drop_non_finite(self, "error", "ratio")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor that is off although all that it is made from is right.

    `what` is a module's `output`, its `input_gradient`, `parameter_gradient` or `buffer`; or what a module inside
    `received` from it, forward, or backward (`received_cotangent`); or an optimizer's `update`. `error` is None where
    it is not finite: another shape, a new NaN, an integer that differs.
    """

    what: Literal[
        "received", "output", "received_cotangent", "input_gradient", "parameter_gradient", "buffer", "update"
    ]
    tensor: str
    error: float | None = None
    index: tuple[int, ...] = ()
    port_value: str = ""
    reference_value: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        _drop_non_finite(self, "error")


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """A known difference that makes the reference's module give what the port's module gives.

    `says` is what the port does, `fix` what to write instead; `residual` is the error that is left with it, of that
    which was there.
    """

    id: str
    says: str
    fix: str
    residual: float


class Astray(msgspec.Struct, frozen=True, kw_only=True):
    """Where a module leaves the reference's way: lines of the port that take what the reference has, too, and give what
    it never has, `port.py:31 (mul, add)`; and lines of the reference that the port has no counterpart of. Where the
    former are in no part of the module, `handed` is the class of the one in which they are: the module is handed it."""

    port: list[str]
    reference: list[str] = msgspec.field(default_factory=list)
    handed: str = ""


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """A module that introduces error: its path in the port (empty for the model itself), its counterpart's, their
    classes, `file:line` of the code, what is off, and why.

    `inherited` is the error of what it receives in a free run: what earlier modules introduced. `outside` marks an
    error that arises in no module, but in the case's `to_model`, `to_reference` or `loss`. With a `dtype` the module is
    equal in float64, and loses digits in this dtype that PyTorch keeps. `cut_short` says that the time was over before
    all known causes had been tried. `astray` is looked for where there is no cause.
    """

    mode: str
    input: str
    module: str
    reference: str = ""
    kind: str = ""
    reference_kind: str = ""
    call: int = 0
    source: str = ""
    findings: list[Finding] = msgspec.field(default_factory=list)
    causes: list[Cause] = msgspec.field(default_factory=list)
    inherited: float | None = None
    outside: bool = False
    dtype: str = ""
    cut_short: bool = False
    astray: Astray | None = None

    def __post_init__(self) -> None:
        _drop_non_finite(self, "inherited")


class ModuleEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """A called module and the one that stands for it: their paths (empty for the model, None where there is none),
    classes, and `how` they were matched.

    `inherited` is the largest error in float64 of its outputs as the port computes them by itself, and `introduced`
    that of its outputs on the reference's own inputs; None where it is not finite, as of another shape, or was not
    compared. It is `equal` where it introduces none; `index` and the values are those of the largest introduced error.
    """

    port: str | None
    reference: str | None
    kind: str = ""
    reference_kind: str = ""
    how: str = ""
    calls: int = 0
    inherited: float | None = None
    introduced: float | None = None
    equal: bool = True
    index: tuple[int, ...] = ()
    port_value: str = ""
    reference_value: str = ""

    def __post_init__(self) -> None:
        _drop_non_finite(self, "inherited", "introduced")


class Parity(msgspec.Struct, frozen=True, kw_only=True):
    """The two verdicts on one variant of one case, with the evidence; *precise* is one in `dtype`. `side` is who was
    judged: the port, or a further variant of the reference. A port that is not equal has `divergences`, the modules
    that introduce the error, one that is not precise those that lose digits, first ones first, and `modules`, all that
    were called, each with the one that stands for it. `warnings` say what the inputs do not cover: what no verdict can
    tell.
    """

    case: str
    variant: str
    side: Literal["jax", "torch"]
    equal: bool
    precise: bool
    inputs: list[str]
    tensors: list[Tensor]
    notes: list[str] = msgspec.field(default_factory=list)
    readings: dict[str, str] = msgspec.field(default_factory=dict)
    error: str = ""
    duration_s: float = 0.0
    dtype: str = "float32"
    divergences: list[Divergence] = msgspec.field(default_factory=list)
    modules: list[ModuleEvidence] = msgspec.field(default_factory=list)
    warnings: list[str] = msgspec.field(default_factory=list)

    @property
    def passed(self) -> bool:
        return self.equal and self.precise and not self.error

    @property
    def worst_error(self) -> Tensor | None:
        """The tensor with the largest float64 error, a failed one before any that passed."""
        judged = [t for t in self.tensors if t.error is not None or not t.equal]
        return max(judged, key=lambda t: (not t.equal, _or_infinite(t.error)), default=None)

    @property
    def worst_ratio(self) -> Tensor | None:
        """The tensor with the largest float32 error ratio, a failed one before any that passed."""
        judged = [t for t in self.tensors if t.ratio is not None or not t.precise]
        return max(judged, key=lambda t: (not t.precise, _or_infinite(t.ratio)), default=None)


StepKind = Literal["output", "buffer", "parameter_gradient", "input_gradient", "optimizer_state", "update", "parameter"]


class StepFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor that is off after one step of training (the first is 1) from the reference's own state.

    An `update` is what the step adds to a parameter, `optimizer_state` what the optimizer keeps, by PyTorch's name.
    `error` is None where it is not finite.
    """

    step: int
    kind: StepKind
    tensor: str
    error: float | None = None
    index: tuple[int, ...] = ()
    port_value: str = ""
    reference_value: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        _drop_non_finite(self, "error")


class FreeStep(msgspec.Struct, frozen=True, kw_only=True):
    """The largest relative error of a parameter after so many steps without synchronising: of the port, and of the
    reference itself, its first parameters moved by half an ulp of float64 and of float32. None where not finite."""

    step: int
    port: float | None
    rounding: float | None
    rounding_float32: float | None

    def __post_init__(self) -> None:
        _drop_non_finite(self, "port", "rounding", "rounding_float32")


class Lockstep(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of training in float64 on both sides, each from the reference's state, and the same steps run freely.

    `findings` are the tensors that are off, step by step, in the order in which a step computes them, at most
    20 a step; `failed` counts all of them by kind; `worst` has the largest error of each kind that was compared,
    None where it is not finite.
    """

    case: str
    variant: str
    steps: int
    seed: int
    dropout: bool = False
    findings: list[StepFinding] = msgspec.field(default_factory=list)
    failed: dict[str, int] = msgspec.field(default_factory=dict)
    worst: dict[str, float | None] = msgspec.field(default_factory=dict)
    curve: list[FreeStep] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    duration_s: float = 0.0

    @property
    def passed(self) -> bool:
        return not self.findings and bool(self.worst)

    @property
    def first(self) -> StepFinding | None:
        """Where something first goes wrong."""
        return self.findings[0] if self.findings else None

    def __str__(self) -> str:
        from .lockstep_text import told

        return "\n".join(told(self))


class Cold(msgspec.Struct, frozen=True, kw_only=True):
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


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes. `peak_bytes` is the most that the row's own process held: on a GPU by its framework's allocator, on a CPU
    resident, above what it held before the row was built. The others are XLA's own analysis of one call."""

    peak_bytes: int | None = None
    arguments_bytes: int | None = None
    outputs_bytes: int | None = None
    temporaries_bytes: int | None = None
    code_bytes: int | None = None


class Launches(msgspec.Struct, frozen=True, kw_only=True):
    """What one call sets going: `kernels` on a GPU, and on a CPU the operations or fused functions that are called one
    by one; `captured` is the share of them that a captured graph replays. `by_kind` counts them by what they are."""

    kernels: int | None = None
    captured: float | None = None
    by_kind: dict[str, int] = msgspec.field(default_factory=dict)
    note: str = ""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One way of running one variant of one case: its status, and its time where the status is `ok`.

    Times are seconds a call. `samples_s` are interleaved repeats, synchronised; `median_s`, `iqr_s` (75th minus 25th
    percentile) and `p95_s` (95th percentile) are theirs. `enqueue_s` is the median time until a call returns, before
    anything is waited for; `steady_s` that of one of many calls with one synchronisation at their end. `compile_s` is
    what came before the first timed call, and `cold` its parts. A sample comes from one of `processes` processes, whose
    index stands in `process_of` beside it; empty where there was one. `steps_per_call` is above 1 where one launch runs
    several steps; all times are of one step.

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
    samples_s: list[float] = msgspec.field(default_factory=list)
    calls_per_sample: int = 0
    process_of: list[int] = msgspec.field(default_factory=list)
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
        _drop_non_finite(self, "error_ratio")

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


class CaseInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a page says of a case before its numbers. `problem` is set where the case itself could not be compared;
    `notes` say what was done in another way than usual."""

    name: str
    summary: str
    inputs: str = ""
    parameters: int = 0
    problem: str = ""
    notes: list[str] = msgspec.field(default_factory=list)


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """The least that any way of running one step has to do: floating-point operations, and bytes that must be read or
    written once. `how` says what was counted."""

    case: str
    mode: str
    dtype: str
    batch: int | None = None
    flops: float
    bytes: float
    how: str = ""


class Floors(msgspec.Struct, frozen=True, kw_only=True):
    """What this machine can do at best, measured in this run: bytes a second of a large copy (read and written), by
    dtype the operations a second of a large matrix product, and by name the seconds that one empty launch takes.

    `cache_bytes_per_s` is the bandwidth of what fits into the last cache, of `cache_bytes`; 0 where not measured.
    """

    bytes_per_s: float
    flops_per_s: dict[str, float]
    launch_s: dict[str, float]
    cache_bytes: float = 0.0
    cache_bytes_per_s: float = 0.0

    def of(self, work: Work) -> float | None:
        """Seconds below which no step with this work can be; None where no product of its dtype was measured.

        What fits into the last cache may be there from the step before.
        """
        peak = self.flops_per_s.get(work.dtype)
        if peak is None:
            return None
        cached = work.bytes <= self.cache_bytes
        rate = max(self.bytes_per_s, self.cache_bytes_per_s) if cached else self.bytes_per_s
        return max(work.bytes / rate, work.flops / peak)


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Where the numbers come from.

    `machine` is what the system and the driver tell of the hardware, `flags` every setting that moves a time. `moment`
    is what differs from one process to the next by nature, such as the load: shown, and never compared.
    """

    device: str
    device_name: str
    cpu: str
    threads: int
    python: str
    platform: str
    versions: dict[str, str]
    machine: dict[str, str] = msgspec.field(default_factory=dict)
    flags: dict[str, str] = msgspec.field(default_factory=dict)
    revision: str = ""
    moment: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def facts(self) -> dict[str, str]:
        """By name, for a table: all that two runs which are to be compared should share."""
        return {
            "device": f"{self.device}: {self.device_name}",
            "cpu": f"{self.cpu}, {self.threads} threads",
            **self.machine,
            "platform": self.platform,
            "python": self.python,
            **self.versions,
            **{f"flag {name}": value for name, value in self.flags.items()},
            "revision": self.revision or "not known",
        }


def _drop_non_finite(
    record: Tensor | Finding | Divergence | ModuleEvidence | StepFinding | FreeStep | Cell, *names: str
) -> None:
    """JSON has no infinity, so a record holds from the start what a reader of its file gets."""
    for name in names:
        value = getattr(record, name)
        if value is not None and not math.isfinite(value):
            msgspec.structs.force_setattr(record, name, None)


def _or_infinite(value: float | None) -> float:
    return math.inf if value is None else value
