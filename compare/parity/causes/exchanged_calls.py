"""Calls of two functions, each before the other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeGuard

import torch

from .change import Change, Site
from .roots import are_root_and_epsilon
from .sites import instruction, is_floating, makers, spelled
from .variants import Variant

LAYOUTS = {
    *("reshape", "view", "flatten", "unflatten", "unsqueeze", "squeeze", "permute", "transpose", "swapaxes", "movedim"),
    "contiguous",
}
CASTS = {"long", "int", "to", "type", "type_as"}
FAR, MOST_FAR = 4, 60  # calls between two that are exchanged, and pairs of such
MOVES = LAYOUTS | {"clone", "expand", "to"}
BLANK = {"zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like"}  # take a shape alone


class _Pair(NamedTuple):
    """Two calls of which the later takes what the first gives, as its argument `source`, or what others make of it."""

    first: Site
    later: Site
    source: int
    layout: list[Site]


def orders(sites: list[Site]) -> Iterator[tuple[Variant, Change]]:
    """Two calls of which one takes what the other gives, each before the other: a norm and a mean, say, or a factor and
    the sum that it scales a part of; between them elements may be laid out anew."""
    made = makers(sites, _is_of_numbers)
    pairs: list[_Pair] = []
    for later in sites:
        for given in filter(_is_of_numbers, later.args):
            first, layout = _made_before_layout(given, made)
            if first is not None:
                pairs += _exchangeable(first, later, layout)
    yield from _in_other_order(pairs)


def far_orders(sites: list[Site]) -> Iterator[tuple[Variant, Change]]:
    """Likewise of two with others between them, which lay nothing out anew, as a summand after an activation."""
    made = makers(sites)
    pairs: list[_Pair] = []
    for later in sites:
        waiting = [(x, 0) for x in later.args if is_floating(x)] if is_floating(later.result) else []
        while waiting:
            given, between = waiting.pop()
            first = made.get(id(given))
            if first is None or first.name in LAYOUTS or first.result.shape != later.result.shape:
                continue
            if between:
                pairs += _exchangeable(first, later, [])
            if between < FAR:
                waiting += [(x, between + 1) for x in first.args if is_floating(x) and x.shape == first.result.shape]
    yield from itertools.islice(_in_other_order(pairs), MOST_FAR)


def _is_of_numbers(x: Any) -> TypeGuard[torch.Tensor]:
    """Positions that are counted, and masked, among them."""
    return isinstance(x, torch.Tensor) and x.dtype != torch.bool and not x.is_complex()


def _is_between_integers(site: Site) -> bool:
    return site.name in CASTS and not is_floating(site.result) and not is_floating(site.args[0])


def _made_before_layout(given: torch.Tensor, made: dict[int, Site]) -> tuple[Site | None, list[Site]]:
    """The call that makes a tensor, before it is laid out anew, and the calls that do that."""
    layout: list[Site] = []
    while (first := made.get(id(given))) is not None and (first.name in LAYOUTS or _is_between_integers(first)):
        layout.insert(0, first)
        given = first.args[0]
    return first, layout


def _exchangeable(first: Site, later: Site, layout: list[Site]) -> Iterator[_Pair]:
    if first.name == later.name or {first.name, later.name} & (MOVES | BLANK):
        return
    if are_root_and_epsilon(first, later):
        return  # `epsilons` tells it with its number
    if any(site.name.endswith("_") and not site.name.endswith("__") for site in (first, later)):
        return  # in place: what it does not write stays as it was
    for source, taken in enumerate(first.args):
        if _is_of_numbers(taken):
            yield _Pair(first, later, source, layout)


def _in_other_order(pairs: list[_Pair]) -> Iterator[tuple[Variant, Change]]:
    """The pairs that the same instructions make, wherever they are called from; and each by itself."""
    by_instruction: dict[Any, list[_Pair]] = {}
    for pair in pairs:
        by_instruction.setdefault((instruction(pair.first), instruction(pair.later), pair.source), []).append(pair)
    several = [same for same in by_instruction.values() if len(same) > 1]
    for same in [*several, *([pair] for pair in pairs)]:
        first, later = spelled(same[0].first.name), spelled(same[0].later.name)
        variant = Variant(
            "calls-order",
            f"calls {later} before {first}, which the reference calls first",
            f"{first} first, then {later}",
            _Exchanged(same[0].source, same[0].layout),
        )
        yield (
            variant,
            Change(variant.apply, frozenset(n for pair in same for n in (pair.first.number, pair.later.number))),
        )


class _Exchanged:
    """In place of two calls: the first gives what it takes, and is made of what the second gives.

    Args:
      source: which argument of the first call the second takes the place of.
      layout: the calls between them, which lay elements out anew.
    """

    def __init__(self, source: int, layout: list[Site]):
        self.source, self.layout = source, layout
        self.first: Callable[[Any], Any] | None = None

    def __call__(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.first is None:
            self.shape = args[self.source].shape
            self.first = lambda x: func(*args[: self.source], x, *args[self.source + 1 :], **kwargs)
            return args[self.source].clone()
        first, self.first = self.first, None
        return self._laid_out(first(self._back(func(*args, **kwargs))))

    def _laid_out(self, x: torch.Tensor) -> torch.Tensor:
        for site in self.layout:
            x = site.func(x, *site.args[1:], **site.kwargs)
        return x

    def _back(self, x: torch.Tensor) -> torch.Tensor:
        if not self.layout:
            return x
        places = self._laid_out(torch.arange(self.shape.numel()).reshape(self.shape))
        if places.shape != x.shape:
            raise NotImplementedError("what it gives has another shape than what it takes")
        return x.flatten()[places.flatten().argsort()].reshape(self.shape)
