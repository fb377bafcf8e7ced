"""The verdicts on a port, and what is seen inside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .finite import drop_non_finite, or_infinite


@dataclass(frozen=True, kw_only=True)
class Tensor:
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
        drop_non_finite(self, "error", "ratio")


@dataclass(frozen=True, kw_only=True)
class Finding:
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
        drop_non_finite(self, "error")

    @classmethod
    def of(cls, tensor: Tensor, name: str = "") -> Finding:
        """That a tensor of the verdict is off, under another name where one is given."""
        return cls(
            what=tensor.kind,  # type: ignore[arg-type]
            tensor=name or tensor.name,
            error=tensor.error,
            index=tensor.index,
            port_value=tensor.port_value,
            reference_value=tensor.reference_value,
            note=tensor.note,
        )


@dataclass(frozen=True, kw_only=True)
class Cause:
    """A known difference that makes the reference's module give what the port's module gives.

    `says` is what the port does, `fix` what to write instead; `residual` is the error that is left with it, of that
    which was there; `reference` is the file and line, in the reference, of what is done otherwise, where it is a call.
    """

    id: str
    says: str
    fix: str
    residual: float
    reference: str = ""


@dataclass(frozen=True, kw_only=True)
class Astray:
    """Where a module leaves the reference's way: lines of the port that take what the reference has, too, and give what
    it never has, `port.py:31 (mul, add)`; and lines of the reference that the port has no counterpart of. Where the
    former are in no part of the module, `handed` is the class of the one in which they are: the module is handed it.
    Where the reference computes in `whole`, one function alone, they are where the port begins to write that out.
    Where the gradient alone leaves it, `gradient` says how: the port's lines `"stops"` it, or let it `"through"`, where
    the reference does not, or it `"differs"` otherwise; the reference's lines are those that make the same value."""

    port: list[str]
    reference: list[str] = field(default_factory=list)
    handed: str = ""
    whole: str = ""
    gradient: Literal["", "stops", "through", "differs"] = ""


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """A module that introduces error: its path in the port (empty for the model itself), its counterpart's, their
    classes, `file:line` of the code, what is off, and why.

    `inherited` is the error of what it receives in a free run: what earlier modules introduced. `outside` marks an
    error that arises in no module, but in the case's `to_model`, `to_reference` or `loss`. With a `dtype` the module is
    equal in float64, and loses digits in this dtype that PyTorch keeps. `cut_short` says that the time was over before
    all known causes had been tried, after `tried_s` seconds. `astray` is looked for longest where there is no cause.
    """

    mode: str
    input: str
    module: str
    reference: str = ""
    kind: str = ""
    reference_kind: str = ""
    call: int = 0
    source: str = ""
    findings: list[Finding] = field(default_factory=list)
    causes: list[Cause] = field(default_factory=list)
    inherited: float | None = None
    outside: bool = False
    dtype: str = ""
    cut_short: bool = False
    tried_s: float = 0.0
    astray: Astray | None = None

    def __post_init__(self) -> None:
        drop_non_finite(self, "inherited")


@dataclass(frozen=True, kw_only=True)
class ModuleEvidence:
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
        drop_non_finite(self, "inherited", "introduced")


@dataclass(frozen=True, kw_only=True)
class Parity:
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
    notes: list[str] = field(default_factory=list)
    readings: dict[str, str] = field(default_factory=dict)
    error: str = ""
    duration_s: float = 0.0
    dtype: str = "float32"
    divergences: list[Divergence] = field(default_factory=list)
    modules: list[ModuleEvidence] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return self.equal and self.precise and not self.error

    @property
    def is_precision_judged(self) -> bool:
        """Whether some tensor was large enough for statistics of its rounding, or grossly wrong in the dtype in use."""
        return not self.precise or any(t.ratio is not None for t in self.tensors)

    @property
    def worst_error(self) -> Tensor | None:
        """The tensor with the largest float64 error, a failed one before any that passed."""
        judged = [t for t in self.tensors if t.error is not None or not t.equal]
        return max(judged, key=lambda t: (not t.equal, or_infinite(t.error)), default=None)

    @property
    def worst_ratio(self) -> Tensor | None:
        """The tensor with the largest float32 error ratio, a failed one before any that passed."""
        judged = [t for t in self.tensors if t.ratio is not None or not t.precise]
        return max(judged, key=lambda t: (not t.precise, or_infinite(t.ratio)), default=None)
