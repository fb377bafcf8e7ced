"""Function calls of a module that belong together."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from .replay import Site


def numbers(sites: list[Site]) -> frozenset[int]:
    """Those of the calls."""
    return frozenset(site.number for site in sites)


def constructs(sites: list[Site]) -> list[list[Site]]:
    """The calls that one instruction of one module makes, in all turns of a loop, in the order of the first."""
    found: dict[Any, list[Site]] = {}
    for site in sites:
        found.setdefault((site.name, site.place), []).append(site)
    return list(found.values())


def groups(sites: list[Site]) -> list[list[Site]]:
    """Calls of one function, those of one function on tensors of the same shapes, and those that are written alike,
    with the same numbers too, where there are several."""
    found: dict[Any, list[Site]] = {}
    for site in sites:
        shapes = tuple(tuple(x.shape) for x in pytree.tree_leaves(site.args) if isinstance(x, torch.Tensor))
        found.setdefault(site.name, []).append(site)
        found.setdefault((site.name, shapes), []).append(site)
        numbers = [str(x) for x in pytree.tree_leaves((site.args, site.kwargs)) if not isinstance(x, torch.Tensor)]
        found.setdefault((site.name, shapes, *numbers), []).append(site)
    several = [same for same in found.values() if len(same) > 1]
    return [same for i, same in enumerate(several) if same not in several[:i]]
