"""One check as JSON, for a machine to read: what a test suite leaves behind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from .atomic import write_atomically
from .json_form import to_json
from .records import Parity
from .results_error import ResultsError

SCHEMA: Final = "graphmode.check"
VERSION = 1


@dataclass(frozen=True, kw_only=True)
class CheckRecord:
    """A check and its evidence. `test` is the test that asked for it, `certificate` the digest of the certificate
    beside it, `text` what a person was told. `problem` is set where the case could not be compared: then there is
    neither evidence nor a certificate."""

    schema: Literal["graphmode.check"] = SCHEMA
    version: int = VERSION
    case: str
    test: str = ""
    passed: bool
    certificate: str
    parity: list[Parity]
    text: str
    problem: str = ""


def save_check(record: CheckRecord, path: Path) -> None:
    """Writes it atomically.

    Raises:
      ResultsError: where the file cannot be written.
    """
    try:
        write_atomically(Path(path), to_json(record, indent=1))
    except OSError as error:
        raise ResultsError(f"cannot write the check {path}: {error.strerror}; give another folder") from error
