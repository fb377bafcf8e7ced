"""What further questions find of a port that is equal so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..report.records import Divergence, Tensor
from .differences import Differences
from .doubts import settled, unequal

if TYPE_CHECKING:
    from ..jax_side import PortSide
    from .examination import Examination


@dataclass
class Further:
    """What is off on further inputs, or with other weights, and where; nothing mostly.

    Attributes:
      labels: of the inputs that were asked.
    """

    labels: list[str] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    divergences: list[Divergence] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def further(exam: Examination, variant: str, port: PortSide) -> Further:
    """What an examination finds of a port on its truths."""
    apart = Differences(exam.case, exam.judge, exam.scales)
    differences = [apart.of(truth, exam.answer(port, truth, "jax", variant)) for truth in exam.truths]
    _, _, differences, notes = settled(exam, variant, port, exam.truths, differences)
    found = Further([truth.question.label for truth in exam.truths])
    if unequal(differences):
        found.tensors = [each for each in exam.tensors(differences) if not each.equal]
        seen = exam.seen_inside(variant, found.tensors)
        found.divergences, found.notes = seen.divergences, notes + seen.notes
    return found
