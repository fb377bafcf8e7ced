"""Rotary positions on neighbouring features in place of the two halves, or on halves in place of neighbours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from .change import Change, Site
from .sites import numbers
from .variants import Variant

SPLITS = ("chunk", "split", "tensor_split")
JOINS = ("cat", "concat", "concatenate")
RESHAPES = ("reshape", "view", "unflatten")


def rotations(sites: list[Site]) -> Iterator[tuple[Variant, Change]]:
    """All calls that take features apart and put them together again along the last axis, in the other order."""
    of_halves = Variant(
        "rotary-interleaving",
        "rotates neighbouring features where the reference rotates the two halves",
        "split features into halves: x1, x2 = jnp.split(x, 2, axis=-1), and join them with jnp.concatenate",
        _with_neighbours,
    )
    of_neighbours = Variant(
        "rotary-interleaving",
        "rotates the two halves of features where the reference rotates neighbouring ones",
        "take neighbours: x1, x2 = x[..., ::2], x[..., 1::2], and jnp.stack([...], -1).reshape(x.shape)",
        _with_halves,
    )
    for variant, takes_apart, joins in ((of_halves, _halves, _joins), (of_neighbours, _neighbours, _interleaves)):
        apart, together = list(filter(takes_apart, sites)), list(filter(joins, sites))
        if apart and together:
            yield variant, Change(variant.apply, numbers([*apart, *together]))


def _with_neighbours(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    name = getattr(func, "__name__", "")
    if name in JOINS:
        return torch.stack(list(args[0]), -1).flatten(-2)
    if name == "__getitem__":
        return args[0][..., 0 if args[1][-1].start in (None, 0) else 1 :: 2]
    return args[0][..., ::2], args[0][..., 1::2]


def _halves(site: Site) -> bool:
    """Whether a call gives one or both halves of a tensor along the last axis."""
    x, result = site.args[0] if site.args else None, site.result
    if not isinstance(x, torch.Tensor):
        return False
    if site.name in SPLITS:
        return len(result) == 2 and result[0].shape == result[1].shape == (*x.shape[:-1], x.shape[-1] // 2)
    if site.name != "__getitem__" or not isinstance(site.args[1], tuple) or not isinstance(site.args[1][-1], slice):
        return False
    return isinstance(result, torch.Tensor) and result.shape == (*x.shape[:-1], x.shape[-1] // 2)


def _joins(site: Site) -> bool:
    """Whether a call joins two tensors of one shape along the last axis."""
    if site.name not in JOINS or len(site.args[0]) != 2:
        return False
    a, b = site.args[0]
    dim = site.args[1] if len(site.args) > 1 else site.kwargs.get("dim", 0)
    return a.shape == b.shape and dim in (-1, a.dim() - 1)


def _with_halves(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    name, x = getattr(func, "__name__", ""), args[0]
    if name == "__getitem__":
        return x.chunk(2, -1)[args[1][-1].start or 0]
    if name in RESHAPES:
        return x.unflatten(-1, (2, -1)).transpose(-1, -2).contiguous()
    if name == "repeat_interleave":
        return torch.cat([x, x], -1)
    if name == "view_as_real":
        return func(x).transpose(-1, -2)
    return torch.stack(list(x), -2)  # what lays them out in one axis comes next


def _neighbours(site: Site) -> bool:
    """Whether a call gives every other feature, or pairs of neighbours."""
    x, result = site.args[0] if site.args else None, site.result
    if not isinstance(x, torch.Tensor) or not isinstance(result, torch.Tensor) or not x.dim():
        return False
    if site.name == "__getitem__":
        part = site.args[1][-1] if isinstance(site.args[1], tuple) else None
        is_every_other = isinstance(part, slice) and part.step == 2 and part.start in (None, 0, 1)
        return is_every_other and result.shape == (*x.shape[:-1], x.shape[-1] // 2)
    return site.name in RESHAPES and result.shape == (*x.shape[:-1], x.shape[-1] // 2, 2)


def _interleaves(site: Site) -> bool:
    """Whether a call puts features side by side with others, or with themselves."""
    x, result = site.args[0] if site.args else None, site.result
    if site.name == "stack":
        dim = site.args[1] if len(site.args) > 1 else site.kwargs.get("dim", 0)
        return isinstance(x, list | tuple) and len(x) == 2 and dim in (-1, x[0].dim())
    if site.name == "repeat_interleave":
        return isinstance(x, torch.Tensor) and result.shape == (*x.shape[:-1], 2 * x.shape[-1])
    return site.name == "view_as_real"
