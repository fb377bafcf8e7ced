"""An epsilon beside a root that the reference has under it, or the other way round, in a norm that is written out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from .change import Change, Site
from .sites import constructs, makers, numbers
from .variants import Variant

SMALL = 0.1  # what an epsilon is below
ADDS = ("add", "add_", "__add__", "__radd__", "__iadd__")
TAKEN_OF = {"sqrt": 0.5, "sqrt_": 0.5, "rsqrt": -0.5, "rsqrt_": -0.5}
DEVIATIONS = ("std", "norm", "vector_norm", "linalg_norm", "linalg_vector_norm")


def epsilons(sites: list[Site]) -> Iterator[tuple[Variant, Change]]:
    """Both calls, the sum and the root, in all turns of the loop that they are in."""
    made = makers(sites)
    for same in constructs(sites):
        first = _first(same[0], made)
        if first is None:
            continue
        added, outside = (same[0], True) if same[0].name in ADDS else (first, False)
        eps = _epsilon(added)
        firsts = [each for site in same if (each := _first(site, made)) is not None]
        if outside:
            says, fix = f"adds {eps:g} under the root", f"add {eps:g} to the root, as the reference does"
            apply = _under(eps)
        else:
            says, fix = f"adds {eps:g} to the root, not under it", f"add {eps:g} under the root, as the reference does"
            apply = _beside(eps)
        yield Variant("epsilon-place", says, fix, apply), Change(apply, numbers([*same, *firsts]))


def _first(site: Site, made: dict[int, Site]) -> Site | None:
    """The sum that a root is taken of, or the root that a number is added to."""
    first = made.get(id(site.args[0])) if site.args else None
    return first if first is not None and are_root_and_epsilon(first, site) else None


def are_root_and_epsilon(first: Site, later: Site) -> bool:
    """Whether one of two calls is a root, and the other adds a small number, under it or beside it."""
    if _exponent(later.name, later.args) is not None and _epsilon(first):
        return True
    is_root = first.name in DEVIATIONS or (_exponent(first.name, first.args) or 0) > 0
    return is_root and bool(_epsilon(later))


def _exponent(name: str, args: tuple[Any, ...]) -> float | None:
    """The power, of a call that takes a square root or divides by one."""
    if name in ("pow", "pow_", "__pow__") and len(args) > 1 and isinstance(args[1], float) and abs(args[1]) == 0.5:
        return args[1]
    return TAKEN_OF.get(name)


def _epsilon(site: Site) -> float:
    """The small number that a call adds; 0 where it adds none."""
    value = site.args[1] if site.name in ADDS and len(site.args) > 1 else 0.0
    return float(value) if isinstance(value, int | float) and 0 < value < SMALL else 0.0


def _beside(eps: float) -> Callable[..., Any]:
    def apply(func: Any, args: Any, kwargs: Any) -> Any:
        power = _exponent(getattr(func, "__name__", ""), args)
        if power is None:  # the sum
            return args[0].clone()
        root = args[0].sqrt() + eps
        return root if power > 0 else 1 / root

    return apply


def _under(eps: float) -> Callable[..., Any]:
    def apply(func: Any, args: Any, kwargs: Any) -> Any:
        name = getattr(func, "__name__", "")
        if name in ADDS:
            return torch.sqrt(args[0] + eps)
        if name in DEVIATIONS:
            return func(*args, **kwargs) ** 2
        return args[0].clone()

    return apply
