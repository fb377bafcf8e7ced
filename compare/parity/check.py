"""`check`: both verdicts on every port of a case, with the evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ..case import Case
from ..report.records import Cause, Divergence, Parity
from .diagnosis import told
from .examination import DRAWS, Examination


@dataclass
class CheckReport:
    """What `check` found: one `Parity` for each port, and for each further variant of the reference.

    Attributes:
      case: its name.
      parity: verdicts with their evidence, as they go into `results.json`.
    """

    case: str
    parity: list[Parity] = field(default_factory=list)

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
        lines = [f"{self.case}: {'passed' if self.passed else 'FAILED'}"]
        for p in self.parity:
            side = "port" if p.side == "jax" else "reference"
            lines.append(f"  {side} {p.variant}: {_verdict(p)}")
            lines += [f"    {line}" for each in p.divergences for line in told(each)]
            lines += [f"    {line}" for line in _evidence(p)]
            lines += [f"    note: {note}" for note in p.notes]
        return "\n".join(lines)


def check(
    case: Case,
    *,
    seed: int = 0,
    draws: int = DRAWS,
    dtype: str = "float32",
    device: str = "cpu",
    locate: bool = True,
    compiled: bool = True,
    on_verdict: Callable[[Parity], None] = lambda _: None,
) -> CheckReport:
    """Compares every port of a case, and every further variant of its reference, with the judge.

    Outputs in evaluation mode; outputs, gradients of every parameter and floating input, and buffers after the step in
    training mode; for `draws` random inputs and every edge input. With an optimizer also what `TRAIN_STEPS` steps of
    training add to each parameter, the outputs of the last one and the buffers after it, for the random inputs; and
    what the optimizer by itself makes of given gradients. The optimizers' states are not compared: sides that step
    alike may keep other numbers. The verdict *equal* is found in float64, *precise* in `dtype`.

    Args:
      case: what to compare.
      seed: repeats a run.
      draws: how many random inputs.
      dtype: that people run: `"float32"`, `"bfloat16"`, or on a GPU `"tf32"`.
      device: `"cpu"` or `"gpu"`.
      locate: whether to look inside a port that is not equal, for the modules that introduce the error, and why.
      compiled: False for a port that runs operation by operation: for tiny ones, whose graphs take longest to compile.
      on_verdict: called with each verdict as it is found.

    Raises:
      CaseError: where the case cannot be compared as it is written, such as another structure of outputs.
      WeightsError: where the weights do not match a port.
      ImportError: where PyTorch is not installed.

    Example:
      >>> from graphmode.models import zoo
      >>> check(zoo.load("scale_add")).passed
      True
    """
    exam = Examination(case, seed=seed, draws=draws, dtype=dtype, device=device, locate=locate, compiled=compiled)
    report = CheckReport(case.name)
    for parity in exam.verdicts():
        report.parity.append(parity)
        on_verdict(parity)
    return report


def _verdict(parity: Parity) -> str:
    if parity.error:
        return parity.error
    return f"{'equal' if parity.equal else 'NOT EQUAL'} and {'precise' if parity.precise else 'NOT PRECISE'}"


def _evidence(parity: Parity) -> Iterable[str]:
    """The tensors that failed, or the worst of those that passed."""
    failed = [t for t in parity.tensors if not (t.equal and t.precise)]
    for t in failed[:10] or filter(None, [parity.worst_error]):
        size = "" if t.error is None else f"error {t.error:.2g} of its scale"
        values = f" ({t.port_value} for {t.reference_value})" if t.port_value else ""
        ratio = "" if t.ratio is None else f", error ratio {t.ratio:.2f}"
        yield f"{t.mode} {t.kind} {t.name} on {t.input!r} at {list(t.index)}: {size}{values}{ratio} {t.note}".rstrip()
    if len(failed) > 10:
        yield f"and {len(failed) - 10} more tensors"
