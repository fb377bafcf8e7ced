"""A module that goes wrong and gives another tensor in another form as well, looked at together with what is around it.

Such as a coupling of a flow that gives its own share of a determinant, where the reference's adds to what it is given:
what is around it makes up for that, so that both are told, and no known difference explains either by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import CodeType, FunctionType

from ..report.records import Divergence
from .inside.calls import is_inside
from .inside.localise import Look

Explained = Callable[[Look, Divergence, frozenset[CodeType]], Divergence]


def together(
    divergences: Sequence[Divergence],
    look: Look,
    anew: Callable[[dict[str, str | None]], Look],
    explained: Explained,
) -> list[Divergence]:
    """The divergences, where those without a cause within another one without a cause have one together.

    Args:
      divergences: of one look.
      look: that look.
      anew: gives a look at the same, in which some modules of the port stand for none of the reference's.
      explained: gives a divergence of such a look with its causes, tried on the calls that some code makes.
    """
    without = [each for each in divergences if not each.causes and not each.outside]
    for around in without:
        inside = [each for each in without if each is not around and is_inside(each.module, around.module)]
        if not inside:
            continue
        other = anew({each.module: None for each in inside})
        found = [each for each in other.divergences() if each.module == around.module and not each.outside]
        for code, same in _by_code(look, inside).items():
            told = explained(other, found[0], frozenset([code])) if found else around
            if told.causes:
                others = [each for each in divergences if each is not around and each not in inside]
                return [*others, *(replace(each, causes=told.causes, cut_short=False) for each in same)]
    return list(divergences)


def _by_code(look: Look, inside: Sequence[Divergence]) -> dict[CodeType, list[Divergence]]:
    """The divergences of modules of one class of the reference, by what it runs."""
    found: dict[CodeType, list[Divergence]] = {}
    for each in inside:
        forward = getattr(type(look.judge.module.get_submodule(each.reference)), "forward", None)
        if isinstance(forward, FunctionType):
            found.setdefault(forward.__code__, []).append(each)
    return found
