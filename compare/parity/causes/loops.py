"""The state of a loop in the reference, where the port's is one turn behind, or is not carried from turn to turn."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from .ancestry import Ancestry, tensors_of
from .change import Change, Replaced, Site
from .sites import constructs, is_floating
from .variants import Variant
from .wiring import unused

BETWEEN = 0.25  # after a call, and before modules inside are called


class Loop(NamedTuple):
    """Calls that are made in each of its turns.

    Attributes:
      starts: the number of the first of them, in each turn.
      ends: of the last.
    """

    calls: list[list[Site]]
    starts: list[int]
    ends: list[int]


class State(NamedTuple):
    """A tensor that each turn takes from the one before.

    Attributes:
      numbers: of the tensors, as each turn takes it.
      words: what a turn gives.
      shape: of each.
    """

    numbers: list[int]
    words: str
    shape: tuple[int, ...]


def not_carried(ancestry: Ancestry) -> Iterator[tuple[Variant, Change]]:
    """Each turn begins with what the first one does."""
    for loop in _loops(ancestry.sites):
        for state in _states(loop, ancestry):
            first, *later = state.numbers
            replaced = tuple(
                Replaced(number, first, end + BETWEEN, loop.ends[-1] + 1 - BETWEEN)
                for number, end in zip(later, loop.ends[:-1], strict=True)
            )
            says = f"begins each turn of a loop as the first one: {state.words} is not carried to the next"
            fix = "return it in the carry of the scan"
            yield Variant("state-not-carried", says, fix, unused), Change(replaced=replaced)


def one_turn_behind(ancestry: Ancestry) -> Iterator[tuple[Variant, Change]]:
    """A call takes the state from before a turn's step; or one after the loop does, of all turns."""
    for loop in _loops(ancestry.sites):
        for state in _states(loop, ancestry):
            for name, calls, given in _taken(loop, ancestry):
                pairs = list(zip(given, state.numbers, strict=True))
                if any(new == old or ancestry.tensors[new][2].shape != state.shape for new, old in pairs):
                    continue
                replaced = tuple(
                    Replaced(new, old, call.number, call.number) for (new, old), call in zip(pairs, calls, strict=True)
                )
                usual = _in_any_turn(ancestry.tensors[given[-1]][0])
                yield _behind(name, calls, usual), Change(replaced=replaced)


def _behind(name: str, calls: list[Site], usual: str) -> Variant:
    """What it is that calls take the state from before a turn; a condition of the loop ends it a turn later by that."""
    if all(_is_one_truth(call.result) for call in calls):
        says = "takes a turn of the loop more than the reference, or does not hold in it all that the loop carries"
        fix = "hold each part of the carry by jnp.where(live, new, old), live by the state that the turn begins with"
        return Variant("turn-too-many", says, fix, unused)
    says = f"gives {name} the state from before a turn of the loop, where the reference gives {usual} in it"
    return Variant("state-behind", says, "let the scan hand out what its step has computed", unused)


def _is_one_truth(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.dtype == torch.bool and x.numel() == 1


def _loops(sites: list[Site]) -> list[Loop]:
    """Of calls that are made equally often, one after the other in each turn."""
    found: list[Loop] = []
    waiting = [same for same in constructs(sites) if len(same) > 1]
    while waiting:
        first = waiting[0]
        calls = [same for same in waiting if len(same) == len(first) and _is_in_turn(same, first)]
        waiting = [same for same in waiting if same not in calls]
        ends = [max(site.number for site in turn) for turn in zip(*calls, strict=True)]
        found.append(Loop(calls, [site.number for site in first], ends))
    return found


def _is_in_turn(same: Sequence[Site], first: Sequence[Site]) -> bool:
    ends = [*(site.number for site in first[1:]), math.inf]
    return all(a.number <= b.number < end for a, b, end in zip(first, same, ends, strict=True))


def _states(loop: Loop, ancestry: Ancestry) -> list[State]:
    found: dict[tuple[int, ...], State] = {}
    for tensors in _of_turns(loop, ancestry):
        numbers = [ancestry.number(x) for x in tensors]
        if None in numbers or len({x.shape for x in tensors}) > 1:
            continue
        made = [ancestry.tensors[number][1] for number in numbers]  # type: ignore[index]
        turns = zip(loop.starts[:-1], made[1:], loop.starts[1:], strict=True)
        if made[0] <= loop.starts[0] and all(start < now <= end for start, now, end in turns):
            words = _in_any_turn(ancestry.tensors[numbers[-1]][0])  # type: ignore[index]
            found[tuple(numbers)] = State(numbers, words, tensors[0].shape)  # type: ignore[arg-type]
    return list(found.values())


def _of_turns(loop: Loop, ancestry: Ancestry) -> Iterator[tuple[torch.Tensor, ...]]:
    """What a function, or a module inside, is given in each turn."""
    for same in loop.calls:
        yield from zip(*(_floating(site) for site in same), strict=False)
    for path in dict.fromkeys(call.path for call in ancestry.inside):
        calls = [call for call in ancestry.inside if call.path == path]
        if len(calls) == len(loop.starts):
            yield from zip(*(filter(is_floating, call.given) for call in calls), strict=False)


def _taken(loop: Loop, ancestry: Ancestry) -> Iterator[tuple[str, list[Site], list[int]]]:
    """Calls, and what they take that each turn makes: one call in each turn, or one after the loop."""
    for same in loop.calls:
        for tensors in zip(*(_floating(site) for site in same), strict=False):
            numbers = [ancestry.number(x) for x in tensors]
            if None not in numbers and _turns(numbers, loop, ancestry) == list(range(len(same))):
                yield same[0].name, same, numbers  # type: ignore[misc]
    for site in ancestry.sites:
        if site.number > loop.ends[-1]:
            known = [number for x in _floating(site) if (number := ancestry.number(x)) is not None]
            made = [number for number in known if ancestry.tensors[number][1] > loop.starts[0]]
            if _turns(made, loop, ancestry) == list(range(len(loop.starts))):
                yield site.name, [site] * len(made), made


def _turns(numbers: Sequence[int | None], loop: Loop, ancestry: Ancestry) -> list[int]:
    """In which turn of the loop each of the tensors is made."""
    made = [ancestry.tensors[number][1] for number in numbers if number is not None]
    return [sum(now > start for start in loop.starts) - 1 for now in made]


def _in_any_turn(words: str) -> str:
    return re.sub(r", call \d+", "", words)


def _floating(site: Site) -> list[torch.Tensor]:
    return [x for x in tensors_of(site.args) if is_floating(x)]
