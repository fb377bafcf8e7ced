"""What a port does to a tensor besides what the reference does: one more activation, one more factor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F

from .ancestry import Ancestry
from .change import Change, Site
from .known.activation import NAMES
from .replay import Replay
from .sites import constructs, is_floating, numbers, spelled
from .variants import Fit, Variant, after, before

EXTRA: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "softmax over the last axis": lambda x: x.softmax(-1),
    "softmax over axis 1": lambda x: x.softmax(1),
}
FIX = "do not apply it there: the reference does not"


def extra_activations(replay: Replay, sites: list[Site]) -> Iterator[tuple[Variant, Change]]:
    """After each call of a function, and after each module inside."""
    for path in replay.children:
        for name, make in EXTRA.items():
            variant = Variant("activation-extra", f"applies {name} to what {path} gives", FIX, after(make))
            yield variant, Change(given=(path, make))
    for same in constructs(sites):
        result = same[0].result
        if same[0].name.rstrip("_") in NAMES or not isinstance(result, torch.Tensor) or not result.is_floating_point():
            continue
        for name, make in EXTRA.items():
            variant = Variant(
                "activation-extra", f"applies {name} to what {spelled(same[0].name)} gives", FIX, after(make)
            )
            yield variant, Change(variant.apply, numbers(same))


def extra_given(ancestry: Ancestry, sites: list[Site]) -> Iterator[tuple[Variant, Change]]:
    """To what a single call is given, of several that one line makes: in the last turn of a loop, say."""
    for site in sites:
        for place, given in enumerate(site.args):
            if not is_floating(given) or id(given) in {id(other) for other in site.args[:place]}:
                continue
            for name, make in EXTRA.items():
                says = f"applies {name} to {ancestry.words(given)}, which it gives to {site.name} in one turn"
                apply = before(make, place)
                yield Variant("activation-extra", says, FIX, apply), Change(apply, numbers([site]))


def extra_factors(replay: Replay, sites: list[Site]) -> Iterator[tuple[Fit, Callable[[float], Change]]]:
    """Of what a module inside gives, and of what a function does."""
    for path in replay.children:
        yield _factor(path), partial(_scaled, path)
    for same in constructs(sites):
        if isinstance(same[0].result, torch.Tensor) and same[0].result.is_floating_point():
            yield _factor(same[0].name), partial(_scaled_by_function, numbers(same))


def _factor(of: str) -> Fit:
    says = f"multiplies what {of} gives by {{value}}"
    return Fit("scale", says, "leave it as it is", 1.0, lambda value: after(lambda x: x * value), (0.5, 2.0))


def _scaled(path: str, value: float) -> Change:
    return Change(given=(path, lambda x: x * value))


def _scaled_by_function(at: frozenset[int], value: float) -> Change:
    return Change(after(lambda x: x * value), at)
