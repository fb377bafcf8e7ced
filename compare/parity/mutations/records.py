"""What the self-test found, as it goes into `self_test.json`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ...report.json_form import from_json, to_json


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one plant.

    `moved` is the largest change of the port's float64 answers, beyond JSON's numbers None; a plant that moves nothing
    is `idle`. `wanted` are the modules that may be accused, `accused` those that were, `first` the one that the report
    names first; the model itself is "(model)". `refused` says why the case could not be compared, which is caught, and
    located nowhere. `error` is a failure of the self-test's own.
    """

    kind: str
    specimen: str
    site: str
    idle: bool = False
    caught: bool = False
    located: bool = False
    first_right: bool = False
    explained: bool = False
    explained_wrongly: bool = False
    moved: float | None = None
    wanted: list[str] = field(default_factory=list)
    accused: list[str] = field(default_factory=list)
    first: str = ""
    causes: list[str] = field(default_factory=list)
    refused: str = ""
    notes: list[str] = field(default_factory=list)
    error: str = ""
    duration_s: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.kind} at {self.specimen}.{self.site}"


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """A check of a correct port: a false alarm where it did not pass."""

    specimen: str
    seed: int
    passed: bool
    told: str = ""
    duration_s: float = 0.0


@dataclass(kw_only=True)
class SelfTest:
    """All outcomes of a run; `quick` where it took one plant a kind.

    `left_out` are the specimens that could not be built, each with the reason.
    """

    quick: bool
    seed: int
    outcomes: list[Outcome] = field(default_factory=list)
    alarms: list[Alarm] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    duration_s: float = 0.0

    @property
    def counted(self) -> list[Outcome]:
        """Those that moved something."""
        return [each for each in self.outcomes if not each.idle]

    @property
    def false_alarms(self) -> list[Alarm]:
        return [each for each in self.alarms if not each.passed]

    @property
    def passed(self) -> bool:
        """Whether every plant that counts was caught, none failed to run, and no correct port was blamed."""
        return bool(self.counted) and all(o.caught and not o.error for o in self.counted) and not self.false_alarms

    def save(self, path: Path) -> None:
        """Writes it as JSON."""
        path.write_bytes(to_json(self, indent=2))

    @staticmethod
    def load(path: Path) -> SelfTest:
        return from_json(path.read_bytes(), SelfTest)
