"""Whether a limit of a reference's function, or a number that it compares with, may be another one, and nothing that
was asked tells them apart: the floor of a logarithm that only zeros get to, which a mask takes out again."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from torch.overrides import TorchFunctionMode

from .function_limits import CLAMPS, COMPARISONS, place_of
from .yardstick import difference, magnitude

if TYPE_CHECKING:
    from ..case import Inputs, Mode
    from ..torch_side import TorchSide
    from .judge import Truth

LONGEST_S = 3.0  # for one limit


class _OtherLimit(TorchFunctionMode):
    """Within it, what is called at a place has another number where it has this one."""

    def __init__(self, place: str, limit: float, other: float):
        self.place, self.limit, self.other = place, limit, other

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "").strip("_")
        if (name in CLAMPS or name in COMPARISONS) and place_of(sys._getframe(1)) == self.place:
            args = args[:1] + tuple(map(self._instead, args[1:]))
            kwargs = {name: self._instead(value) for name, value in kwargs.items()}
        return func(*args, **kwargs)

    def _instead(self, value: Any) -> Any:
        return self.other if isinstance(value, int | float) and value == self.limit else value


def is_told(
    side: TorchSide,
    truths: Iterable[Truth],
    place: str,
    limit: float,
    other: float,
    in_turns: Callable[[], Sequence[Sequence[tuple[Mode, Inputs]]]] = tuple,
) -> bool:
    """Whether the reference answers otherwise with another number, on these or in calls one after the other; also where
    there is no time to find out."""
    until = time.monotonic() + LONGEST_S
    for truth in truths:
        question, answer = truth.question, truth.reference
        if question.mode == "train_step" or question.is_timed:
            continue
        try:
            with _OtherLimit(place, limit, other):
                found = side.run(question.inputs, question.mode, question.cotangents)
        except Exception:
            return True
        for kind, name, wanted in answer.tensors():
            given = found.find((kind, name))
            if given is None or not difference(given, wanted, magnitude(wanted)).equal:
                return True
        if time.monotonic() > until:
            return True
    return any(_is_told_in_turn(side, _OtherLimit(place, limit, other), calls, until) for calls in in_turns())


def _is_told_in_turn(
    side: TorchSide, with_another: _OtherLimit, calls: Sequence[tuple[Mode, Inputs]], until: float
) -> bool:
    try:
        with side.as_it_was():
            wanted = list(itertools.takewhile(lambda _: time.monotonic() < until, side.each_call(calls)))
        with side.as_it_was(), with_another:
            given = list(itertools.islice(side.each_call(calls), len(wanted)))
    except Exception:
        return True
    pairs = zip(given, wanted, strict=True)
    return time.monotonic() > until or any(
        not difference(found.get((kind, name)), x, magnitude(x)).equal
        for found, want in pairs
        for kind, name, x in want.tensors()
    )
