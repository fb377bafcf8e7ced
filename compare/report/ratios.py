"""How the ways of running compare: ratios of medians with their intervals, geometric means and pass rates.

A ratio is the first row's time over the second's, so below 1 the first is faster. Only cells of one case, mode, device,
dtype and batch size are ever set against each other. Means are taken within one device and dtype, over the cases' own
inputs: a batch sweep would count its case many times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from .bootstrap import interval
from .records import Cell

EAGER = "torch.eager"

Verdict = Literal["faster", "slower", "level", "unknown"]
CHANCE = 0.05


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of medians and its bootstrap 95% interval; `low` and `high` are None where there are too few samples.

    `apart` then says whether all samples of one side lie below all of the other, and there are enough of them that
    chance would order fewer than one in twenty so.
    """

    value: float
    low: float | None = None
    high: float | None = None
    apart: bool = False

    @property
    def verdict(self) -> Verdict:
        """`level` where the interval holds 1; without an interval `unknown`, unless the sides are `apart`."""
        if self.low is None or self.high is None:
            return "unknown" if not self.apart else "faster" if self.value < 1 else "slower"
        if self.high < 1:
            return "faster"
        return "slower" if self.low > 1 else "level"

    @property
    def differs(self) -> bool:
        """Whether one of the two is known to be the faster one."""
        return self.verdict in ("faster", "slower")


@dataclass(frozen=True, slots=True)
class Group:
    """The cells that may be set against each other: one case, mode, device, dtype and batch size, which is None for
    the case's own inputs."""

    case: str
    mode: str
    device: str
    dtype: str
    batch: int | None
    cells: tuple[Cell, ...]

    @property
    def scope(self) -> tuple[str, str]:
        return self.device, self.dtype

    @property
    def fastest_torch(self) -> Cell | None:
        """PyTorch's fastest row that is ok, over all variants of the reference."""
        return self._fastest(lambda c: c.framework == "torch")

    @property
    def fastest_jax(self) -> Cell | None:
        return self._fastest(lambda c: c.framework == "jax")

    @property
    def fastest(self) -> Cell | None:
        return self._fastest(lambda c: True)

    def _fastest(self, wanted: Callable[[Cell], bool]) -> Cell | None:
        """Of the rows that do as much as the port does: one that leaves out what both print does another job."""
        timed = [c for c in self.cells if _timed(c) and _has_inputs(c)]
        left_out = min((c.unprinted for c in timed if c.framework == "jax"), default=math.inf)
        return min((c for c in timed if c.unprinted <= left_out and wanted(c)), key=_median, default=None)

    @property
    def eager(self) -> Cell | None:
        """The judge run by PyTorch eagerly: what the user wrote."""
        judge = next((c for c in self.cells if c.row == EAGER), None)
        return judge if judge is not None and _timed(judge) else None

    @property
    def best(self) -> Ratio | None:
        """JAX's fastest row over PyTorch's fastest row."""
        return ratio(self.fastest_jax, self.fastest_torch)

    @property
    def best_to_eager(self) -> Ratio | None:
        """JAX's fastest row over eager PyTorch."""
        return ratio(self.fastest_jax, self.eager)

    @property
    def jax_ratios(self) -> list[tuple[Cell, Ratio]]:
        """Every ok JAX row over PyTorch's fastest row."""
        pairs = ((c, ratio(c, self.fastest_torch)) for c in self.cells if c.framework == "jax")
        return [(c, r) for c, r in pairs if r is not None]

    @property
    def break_even_calls(self) -> int | None:
        """Calls after which JAX's fastest row has paid back its longer compile time; None where it never does, or is
        not faster beyond the interval: what then looks like a gain may be none."""
        jax, torch, best = self.fastest_jax, self.fastest_torch, self.best
        if jax is None or torch is None or jax.compile_s is None or torch.compile_s is None:
            return None
        if best is None or best.verdict != "faster":
            return None
        extra, gain = jax.compile_s - torch.compile_s, _median(torch) - _median(jax)
        return max(0, math.ceil(extra / gain)) if gain > 0 else None


@dataclass(frozen=True, slots=True)
class Mean:
    """Geometric means over one device and dtype, and what they are taken over.

    `to_fastest` sets JAX's fastest row against PyTorch's fastest row, `to_eager` against eager PyTorch. `count` groups
    have a ratio, of which `unknown` have too few samples to tell which side is faster; `missing` ones have none,
    because no JAX row or no PyTorch row is ok.
    """

    device: str
    dtype: str
    to_fastest: float | None
    to_eager: float | None
    faster: int
    slower: int
    level: int
    unknown: int
    count: int
    missing: int


