"""What `graphmode train` was asked for: a training by name or location, ways of running PyTorch by name."""

from __future__ import annotations

from collections.abc import Sequence

from ..case import Case
from ..locate import is_location, locate
from ..speed.rows import RowError
from .record import Training, training_of
from .torch_steps import KINDS, Kind


def as_training(text: str) -> Training:
    """The training of this name or location; of a case, the one that follows from its optimizer and loss.

    Raises:
      CaseError: where there is none, or the case has no optimizer or loss.
    """
    from graphmode.models import zoo

    if text in zoo.TRAININGS:
        return zoo.load_training(text)
    if text in zoo.CASES:
        return training_of(zoo.load(text), text)
    if not is_location(text):
        return zoo.load_training(text)  # which tells what there is
    found: Training | Case = locate(text, (Training, Case), "training")
    return training_of(found, text) if isinstance(found, Case) else found


def kinds_of(rows: Sequence[str] | None) -> tuple[Kind, ...] | None:
    """`torch.compile` as `compile`; None for none.

    Raises:
      RowError: for another row.
    """
    if not rows:
        return None
    known = {f"torch.{kind}": kind for kind in KINDS}
    if unknown := [row for row in rows if row not in known]:
        raise RowError(f"--row is {', '.join(unknown)}; choose from {', '.join(known)}")
    return tuple(known[row] for row in dict.fromkeys(rows))
