"""Modules that begin or end elsewhere in the port than in the reference, without anything being wrong."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..yardstick import difference
from .calls import is_inside

if TYPE_CHECKING:
    from .borders import Forward, Seen, What
    from .calls import CallId

MOST_TRIED = 4  # modules within one, one by one
MOST_GROUPS = 6  # of modules that are handed something else
OTHERWISE = 0.05  # of a tensor's scale: what is nearer are the same numbers, less exactly, as after a cast


Border = tuple["CallId", "What", str]
Run = Callable[[Collection[str]], "Forward | None"]


class Wrong(NamedTuple):
    """What is off within a module although all that it receives is right: what it hands to modules inside and gives,
    and the modules inside that give something else than the reference's, of another shape some, or are handed that, of
    which some are handed the same rows in another order."""

    seen: frozenset[Border] = frozenset()
    givers: frozenset[str] = frozenset()
    reshaping: frozenset[str] = frozenset()
    takers: frozenset[str] = frozenset()
    reordered: frozenset[str] = frozenset()


def beginning_elsewhere(seen: Sequence[Seen], run: Run) -> set[str] | None:
    """The paths of modules that are handed something else than the reference's, and are right as parts of what is
    around them: with the reference's value in its place something inside them goes wrong.

    Such as what something is added to around them which the reference adds inside them: on the reference's value it is
    added nowhere. Where the module is a part of what is around it, all around it is right that was, what was off is off
    as it was, and what went wrong inside it is right, or some of it.

    Args:
      seen: of a run in which each call hands on the reference's values.
      run: the same with the modules of some paths as parts of what is around them; None where that fails.

    Returns:
      None where no module was tried, and nothing was run.
    """
    before = _wrong_around(seen)
    found: set[str] | None = None
    for around, paths in itertools.islice(_taking(before), MOST_GROUPS):
        found = found or set()
        if around in found or paths <= found:
            continue
        again = run(found | paths)
        if again is None:
            continue
        off = _wrong_around(again[0]).get(around, Wrong()).seen
        inside = frozenset().union(*(before[path].seen for path in paths if path in before))
        inner, beside = (frozenset(x for x in y if x[0].path not in paths) for y in (inside, before[around].seen))
        if off <= beside | inner and not (inner and inner <= off) and not _moves(off & beside, seen, again[0]):
            found |= paths
    return found


def _moves(borders: Collection[Border], before: Sequence[Seen], after: Sequence[Seen]) -> bool:
    """Whether something is off otherwise than before: so a module that is right as a part of what is around it makes no
    difference to what is off there anyhow."""
    was = {(one.at, one.what, one.name): one.port for one in before}
    is_now = {(one.at, one.what, one.name): one.port for one in after}
    return any(each in is_now and not difference(is_now[each], was[each]).equal for each in borders)


def _taking(wrong: Mapping[str, Wrong]) -> Iterator[tuple[str, frozenset[str]]]:
    """Modules, and those inside each that are handed something else, with the modules within these down to where
    something is off: all at once, then one by one."""
    for around, own in wrong.items():
        parts = {
            path: found
            for path in sorted(own.takers)
            if (found := _down_to_wrong(path, wrong) or own.reordered & {path})
        }
        if parts:
            yield around, frozenset().union(*parts.values())
        if len(parts) > 1:
            yield from ((around, each) for each in parts.values())


def _down_to_wrong(path: str, wrong: Mapping[str, Wrong]) -> frozenset[str]:
    """A module and those within it in which something is off, with those between."""
    found: set[str] = set()
    for inner, own in wrong.items():
        if own.seen and is_inside(inner, path):
            names = inner.split(".")
            found |= {".".join(names[:end]) for end in range(path.count(".") + 1, len(names) + 1)}
    return frozenset(found)


def ending_elsewhere(seen: Sequence[Seen], run: Run) -> set[str] | None:
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
    was = {around: before[around].seen for around in left}
    found: set[str] | None = None
    for parts in _tried(left, {around: wrong.reshaping for around, wrong in before.items()}):
        found = found or set()
        again = run(found.union(*parts.values()))
        if again is None:
            continue
        after = _wrong_around(again[0])
        for around, paths in parts.items():
            off = after.get(around, Wrong()).seen
            beside = frozenset(x for x in was[around] if x[0].path not in paths)  # theirs are seen no more
            if off < beside or not (off or beside):
                found |= paths
                left[around], was[around] = left[around] - paths, off
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
            shapes = {one.at.path} if one.port.shape != one.reference.shape else set()
            own = own._replace(givers=own.givers | {one.at.path}, reshaping=own.reshaping | shapes)
            found[one.around.path] = own
        if one.what == "received" and one.around is not None:
            own, path = found[one.around.path], {one.at.path}
            rows = path if _are_the_same_rows(one.port, one.reference) else set()
            found[one.around.path] = own._replace(takers=own.takers | path, reordered=own.reordered | rows)
    return found


def _are_the_same_rows(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether the one has the rows of the other in another order, as what is dispatched to slots has."""
    if a.shape != b.shape or a.ndim < 2 or a.dtype.kind != "f":
        return False
    a, b = (x.reshape(len(x), -1)[np.argsort(x.reshape(len(x), -1).sum(axis=1), kind="stable")] for x in (a, b))
    return difference(a, b).equal


def _tried(
    left: Mapping[str, frozenset[str]], reshaping: Mapping[str, frozenset[str]]
) -> Iterator[dict[str, frozenset[str]]]:
    """By the module around them: all of each, those that give another shape, then those that are left one by one."""
    if left:
        yield dict(left)
    if some := {around: each for around, parts in left.items() if len(each := reshaping[around] & parts) > 1}:
        yield some
    several = {around: sorted(parts) for around, parts in left.items() if len(parts) > 1}
    for number in range(min(max(map(len, several.values()), default=0), MOST_TRIED)):
        one = {around: frozenset([parts[number]]) for around, parts in several.items() if number < len(parts)}
        if tried := {around: parts for around, parts in one.items() if parts <= left[around]}:
            yield tried
