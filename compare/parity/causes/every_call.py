"""All calls of a module of the reference, one after the other: what each gives, what they leave in its buffers, and
their gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import torch

from ...torch_side import Snapshot
from ..inside.calls import CallId, Calls
from .change import Change
from .changed import Evidence, Key
from .replay import Replay


class EveryCall(Replay):
    """The calls of a module that is called several times, each under the same change.

    Args:
      calls: the record.
      at: the calls, in order.
      model, forced, backward: as of one call.
      unseen: of the calls, those of which nothing is shown but what they leave in buffers.
    """

    goes_on = True

    def __init__(
        self,
        model: torch.nn.Module,
        calls: Calls,
        at: Sequence[CallId],
        forced: set[CallId],
        backward: bool,
        unseen: Collection[CallId] = (),
    ):
        super().__init__(model, calls, at[0], forced, backward)
        self.count = len(at)
        self.hidden = frozenset(number for number, each in enumerate(at) if each in unseen)
        self.further = [Replay(model, calls, each, forced, backward) for each in at[1:]]
        for each in self.further:
            each.goes_on = True

    def run(self, change: Change, *, forward_only: bool = False, **how: Any) -> Evidence:
        total: Evidence = {}
        seen = 0
        runs: list[Callable[..., Evidence]] = [
            functools.partial(super().run, **how),
            *(each.run for each in self.further),
        ]
        with Snapshot.of_buffers(self.module).restored(), self._as_it_began():
            for number, run in enumerate(runs):
                for key, value in run(_in_call(change, number), forward_only=forward_only).items():
                    if key[0] == "buffer":
                        total[key] = value
                    elif number not in self.hidden:
                        shown = key if key[0] == "parameter_gradient" else of_call(key, seen)
                        total[shown] = total[shown] + value if shown in total else value
                seen += number not in self.hidden
        return total


def of_call(key: Key, number: int) -> Key:
    """The key of what one of several calls shows, the first of which is 0."""
    what, name = key
    return what, f"{name}, call {number + 1}" if number else name


def _in_call(change: Change, number: int) -> Change:
    """What of a change is so in one of several calls."""
    if change.unwritten_in and number not in change.unwritten_in:
        return replace(change, unwritten=frozenset())
    return change
