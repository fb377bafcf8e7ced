"""`check`: both verdicts on every port of a case, with the evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..case import Case
from ..functional_dropout import functional_dropout_off
from ..report.certificates import Certificate
from ..report.checks import CheckRecord, save_check
from ..report.records import Cause, Divergence, Parity
from .certificate import certificate, certify
from .examination import DRAWS, Examination
from .summary import summary


@dataclass
class CheckReport:
    """What `check` found: one `Parity` for each port, and for each further variant of the reference.

    Attributes:
      case: its name.
      parity: verdicts with their evidence, as they go into `results.json`.
    """

    case: str
    parity: list[Parity] = field(default_factory=list)
    _certificate: Certificate | None = None

    def certificate(self) -> Certificate:
        """Everything that the verdicts were found with: versions, flags, hashes of weights and inputs."""
        assert self._certificate is not None, "check made this report"
        return self._certificate

    def save(self, path: Path, *, test: str = "") -> None:
        """Writes the verdicts with all their evidence as JSON; `test` is who asked for them.

        Raises:
          ResultsError: where the file cannot be written.
        """
        record = CheckRecord(
            case=self.case,
            test=test,
            passed=self.passed,
            certificate=self.certificate().digest,
            parity=self.parity,
            text=str(self),
        )
        save_check(record, path)

    @property
    def equal(self) -> bool:
        return all(p.equal for p in self.parity)

    @property
    def precise(self) -> bool:
        return all(p.precise for p in self.parity)

    @property
    def passed(self) -> bool:
        return bool(self.parity) and all(p.passed for p in self.parity)

    @property
    def divergences(self) -> list[Divergence]:
        """The modules that introduce error, of every port that is not equal, first ones first."""
        return [each for p in self.parity for each in p.divergences]

    @property
    def first_divergence(self) -> Divergence | None:
        return next(iter(self.divergences), None)

    @property
    def causes(self) -> list[Cause]:
        """What explains the divergences, of those that something explains."""
        return [cause for each in self.divergences for cause in each.causes]

    def __str__(self) -> str:
        return summary(self)


def check(
    case: Case,
    *,
    seed: int = 0,
    draws: int = DRAWS,
    dtype: str = "float32",
    device: str = "cpu",
    locate: bool = True,
    inside: bool = False,
    compiled: bool = True,
    hasty: bool = False,
    on_verdict: Callable[[Parity], None] = lambda _: None,
) -> CheckReport:
    """Compares every port of a case, and every further variant of its reference, with the judge.

    Outputs in evaluation mode; outputs, gradients of every parameter and floating input, and buffers after the step in
    training mode; for `draws` random inputs, every edge input, and inputs of the check's own that are derived from them
    (zeros, ties, small, large and few values, a large mean, one sign, masks of one value, a batch of one); a port that
    is equal on all of these also after further calls where it keeps state, and with other weights. With an optimizer
    also what `TRAIN_STEPS` steps of training add to each parameter, the outputs of the last one and the buffers after
    it, for the random inputs; and what the optimizer by itself makes of given gradients. The optimizers' states are not
    compared: sides that step alike may keep other numbers. The verdict *equal* is found in float64, *precise* in
    `dtype`.

    Args:
      case: what to compare.
      seed: repeats a run.
      draws: how many random inputs.
      dtype: that people run: `"float32"`, `"bfloat16"`, or on a GPU `"tf32"`.
      device: `"cpu"` or `"gpu"`.
      locate: whether to look inside a port that is not equal, for the modules that introduce the error, and why.
      inside: whether to look inside ports that are equal, too: `Parity.modules` then has every module, the one that
        stands for it, and its error.
      compiled: False for a port that runs operation by operation: for tiny ones, whose graphs take longest to compile.
      hasty: whether to judge the precision of those ports alone that are equal.
      on_verdict: called with each verdict as it is found.

    Raises:
      CaseError: where the case cannot be compared as it is written, such as another structure of outputs.
      DtypeError: where there is no such dtype, or the device has it not.
      TypeError, ValueError: where another argument is not as above.
      WeightsError: where the weights do not match a port.
      ImportError: where PyTorch is not installed.

    Example:
      >>> from graphmode.models import zoo
      >>> check(zoo.load("scale_add")).passed
      True
    """
    __tracebackhide__ = True
    _check_arguments(case, seed, draws, device)
    how: dict[str, Any] = {"locate": locate, "inside": inside, "compiled": compiled, "hasty": hasty}
    with functional_dropout_off():
        return _checked(case, device, on_verdict, seed=seed, draws=draws, dtype=dtype, **how)


def _checked(case: Case, device: str, on_verdict: Callable[[Parity], None], **how: Any) -> CheckReport:
    exam = Examination(case, device=device, **how)
    report = CheckReport(case.name)
    for parity in exam.verdicts():
        report.parity.append(parity)
        on_verdict(parity)
    report._certificate = certificate([certify(exam, report.parity)], device)
    return report


def _check_arguments(case: object, seed: object, draws: object, device: object) -> None:
    __tracebackhide__ = True
    if not isinstance(case, Case):
        raise TypeError(f"case is {case!r}, of type {type(case).__name__}; give a graphmode.compare.Case")
    for name, value, least in (("seed", seed, 0), ("draws", draws, 1)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise TypeError(f"{name} is {value!r}, of type {type(value).__name__}; give an int of at least {least}")
        if value < least:
            raise ValueError(f"{name} is {value}; give at least {least}")
    if device not in ("cpu", "gpu"):
        raise ValueError(f"device is {device!r}; choose 'cpu' or 'gpu'")
