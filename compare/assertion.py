"""`assert_parity`: a check as a test suite wants it, which fails with the report as its message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .case import Case
    from .parity.check import CheckReport

MESSAGE_WIDTH = 112  # pytest puts eight columns before the first line of a message, and four before the others


@dataclass(frozen=True)
class Refusal:
    """A check that could not be made: the name or location of its case, and why."""

    case: str
    problem: str


recorders: list[Callable[[CheckReport | Refusal], None]] = []  # each hears of every check, passed or not
seeds: list[int] = []  # the last one is that of a check which names none


def assert_parity(
    case: Case | str,
    *,
    seed: int | None = None,
    draws: int = 3,
    dtype: str = "float32",
    device: str = "cpu",
) -> CheckReport:
    """Checks every port of a case, as `check` does, and fails where one is not equal or not precise.

    Args:
      case: what to compare; or where it is, `"path/to/file.py:NAME"` or `"package.module:NAME"`.
      seed: of weights, inputs and cotangents; where None, that of `pytest --parity-seed`, or 0.
      draws: how many random inputs.
      dtype: that people run: `"float32"`, `"bfloat16"`, or on a GPU `"tf32"`.
      device: `"cpu"` or `"gpu"`.

    Returns:
      The report, where everything is equal and precise.

    Raises:
      AssertionError: where something is not; its text is the report, and fits one screen.
      CaseError: where the case cannot be compared as it is written.
      DtypeError: where there is no such dtype, or the device has it not.
      TypeError, ValueError: where another argument is not as above.
      WeightsError: where the weights do not match a port.

    Example:
      >>> from graphmode.models import zoo
      >>> assert_parity(zoo.load("scale_add")).passed
      True
    """
    __tracebackhide__ = True
    report = recorded_check(case, seed=seed, draws=draws, dtype=dtype, device=device)
    if not report.passed:
        raise AssertionError(failure(report))
    return report


def recorded_check(case: Case | str, *, seed: int | None = None, **settings: object) -> CheckReport:
    """`check` on a case or its location, told to every recorder."""
    __tracebackhide__ = True
    from .locate import locate
    from .parity.check import check

    try:
        chosen = locate(case) if isinstance(case, str) else case
        seed = next(iter(seeds[-1:]), 0) if seed is None else seed
        report = check(chosen, seed=seed, **settings)  # type: ignore[arg-type]
    except refusals() as error:
        for record in recorders:
            record(Refusal(getattr(case, "name", str(case)), str(error)))
        # the message says all that there is to mend; where the harness found it says nothing to a test's reader
        error.__dict__.pop("__notes__", None)  # JAX's, of how to see more frames
        raise error.with_traceback(None) from None
    for record in recorders:
        record(report)
    return report


def refusals() -> tuple[type[ValueError], ...]:
    """What is raised of a case that cannot be compared."""
    from graphmode.weights import WeightsError

    from .case import CaseError
    from .dtypes import DtypeError

    return CaseError, DtypeError, WeightsError


def failure(report: CheckReport) -> str:
    """The message of a check that failed."""
    from .parity.summary import summary

    return summary(report, width=MESSAGE_WIDTH)
