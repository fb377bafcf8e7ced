"""A module inside that is called in another order, which tells where it keeps something from call to call."""

from __future__ import annotations

import itertools

import numpy as np

from ...report.records import Cause
from .replay import Replay
from .target import EXPLAINED, Aim, Target

MOST = 6  # calls


def other_order(replay: Replay, target: Target) -> Cause | None:
    """Each call of a module inside is given what another one is given in the reference, and not what it is.

    Args:
      replay: of the module around.
      target: what is off in it.
    """
    for path, calls in replay.children.items():
        aims = [[target.aims.get(("received", f"{name} of {id}")) for name in replay.calls[id].inputs] for id in calls]
        if not 1 < len(calls) <= MOST or any(aim is None for given in aims for aim in given):
            continue
        given = [[aim for aim in each if aim is not None] for each in aims]
        orders = [
            order
            for order in itertools.permutations(range(len(calls)))
            if all(_residual(given[here], given[there]) <= EXPLAINED for here, there in enumerate(order))
        ]
        # of calls that are given the same, each may stand for the other
        order = max(orders, key=_kept, default=())
        if orders and _kept(order) < len(calls):
            named = ", ".join(str(place + 1) for place in order)
            return Cause(
                id="call-order",
                says=f"calls {path} in another order: on what the reference's calls {named} are given",
                fix=f"call {path} in the reference's order: it keeps something from call to call",
                residual=max(_residual(given[here], given[there]) for here, there in enumerate(order)),
            )
    return None


def _kept(order: tuple[int, ...]) -> int:
    """How many calls are where they were."""
    return sum(here == there for here, there in enumerate(order))


def _residual(here: list[Aim], there: list[Aim]) -> float:
    """How far what the port gives one call is from what the reference gives another."""
    pairs = list(zip(here, there, strict=False))
    if len(here) != len(there) or not pairs or any(a.port.shape != b.reference.shape for a, b in pairs):
        return np.inf
    return max(a.residual(b.reference) for a, b in pairs)
