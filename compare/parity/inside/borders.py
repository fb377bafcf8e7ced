"""What is seen at the borders of the port's calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ..yardstick import difference
from .calls import CallId
from .layouts import Pair

What = Literal["received", "output", "received_cotangent", "input_gradient"]
Matches = Mapping[CallId, CallId]  # calls of the port to those of the reference
Forward = tuple[list["Seen"], dict[str, np.ndarray]]  # what calls receive and give, and buffers after it


@dataclass(frozen=True)
class Seen:
    """A tensor at the border of a call, in the reference's layout.

    Attributes:
      at: the port's call.
      around: the call that it was made in, of those that have a counterpart; None for the model's own.
      what: on which side of the call, and of which pass.
      name: of the tensor in the reference's call.
      port, reference: the values, of different shapes where no layout makes them the same.
      is_beyond: whether it is what stands beyond what counts, of which the reference has nothing.
    """

    at: CallId
    around: CallId | None
    what: What
    name: str
    port: np.ndarray
    reference: np.ndarray
    is_beyond: bool = False


@dataclass(frozen=True)
class Backward:
    """A backward pass: what calls receive and give, the gradients of parameters and of the model's inputs, and which
    inputs of calls hand on a gradient where the reference takes none by them."""

    seen: list[Seen]
    by_parameters: dict[str, np.ndarray]
    by_inputs: dict[str, np.ndarray]
    passed: list[tuple[CallId, str]] = field(default_factory=list)


@dataclass
class Borders:
    """Which of a call's tensors stand for which of the reference's, and the call that it was made in."""

    inputs: list[Pair] = field(default_factory=list)
    outputs: list[Pair] = field(default_factory=list)
    around: CallId | None = None


def giving_others(seen: Sequence[Seen]) -> set[str]:
    """The modules that give other values than the reference's."""
    given = (one for one in seen if one.what == "output")
    return {one.at.path for one in given if not difference(one.port, one.reference).equal}


def going_wrong(seen: Sequence[Seen]) -> set[str]:
    """Those, and the modules that hand other values to modules inside."""
    handed = (one for one in seen if one.what == "received" and one.around is not None)
    wrong = [one for one in handed if not difference(one.port, one.reference).equal]
    return giving_others(seen) | {one.around.path for one in wrong if one.around is not None}
