"""Modules that begin or end elsewhere in the port than in the reference, without anything being wrong."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..yardstick import difference

if TYPE_CHECKING:
    from .borders import Forward, Seen, What
    from .calls import CallId

MOST_TRIED = 4  # modules within one, one by one
OTHERWISE = 0.05  # of a tensor's scale: what is nearer are the same numbers, less exactly, as after a cast


class Wrong(NamedTuple):
    """What is off within a module although all that it receives is right: what it hands to modules inside and gives,
    and the modules inside that give something else than the reference's."""

    seen: frozenset[tuple[CallId, What, str]] = frozenset()
    givers: frozenset[str] = frozenset()


def ending_elsewhere(seen: Sequence[Seen], run: Callable[[Collection[str]], Forward | None]) -> set[str] | None:
    """The paths of modules that give something else than the reference's and are right as parts of what is around them.

    Such as what no activation has gone through yet, where the activation is applied around them: with the reference's
    value in its place, it is applied twice. Where the module is a part of what is around it, less is off there, and
    nothing that was not.

    Args:
      seen: of a run in which each call hands on the reference's values.
      run: the same with the modules of some paths as parts of what is around them; None where that fails.

    Returns:
      None where no module was tried, and nothing was run.
    """
    before = _wrong_around(seen)
    left = {around: wrong.givers for around, wrong in before.items() if wrong.givers}
    found: set[str] | None = None
    for parts in _tried(left):
        again = run(set().union(*parts.values()))
        found = found or set()
        if again is None:
            continue
        after = _wrong_around(again[0])
        for around, paths in parts.items():
            off, was = after.get(around, Wrong()).seen, before[around].seen
            if off < was or not (off or was):
                found |= paths
                del left[around]
    return found


def _wrong_around(seen: Sequence[Seen]) -> dict[str, Wrong]:
    """By the path of the module."""
    found: dict[str, Wrong] = {}
    for one in seen:
        apart = difference(one.port, one.reference)
        if apart.equal:
            continue
        holder = one.at if one.what == "output" else one.around
        if holder is not None:
            own = found.get(holder.path, Wrong())
            found[holder.path] = own._replace(seen=own.seen | {(one.at, one.what, one.name)})
        if one.what == "output" and one.around is not None and apart.error > OTHERWISE:
            own = found.get(one.around.path, Wrong())
            found[one.around.path] = own._replace(givers=own.givers | {one.at.path})
    return found


def _tried(left: Mapping[str, frozenset[str]]) -> Iterator[dict[str, frozenset[str]]]:
    """By the module around them: all of each, then those that are left one by one."""
    if left:
        yield dict(left)
    several = {around: sorted(parts) for around, parts in left.items() if len(parts) > 1}
    for number in range(min(max(map(len, several.values()), default=0), MOST_TRIED)):
        one = {around: frozenset([parts[number]]) for around, parts in several.items() if number < len(parts)}
        if tried := {around: parts for around, parts in one.items() if around in left}:
            yield tried