@dataclass(frozen=True, slots=True)
class PassRate:
    """How many are ok of those that were tried, and as a fraction; `unavailable` ones could not be tried here."""

    ok: int
    tried: int
    fraction: float | None
    unavailable: int = 0

    @classmethod
    def of(cls, outcomes: Sequence[bool], unavailable: int = 0) -> PassRate:
        ok = sum(outcomes)
        return cls(ok, len(outcomes), ok / len(outcomes) if outcomes else None, unavailable)


def groups(cells: Iterable[Cell]) -> list[Group]:
    """Cells by case, mode, device, dtype and batch size, in the order in which they were recorded."""
    found: dict[tuple[str, str, str, str, int | None], list[Cell]] = {}
    for cell in cells:
        found.setdefault((cell.case, cell.mode, cell.device, cell.dtype, cell.batch), []).append(cell)
    return [Group(*key, tuple(members)) for key, members in found.items()]


def own_inputs(compared: Iterable[Group]) -> list[Group]:
    """Without those of a batch sweep."""
    return [g for g in compared if g.batch is None]


def by_time(cells: Iterable[Cell]) -> list[Cell]:
    """The fastest first, and after the timed ones the others as they were recorded."""
    return sorted(cells, key=lambda c: (c.median_s is None, c.median_s or 0.0))


def ratio(cell: Cell | None, base: Cell | None) -> Ratio | None:
    """`cell`'s median over `base`'s, or None where one of them has no time.

    Raises:
      ValueError: where the two are of different cases, modes, devices, dtypes or batch sizes.
    """
    if cell is None or base is None or not _timed(cell) or not _timed(base):
        return None
    for name in ("case", "mode", "device", "dtype", "batch"):
        here, there = getattr(cell, name), getattr(base, name)
        if here != there:
            raise ValueError(f"{cell.row} and {base.row} differ in {name} ({here!r}, {there!r}): no ratio between them")
    value = _median(cell) / _median(base)
    if cell is base:
        return Ratio(value)
    processes = tuple(cell.process_of), tuple(base.process_of)
    found = interval(tuple(cell.samples_s), tuple(base.samples_s), processes)
    return Ratio(value, *found) if found else Ratio(value, apart=_apart(cell.samples_s, base.samples_s))


def means(compared: Sequence[Group]) -> list[Mean]:
    """The geometric means of each device and dtype over all its groups, those of batch sweeps left out."""
    scopes: dict[tuple[str, str], list[Group]] = {}
    for group in own_inputs(compared):
        scopes.setdefault(group.scope, []).append(group)
    return [_mean(*scope, members) for scope, members in scopes.items()]


def geometric_mean(values: Iterable[float]) -> float | None:
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs)) if logs else None


def pass_rate(cells: Iterable[Cell], framework: Literal["jax", "torch"]) -> PassRate:
    """Of the framework's cells, those that are ok."""
    statuses = [c.status for c in cells if c.framework == framework]
    tried = [status == "ok" for status in statuses if status != "unavailable"]
    return PassRate.of(tried, len(statuses) - len(tried))


def _mean(device: str, dtype: str, members: list[Group]) -> Mean:
    best = [g.best for g in members]
    verdicts = [r.verdict for r in best if r is not None]
    return Mean(
        device,
        dtype,
        to_fastest=geometric_mean(_values(members, lambda g: g.best)),
        to_eager=geometric_mean(_values(members, lambda g: g.best_to_eager)),
        faster=verdicts.count("faster"),
        slower=verdicts.count("slower"),
        level=verdicts.count("level"),
        unknown=verdicts.count("unknown"),
        count=len(verdicts),
        missing=best.count(None),
    )


def _apart(one: Sequence[float], other: Sequence[float]) -> bool:
    if not one or not other or 2 / math.comb(len(one) + len(other), len(one)) >= CHANCE:
        return False
    return max(one) < min(other) or max(other) < min(one)


def _values(members: list[Group], pick: Callable[[Group], Ratio | None]) -> list[float]:
    return [r.value for r in map(pick, members) if r is not None]


def _has_inputs(cell: Cell) -> bool:
    """Several steps in one launch are for training, where one step feeds the next; elsewhere nobody has the inputs."""
    return cell.steps_per_call == 1 or cell.mode == "train_step"


def _timed(cell: Cell) -> bool:
    return cell.status == "ok" and cell.median_s is not None and cell.median_s > 0


def _median(cell: Cell) -> float:
    assert cell.median_s is not None
    return cell.median_s
