"""One check as JSON, for a machine to read: what a test suite leaves behind."""

from __future__ import annotations

from pathlib import Path

import msgspec

from .atomic import write_atomically
from .records import Parity
from .results_error import ResultsError

SCHEMA = "graphmode.check"
VERSION = 1


class CheckRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag=SCHEMA):
    """A check and its evidence. `test` is the test that asked for it, `certificate` the digest of the certificate
    beside it, `text` what a person was told. `problem` is set where the case could not be compared: then there is
    neither evidence nor a certificate."""

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
        write_atomically(Path(path), msgspec.json.format(msgspec.json.encode(record), indent=1))
    except OSError as error:
        raise ResultsError(f"cannot write the check {path}: {error.strerror}; give another folder") from error
