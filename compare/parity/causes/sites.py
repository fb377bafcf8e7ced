"""Function calls of a module that belong together."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from .change import Site


def numbers(sites: list[Site]) -> frozenset[int]:
    """Those of the calls."""
    return frozenset(site.number for site in sites)


def constructs(sites: list[Site], *, of_any_module: bool = False) -> list[list[Site]]:
    """The calls that one instruction of one module makes, in all turns of a loop, in the order of the first; or that it
    makes in all modules, such as several heads of one class."""
    found: dict[Any, list[Site]] = {}
    for site in sites:
        place = tuple(each[:2] for each in site.place) if of_any_module else site.place
        found.setdefault((site.name, place), []).append(site)
    return list(found.values())


def groups(sites: list[Site]) -> list[list[Site]]:
    """Calls that are written alike, down to their numbers; those of one function on tensors of the same shapes; and
    those of one function: where there are several, the most alike first."""
    found: list[dict[Any, list[Site]]] = [{}, {}, {}]
    for site in sites:
        leaves = pytree.tree_leaves((site.args, site.kwargs))
        shapes = tuple(tuple(x.shape) for x in leaves if isinstance(x, torch.Tensor))
        others = tuple(str(x) for x in leaves if not isinstance(x, torch.Tensor))
        for keyed, key in zip(found, ((site.name, shapes, others), (site.name, shapes), site.name), strict=True):
            keyed.setdefault(key, []).append(site)
    several = [same for keyed in found for same in keyed.values() if len(same) > 1]
    return [same for i, same in enumerate(several) if same not in several[:i]]


def is_floating(value: Any) -> bool:
    """Whether it is a floating tensor."""
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def makers(sites: list[Site]) -> dict[int, Site]:
    """By the identity of a floating tensor the call that made it: no call that hands on what it was given, such as
    `contiguous` does."""
    found: dict[int, Site] = {}
    for site in sites:
        handed_on = (given is site.result for given in pytree.tree_leaves((site.args, site.kwargs)))
        if is_floating(site.result) and not any(handed_on):
            found.setdefault(id(site.result), site)
    return found
