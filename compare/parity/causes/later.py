"""A call that takes what is made after it in the reference, as where a memory is read once it has been written; and one
that takes another tensor of its turn of a loop, in each of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .ancestry import Ancestry, are_equal, is_dense, tensors_of
from .change import VIEWS, Change, Replaced, Site
from .sites import constructs, is_floating, numbers, source, spelled
from .variants import Variant
from .wiring import HAND_ON, unused

MOST = 100


def taken_later(ancestry: Ancestry, sites: list[Site]) -> Iterator[tuple[Variant, Change]]:
    """A tensor that is made after one of some calls, and before anything takes what it gives, as one of its
    arguments."""
    yield from itertools.islice(_taken_later(ancestry, sites), MOST)


def _taken_later(ancestry: Ancestry, sites: list[Site]) -> Iterator[tuple[Variant, Change]]:
    every = constructs(ancestry.sites)
    for same in constructs(sites):
        until = [_first_use(site, ancestry) for site in same]
        for place, given in enumerate(same[0].args):
            if not is_floating(given) or not is_floating(same[0].result):
                continue
            for makers in every:
                turns = list(zip(same, makers, until, strict=False))
                if len(makers) == len(same) and all(
                    call.number < maker.number < use and _is_another(maker.result, call.args[place])
                    for call, maker, use in turns
                ):
                    change = Change(_Later(place), numbers([*same, *makers]))
                    yield _variant(ancestry, same[0], place, makers[0].result), change


def _variant(ancestry: Ancestry, site: Site, place: int, later: torch.Tensor) -> Variant:
    words, usual = _told_apart(ancestry, later, site.args[place])
    says = f"gives {words} to {spelled(site.name)}, which the reference computes before that, of {usual}"
    return Variant(
        "wiring-order", says, f"{spelled(site.name)} first: read before what is read is written anew", unused
    )


def _told_apart(ancestry: Ancestry, *tensors: torch.Tensor) -> list[str]:
    """What they are; by the lines that make them, where one function makes both."""
    words = [ancestry.words(x) for x in tensors]
    if len(set(words)) == len(words):
        return words
    makers = map(ancestry.maker, tensors)
    return [
        f"{each} at {source(maker)}" if maker is not None else each for each, maker in zip(words, makers, strict=True)
    ]


def _first_use(site: Site, ancestry: Ancestry) -> float:
    """The number of the first call that takes what this one gives, or a view of it."""
    waiting, found = list(tensors_of(site.result)), float("inf")
    known = set(map(id, waiting))
    while waiting:
        tensor = waiting.pop()
        for taker in ancestry.takers(tensor):
            if not _is_a_view(taker, tensor):
                found = min(found, taker.number)
                continue
            views = [x for x in tensors_of(taker.result) if id(x) not in known]
            known.update(map(id, views))
            waiting += views
    inside = [call.after for call in ancestry.inside if any(id(x) in known for x in call.given)]
    return min([found, *(after - 0.5 for after in inside)])  # between two calls


def _is_a_view(taker: Site, tensor: torch.Tensor) -> bool:
    """Whether what a call gives is of the memory of what it takes: what is written there later is in both."""
    given = [tensor, *tensors_of(taker.result)]
    if taker.name not in VIEWS or not all(map(is_dense, given)):
        return False
    return len({x.untyped_storage().data_ptr() for x in given}) == 1


class _Later:
    """In place of two calls: the first one's result is filled in when the second has made what it takes.

    Args:
      place: the argument of the first call that is what the second gives.
    """

    def __init__(self, place: int):
        self.place = place
        self.fill: Callable[[torch.Tensor], Any] | None = None

    def __call__(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.fill is None:
            with torch.no_grad():
                result = torch.empty_like(func(*args, **kwargs), memory_format=torch.contiguous_format)
                result.fill_(torch.nan)  # what takes it too soon shows

            self.fill = lambda later: result.copy_(func(*args[: self.place], later, *args[self.place + 1 :], **kwargs))
            return result
        fill, self.fill = self.fill, None
        later = func(*args, **kwargs)
        fill(later)
        return later


def rewired_in_turns(ancestry: Ancestry, sites: list[Site]) -> Iterator[tuple[Variant, Change]]:
    """Another tensor that the same turn of a loop has made, as an argument of one of some calls, in each turn."""
    yield from itertools.islice(_rewired_in_turns(ancestry, sites), MOST)


def _rewired_in_turns(ancestry: Ancestry, sites: list[Site]) -> Iterator[tuple[Variant, Change]]:
    for same, makers in itertools.product(constructs(sites), constructs(ancestry.sites)):
        if len(makers) != len(same) or len(same) < 2 or not _are_before(makers, same):
            continue
        for place, given in enumerate(same[0].args):
            if not is_floating(given) or not all(
                _is_another(maker.result, call.args[place]) for maker, call in zip(makers, same, strict=True)
            ):
                continue
            replaced = []
            for call, maker in zip(same, makers, strict=True):
                tensor, instead = ancestry.number(call.args[place]), ancestry.number(maker.result)
                if tensor is None or instead is None:
                    break
                replaced.append(Replaced(tensor, instead, call.number, call.number))
            else:
                words, usual = _told_apart(ancestry, makers[0].result, given)
                name = spelled(same[0].name)
                says = f"gives {words} to {name} in each turn of a loop, where the reference gives {usual}"
                yield Variant("wiring", says, HAND_ON, unused), Change(replaced=tuple(replaced))


def _are_before(makers: list[Site], same: list[Site]) -> bool:
    """Whether each is called in the same turn as the other, and before it."""
    ends = [-1, *(call.number for call in same)]
    return all(end < maker.number < call.number for end, maker, call in zip(ends, makers, same, strict=False))


def _is_another(tensor: Any, given: Any) -> bool:
    if not is_floating(tensor) or not is_floating(given) or tensor is given:
        return False
    return tensor.shape == given.shape and tensor.dtype == given.dtype and not are_equal(tensor, given)
