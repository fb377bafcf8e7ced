"""A certificate: what was found of which ports, and what it was found with, so that it can be found again."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from .atomic import write_atomically
from .json_form import from_json, to_builtins, to_json
from .results_error import ResultsError

SCHEMA: Final = "graphmode.certificate"
VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """On one port, or one further variant of the reference. `failed` of its `tensors` are not equal or not precise;
    `warnings` is how much the inputs do not cover."""

    side: str
    variant: str
    equal: bool
    precise: bool
    tensors: int
    failed: int = 0
    warnings: int = 0
    error: str = ""

    @property
    def told(self) -> str:
        words = ("equal" if self.equal else "not equal", "precise" if self.precise else "not precise")
        return self.error or f"{' and '.join(words)}, {self.failed} of {self.tensors} tensors failed"


@dataclass(frozen=True, kw_only=True)
class CaseCertificate:
    """One case in one dtype.

    Attributes:
      weights: SHA-256 of the judge's `state_dict`, name by name in its order: each of name, dtype, shape and bytes.
      inputs: the same of each input, as both sides were given it, by its label.
      verdicts: in the order in which they were found.
      overrides: the fields of the case that are not their defaults, in words: `modules`, `expected`, `to_model` ...
    """

    case: str
    dtype: str
    seed: int
    draws: int
    weights: dict[str, str]
    inputs: dict[str, str]
    verdicts: list[Verdict]
    overrides: dict[str, str] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return bool(self.verdicts) and all(v.equal and v.precise and not v.error for v in self.verdicts)


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """Of one run on one machine. `flags` are the settings that move numbers."""

    schema: Literal["graphmode.certificate"] = SCHEMA
    version: int = VERSION
    device: str
    device_name: str
    versions: dict[str, str]
    flags: dict[str, str]
    cases: list[CaseCertificate]

    @property
    def digest(self) -> str:
        """SHA-256 of what it says: two certificates with one digest say the same."""
        return hashlib.sha256(to_json(self, sort_keys=True)).hexdigest()

    @property
    def passed(self) -> bool:
        return bool(self.cases) and all(case.passed for case in self.cases)

    def of(self, case: str) -> list[CaseCertificate]:
        """What it says of this case, in every dtype."""
        return [each for each in self.cases if each.case == case]

    def save(self, path: Path) -> None:
        """Writes it as JSON, with its digest for a person to compare.

        Raises:
          ResultsError: where the file cannot be written.
        """
        payload = to_json(to_builtins(self) | {"digest": self.digest}, indent=1)
        try:
            write_atomically(Path(path), payload)
        except OSError as error:
            raise ResultsError(f"cannot write the certificate {path}: {error.strerror}; give another folder") from error

    @classmethod
    def load(cls, path: Path) -> Certificate:
        """Reads one.

        Raises:
          ResultsError: where it is missing, is no certificate, of a newer version, or was changed since it was written.
        """
        remedy = "give a certificate.json that `graphmode check --out` wrote"
        try:
            payload = Path(path).read_bytes()
            written = from_json(payload, dict)
            certificate = from_json(payload, cls)
        except OSError as error:
            raise ResultsError(f"cannot read the certificate {path}: {error.strerror}") from error
        except ValueError as error:
            raise ResultsError(f"{path} is no certificate ({error}); {remedy}") from error
        if certificate.version > VERSION:
            raise ResultsError(
                f"{path} has version {certificate.version}, and this graphmode reads up to {VERSION}: upgrade graphmode"
            )
        if written.get("digest") != certificate.digest:
            raise ResultsError(f"{path} was changed since it was written: its digest is not that of its content")
        return certificate


def merged(certificates: Sequence[Certificate | None]) -> Certificate | None:
    """Those of runs in one environment as one."""
    found = [each for each in certificates if each is not None]
    if not found:
        return None
    return replace(found[0], cases=[case for each in found for case in each.cases])
