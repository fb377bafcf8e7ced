"""The machine, and what it can do at best for the work there is."""

from __future__ import annotations

from dataclasses import dataclass, field

from .finite import require_measured

LOAD = "load average"  # of what differs by nature: over one, five and fifteen minutes


@dataclass(frozen=True, kw_only=True)
class Work:
    """The least that any way of running one step has to do: floating-point operations, and bytes that must be read or
    written once. `how` says what was counted."""

    case: str
    mode: str
    dtype: str
    batch: int | None = None
    flops: float
    bytes: float
    how: str = ""

    def __post_init__(self) -> None:
        require_measured(self, "flops", "bytes", or_zero=True)


@dataclass(frozen=True, kw_only=True)
class Floors:
    """What this machine can do at best, measured in this run: bytes a second of a large copy (read and written), by
    dtype the operations a second of a large matrix product, and by name the seconds that one empty launch takes.

    `cache_bytes_per_s` is the bandwidth of what fits into the last cache, of `cache_bytes`; 0 where not measured.
    """

    bytes_per_s: float
    flops_per_s: dict[str, float]
    launch_s: dict[str, float]
    cache_bytes: float = 0.0
    cache_bytes_per_s: float = 0.0

    def __post_init__(self) -> None:
        require_measured(self, "bytes_per_s", "flops_per_s", "launch_s")
        require_measured(self, "cache_bytes", "cache_bytes_per_s", or_zero=True)

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


@dataclass(frozen=True, kw_only=True)
class Environment:
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
    machine: dict[str, str] = field(default_factory=dict)
    flags: dict[str, str] = field(default_factory=dict)
    revision: str = ""
    moment: dict[str, str] = field(default_factory=dict)

    @property
    def is_busy(self) -> bool:
        """Whether other programs had more than half of the processors when the run began."""
        try:
            return float(self.moment.get(LOAD, "").split()[0]) > self.threads / 2
        except (IndexError, ValueError):
            return False

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
