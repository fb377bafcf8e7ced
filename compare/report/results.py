"""The results schema: versioned JSON, one record a cell, from which every page, table and plot is made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from .atomic import write_atomically
from .certificates import Certificate
from .certificates import merged as merged_certificates
from .derived import Derived, derive
from .divergence_text import happens, place
from .json_form import RecordError, from_json, to_builtins, to_json
from .records import CaseInfo, Cell, Environment, Floors, Lockstep, Parity, Work
from .results_error import ResultsError
from .wording import batch_text, dtype_text

SCHEMA: Final = "graphmode.results"
VERSION = 2
READABLE = (1, 2)  # version 1 lacks what has a default here


@dataclass(kw_only=True)
class Results:
    """One run. `complete` is false in a file whose run was interrupted; what had finished is in it all the same.
    `left_out` names the cases that would not have ended in the time that the run was given.
    """

    schema: Literal["graphmode.results"] = SCHEMA
    version: int = VERSION
    created: str
    seed: int
    quick: bool
    environment: Environment
    complete: bool = False
    duration_s: float = 0.0
    cases: list[CaseInfo] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    parity: list[Parity] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    floors: Floors | None = None
    work: list[Work] = field(default_factory=list)
    certificate: Certificate | None = None
    lockstep: list[Lockstep] = field(default_factory=list)

    def derived(self) -> Derived:
        """Everything that follows from the measured: ratios, means, distances, knees, causes. The file carries it too,
        as `derived`, and no reader of ours takes it from there."""
        return derive(self.cells, self.parity, self.floors, self.work)

    @property
    def problems(self) -> list[str]:
        return [f"{c.name}: {c.problem}" for c in self.cases if c.problem]

    @property
    def passed(self) -> bool:
        """Every port is equal (in lockstep too) and precise, every JAX cell as expected, nothing unexpected failed.

        A run that compared nothing has not passed. `complete` is no part of it: an interrupted run may have passed so
        far.
        """
        return bool(self.parity or self.cells) and not self.problems and not list(self.failures())

    def failures(self) -> Iterable[str]:
        """One line for each verdict or cell that makes the exit code 1; `problems` are further ones."""
        yield from self.failed_verdicts()
        for c in self.cells:
            if c.unexpected:
                where = f"{c.case} ({c.variant}) {c.row}, {c.mode}{batch_text(c.batch)}{dtype_text(c.dtype)}"
                yield f"{where}: {c.status}, {c.reason or 'no reason was recorded'}"
        yield from self.failed_lockstep()

    def failed_lockstep(self) -> Iterable[str]:
        """The part of `failures` that is about training in lockstep."""
        for trained in self.lockstep:
            if not trained.passed:
                first = trained.first
                what = (
                    f"{first.kind.replace('_', ' ')} {first.tensor}, step {first.step}" if first else "nothing compared"
                )
                yield f"{trained.case} ({trained.variant}): training in lockstep parts: {what}"

    def failed_verdicts(self) -> Iterable[str]:
        """The part of `failures` that is about parity."""
        for p in self.parity:
            if p.passed:
                continue
            who = "the port" if p.side == "jax" else "this variant of the reference"
            if p.error:
                yield f"{p.case} ({p.variant}{dtype_text(p.dtype)}): {who} could not be judged: {p.error}"
            else:
                verdict = [word for word, holds in (("not equal", p.equal), ("not precise", p.precise)) if not holds]
                yield f"{p.case} ({p.variant}{dtype_text(p.dtype)}): {who} is {' and '.join(verdict)}{_blamed(p)}"

    @classmethod
    def merged(cls, parts: Sequence[Results]) -> Results:
        """Runs of different cases in one environment as one run; interrupted where one of them was.

        Raises:
          ResultsError: where there is none, or they differ in seed, repeats or environment: named, with both values.
        """
        if not parts:
            raise ResultsError("no results to merge: give one run at least")
        first = parts[0]
        for other in parts[1:]:
            for name, ours, theirs in (
                ("seed", first.seed, other.seed),
                ("quick", first.quick, other.quick),
                *((k, v, other.environment.facts.get(k)) for k, v in first.environment.facts.items()),
            ):
                if ours != theirs:
                    raise ResultsError(
                        f"these results are no one run: {name} is {ours!r} in one and {theirs!r} in another; run the "
                        "cases again in one environment"
                    )
        return cls(
            created=min(part.created for part in parts),
            seed=first.seed,
            quick=first.quick,
            environment=first.environment,
            complete=all(part.complete for part in parts),
            duration_s=sum(part.duration_s for part in parts),
            cases=_once(case for part in parts for case in part.cases),
            parity=[parity for part in parts for parity in part.parity],
            cells=[cell for part in parts for cell in part.cells],
            floors=_merged_floors([part.floors for part in parts if part.floors is not None]),
            work=[work for part in parts for work in part.work],
            certificate=merged_certificates([part.certificate for part in parts]),
            lockstep=[result for part in parts for result in part.lockstep],
        )

    def save(self, path: Path) -> None:
        """Writes the JSON atomically: a reader sees the file before or after, never half of it.

        Raises:
          ResultsError: where the file cannot be written.
        """
        payload = to_json(to_builtins(self) | {"derived": self.derived()}, indent=1)
        try:
            write_atomically(Path(path), payload)
        except OSError as error:
            raise ResultsError(
                f"cannot write the results file {path}: {error.strerror}; free it or give another folder"
            ) from error

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
            head = from_json(payload, dict)
        except RecordError as error:
            raise ResultsError(
                f"{path} is no whole JSON object ({error}); it may be cut off: run `graphmode compare` again"
            ) from error
        if head.get("schema") != SCHEMA:
            raise ResultsError(
                f"{path} has the schema {head.get('schema')!r}, and {SCHEMA!r} was wanted: give a results.json that "
                "`graphmode compare` or `graphmode bench` wrote"
            )
        version = head.get("version")
        if version not in READABLE:
            newer = isinstance(version, int) and version > VERSION
            remedy = "upgrade graphmode" if newer else "run the comparison again with this graphmode"
            raise ResultsError(
                f"{path} has version {version!r} of the schema, and this graphmode reads {READABLE[0]} to {VERSION}: "
                f"{remedy}"
            )
        try:
            results = from_json(payload, cls)
        except ValueError as error:
            raise ResultsError(
                f"{path} does not hold to its schema: {error}; run `graphmode compare` again to write a whole one"
            ) from error
        results.version = VERSION
        return results


def _once(cases: Iterable[CaseInfo]) -> list[CaseInfo]:
    """A case that was compared in several dtypes is one."""
    known: dict[tuple[str, str], CaseInfo] = {}
    for case in cases:
        known.setdefault((case.name, case.problem), case)
    return list(known.values())


def _merged_floors(floors: Sequence[Floors]) -> Floors | None:
    """The first, with the products of every dtype."""
    if not floors:
        return None
    products = {dtype: peak for one in reversed(floors) for dtype, peak in one.flops_per_s.items()}
    return replace(floors[0], flops_per_s=products)


def _blamed(p: Parity) -> str:
    """Where the error arises first, and why."""
    first = next(iter(p.divergences), None)
    if first is None:
        return ""
    why = f": {first.causes[0].says}" if first.causes else ""
    return f"; {happens(first)} {place(first)}{why}"
