"""All calls of a module of the reference, one after the other: what each gives, what they leave in its buffers, and
their gradients."""

from __future__ import annotations

from collections.abc import Sequence
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
    """

    goes_on = True

    def __init__(self, model: torch.nn.Module, calls: Calls, at: Sequence[CallId], forced: set[CallId], backward: bool):
        super().__init__(model, calls, at[0], forced, backward)
        self.further = [Replay(model, calls, each, forced, backward) for each in at[1:]]
        for each in self.further:
            each.goes_on = True

    def run(self, change: Change, *, forward_only: bool = False, **how: Any) -> Evidence:
        with Snapshot.of_buffers(self.module).restored(), self._as_it_began():
            total = super().run(change, forward_only=forward_only, **how)
            for number, each in enumerate(self.further, 1):
                for key, value in each.run(change, forward_only=forward_only).items():
                    if key[0] == "buffer":
                        total[key] = value
                    elif key[0] == "parameter_gradient":
                        total[key] = total[key] + value
                    else:
                        total[of_call(key, number)] = value
        return total


def of_call(key: Key, number: int) -> Key:
    """The key of what one of several calls shows, the first of which is 0."""
    what, name = key
    return what, f"{name}, call {number + 1}" if number else name
