"""Steps of training beside the reference's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .finite import drop_non_finite

StepKind = Literal["output", "buffer", "parameter_gradient", "input_gradient", "optimizer_state", "update", "parameter"]


@dataclass(frozen=True, kw_only=True)
class StepFinding:
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
        drop_non_finite(self, "error")


@dataclass(frozen=True, kw_only=True)
class FreeStep:
    """The largest relative error of a parameter after so many steps without synchronising: of the port, and of the
    reference itself, its first parameters moved by half an ulp of float64 and of float32. None where not finite."""

    step: int
    port: float | None
    rounding: float | None
    rounding_float32: float | None

    def __post_init__(self) -> None:
        drop_non_finite(self, "port", "rounding", "rounding_float32")


@dataclass(frozen=True, kw_only=True)
class Lockstep:
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
    findings: list[StepFinding] = field(default_factory=list)
    failed: dict[str, int] = field(default_factory=dict)
    worst: dict[str, float | None] = field(default_factory=dict)
    curve: list[FreeStep] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    duration_s: float = 0.0

    @property
    def passed(self) -> bool:
        return not self.findings and bool(self.worst)

    @property
    def first(self) -> StepFinding | None:
        """Where something first goes wrong."""
        return self.findings[0] if self.findings else None

    def __str__(self) -> str:
        from ..lockstep_text import told

        return "\n".join(told(self))
