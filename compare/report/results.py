"""The results schema: versioned JSON, one record a cell, from which every page, table and plot is made."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

SCHEMA = "graphmode.results"
VERSION = 1

Status = Literal["ok", "wrong", "unsupported", "unavailable", "failed", "timeout"]


class ResultsError(ValueError):
    """A results file that cannot be read: the message says what is wrong with it and what to do."""


class Tensor(msgspec.Struct, frozen=True, kw_only=True):
    """Both verdicts on one tensor (or on one kind of scalars), the worst over all inputs of one mode.

    `error` is the largest absolute difference in float64 over the tensor's scale; `ratio` the float32 RMSE of the port
    over that of PyTorch, both against the float64 reference; None where it was not judged, with the reason in `note`.
    """

    name: str
    kind: Literal["output", "input_gradient", "parameter_gradient", "buffer"]
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


class Parity(msgspec.Struct, frozen=True, kw_only=True):
    """The two verdicts on one variant of one case, with the evidence. `side` is who was judged: the port, or a further
    variant of the reference."""

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

    @property
    def passed(self) -> bool:
        return self.equal and self.precise and not self.error

    @property
    def worst_error(self) -> Tensor | None:
        """The tensor with the largest float64 error, a failed one before any that passed."""
        judged = [t for t in self.tensors if t.error is not None]
        return max(judged, key=lambda t: (not t.equal, t.error), default=None)

    @property
    def worst_ratio(self) -> Tensor | None:
        judged = [t for t in self.tensors if t.ratio is not None]
        return max(judged, key=lambda t: (not t.precise, t.ratio), default=None)


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One way of running one variant of one case: its status, and its time where the status is `ok`.

    Times are seconds a call, synchronised: `samples_s` are interleaved repeats, `median_s` and `iqr_s` (75th minus 25th
    percentile) are theirs. `compile_s` is what came before the first timed call: trace, lower, compile, capture and
    warm-up. `error_ratio` is the worst float32 error ratio over judged tensors; `equal` the float64 verdict on the
    function that the row runs, None where that was not evaluated. `expected` is the case's own reason for a status that
    is not `ok`.
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
    samples_s: list[float] = msgspec.field(default_factory=list)
    calls_per_sample: int = 0
    compile_s: float | None = None

    def __post_init__(self) -> None:
        if (self.median_s is not None or self.samples_s) and self.status != "ok":
            raise ValueError(f"cell {self.case}/{self.row} has a speed though its status is {self.status!r}")

    @property
    def framework(self) -> str:
        return "jax" if self.row.startswith("jax.") else "torch"

    @property
    def unexpected(self) -> bool:
        """Whether this cell makes the exit code 1."""
        return self.status in ("wrong", "failed") and self.expected is None


class CaseInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a page says of a case before its numbers. `problem` is set where the case itself could not be compared."""

    name: str
    summary: str
    inputs: str = ""
    parameters: int = 0
    problem: str = ""


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Where the numbers come from."""

    device: str
    device_name: str
    cpu: str
    threads: int
    python: str
    platform: str
    versions: dict[str, str]
    flags: dict[str, str] = msgspec.field(default_factory=dict)
    revision: str = ""


class Results(msgspec.Struct, kw_only=True, tag_field="schema", tag=SCHEMA):
    """One run. `complete` is false in a file whose run was interrupted; what had finished is in it all the same."""

    version: int = VERSION
    created: str
    seed: int
    quick: bool
    environment: Environment
    complete: bool = False
    duration_s: float = 0.0
    cases: list[CaseInfo] = msgspec.field(default_factory=list)
    parity: list[Parity] = msgspec.field(default_factory=list)
    cells: list[Cell] = msgspec.field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        return [f"{c.name}: {c.problem}" for c in self.cases if c.problem]

    @property
    def passed(self) -> bool:
        """Every port is equal and precise, every JAX cell is as expected, and nothing unexpected failed."""
        return not self.problems and not list(self.failures())

    def failures(self) -> Iterable[str]:
        """One line for each thing that makes the exit code 1."""
        for p in self.parity:
            if not p.passed and p.side == "jax":
                verdict = p.error or " and ".join(
                    word for word, ok in (("not equal", p.equal), ("not precise", p.precise)) if not ok
                )
                yield f"{p.case} ({p.variant}): the port is {verdict}" if not p.error else f"{p.case}: {p.error}"
        for c in self.cells:
            if c.unexpected:
                yield f"{c.case} ({c.variant}) {c.row}, {c.mode}: {c.status}, {c.reason}"

    def save(self, path: Path) -> None:
        """Writes the JSON atomically: a reader sees the file before or after, never half of it."""
        payload = msgspec.json.format(msgspec.json.encode(self), indent=1)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(payload)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)

    @classmethod
    def load(cls, path: Path) -> Results:
        """Reads a results file.

        Raises:
          ResultsError: where it is missing, cut off, of another schema, or of a newer version.
        """
        try:
            payload = Path(path).read_bytes()
        except OSError as error:
            raise ResultsError(f"cannot read the results file {path}: {error.strerror}") from error
        try:
            head = msgspec.json.decode(payload, type=dict)
        except msgspec.DecodeError as error:
            raise ResultsError(
                f"{path} is no whole JSON object ({error}); it may be cut off: run `graphmode compare` again"
            ) from error
        if head.get("schema") != SCHEMA:
            raise ResultsError(
                f"{path} has the schema {head.get('schema')!r}, and {SCHEMA!r} was wanted: give a results.json that "
                "`graphmode compare` or `graphmode bench` wrote"
            )
        if head.get("version") != VERSION:
            raise ResultsError(
                f"{path} has version {head.get('version')!r} of the schema, and this graphmode reads {VERSION}: "
                "run the comparison again with this version"
            )
        try:
            return msgspec.json.decode(payload, type=cls)
        except (msgspec.ValidationError, ValueError) as error:
            raise ResultsError(f"{path} does not hold to its schema: {error}") from error
