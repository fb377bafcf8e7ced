"""Axes: which are swapped, merged and split, and in what order."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import torch

from ..variants import Called, Variant, after, before, of, signature

signature("flatten", "input start_dim end_dim")
LARGEST_RANK = 6
ALL_ORDERS_OF = 4  # so many axes; of more, those with two exchanged or one elsewhere
Axes = tuple[int, ...]


@of("flatten", "unflatten", "reshape", "view")
def merged(call: Called) -> Iterator[Variant]:
    """The axes in another order before they are merged."""
    x, result = call.args[0], call.site.result
    if not isinstance(x, torch.Tensor) or not isinstance(result, torch.Tensor):
        return
    if not result.dim() < x.dim() <= LARGEST_RANK:
        return
    for order in _orders(x.dim() - 1):
        axes = (0, *(axis + 1 for axis in order))
        words, back = f"in the order {axes}", f"x.transpose{tuple(sorted(range(x.dim()), key=axes.__getitem__))}"
        if axes == (0, *range(2, x.dim()), 1):
            words, back = "channels last", "jnp.moveaxis(x, -1, 1)"
        yield Variant(
            "flatten-order",
            f"flattens with its axes {words}",
            f"move the axes back to PyTorch's order before flattening: {back}",
            lambda func, args, kwargs, axes=axes: func(args[0].permute(axes).contiguous(), *args[1:], **kwargs),
        )


@of("flatten", "unflatten", "reshape", "view")
def split(call: Called) -> Iterator[Variant]:
    """An axis split into its parts in another order, or into another number of them."""
    x, result = call.args[0], call.site.result
    if not isinstance(x, torch.Tensor) or not isinstance(result, torch.Tensor) or result.dim() > LARGEST_RANK:
        return
    for origin, parts in _splits(x.shape, result.shape):
        sizes = tuple(result.shape[axis] for axis in parts)
        for order in _orders(len(parts)):
            axes = tuple(range(parts[0])) + tuple(parts[i] for i in order) + tuple(range(parts[-1] + 1, result.dim()))
            two = len(parts) == 2
            such = ": features of attention are [heads, head_dim]" if origin == x.dim() - 1 else ""
            words = "two parts in the other order" if two else f"parts in the order {order}"
            yield Variant(
                "head-order" if two else "split-order",
                f"splits axis {origin} with its {words}",
                f"split it as {sizes}, the last part the fastest{such}",
                _split_as(axes),
            )
            yield Variant(
                "axes-order",
                f"has its axes in the order {axes} after {call.name}{_and_reshapes(result, axes)}",
                "keep the reference's order: a reshape does not move axes",
                after(lambda x, axes=axes: _reordered(x, axes)),
            )
    place = next((i for i in range(x.dim()) if x.shape[i] != result.shape[i]), x.dim() - 1)
    if result.dim() == x.dim() + 1 and result.shape[place] * result.shape[place + 1] == x.shape[place]:
        heads, size = result.shape[place], result.shape[place + 1]
        for count in range(1, heads * size + 1):
            if heads * size % count == 0 and count != heads:
                yield Variant(
                    "heads",
                    f"splits axis {place} into {count} parts",
                    f"split it into {heads}",
                    lambda func, args, kwargs, count=count: args[0].unflatten(place, (count, -1)),
                    is_guess=True,
                )


@of("transpose", "permute", "swapaxes", "movedim", "moveaxis", "t", "mT")
def other_order(call: Called) -> Iterator[Variant]:
    """The axes in another order; where shapes then differ, a reshape hides it."""
    x, result = call.args[0], call.site.result
    if not isinstance(result, torch.Tensor) or result.dim() > LARGEST_RANK:
        return
    reshapes = x.shape != result.shape
    yield Variant(
        "axes-order",
        f"leaves {call.name} out" + (", and reshapes" if reshapes else ""),
        f"move the axes as {call.name} does" + (": a reshape keeps the order of the elements" if reshapes else ""),
        lambda func, args, kwargs: args[0].reshape(func(*args, **kwargs).shape),
    )
    known = _axes_of(x, call)
    for axes in _orders(result.dim()):
        words = f"has its axes in the order {axes} after {call.name}"
        if known is not None:
            words = f"has the axes in the order {tuple(known[a] for a in axes)} where {call.name} gives {known}"
        yield Variant(
            "axes-order",
            words,
            "keep the reference's order",
            after(lambda x, axes=axes: _reordered(x, axes)),
        )


@of("einsum")
def exchanged(call: Called) -> Iterator[Variant]:
    """Two axes of an operand that are equally long, each for the other."""
    for place, x in enumerate(call.args):
        for a, b in itertools.combinations(range(x.dim() if isinstance(x, torch.Tensor) else 0), 2):
            if x.shape[a] == x.shape[b] > 1:
                name = call.name_of(place) or f"operand {place} of einsum"
                yield Variant(
                    "weight-transposed",
                    f"takes axes {a} and {b} of {name} for one another",
                    "name them in the order of the reference's equation",
                    before(functools.partial(torch.transpose, dim0=a, dim1=b), place),
                )


def _and_reshapes(x: torch.Tensor, axes: Axes) -> str:
    """Where the shape tells the orders apart, so that a reshape has to hide it."""
    return "" if [x.shape[axis] for axis in axes] == list(x.shape) else ", and reshapes"


def _reordered(x: torch.Tensor, axes: Axes) -> torch.Tensor:
    return x.permute(axes).reshape(x.shape)


def _axes_of(x: torch.Tensor, call: Called) -> Axes | None:
    """The axes of the input in the order in which `permute` gives them."""
    if call.name != "permute":
        return None
    given = call.args[1:] or tuple(call.site.kwargs.values())
    axes = given[0] if len(given) == 1 and isinstance(given[0], list | tuple) else given
    return tuple(axis % x.dim() for axis in axes)


def _split_as(axes: Axes) -> Any:
    back = sorted(range(len(axes)), key=axes.__getitem__)

    def apply(func: Any, args: Any, kwargs: Any) -> Any:
        shape = func(*args, **kwargs).shape  # of this turn, where the call is in a loop
        return args[0].reshape([shape[axis] for axis in axes]).permute(back).contiguous()

    return apply


def _splits(before: Sequence[int], after: Sequence[int]) -> Iterator[tuple[int, Axes]]:
    """The axes that one axis is split into: those of one element left out at the ends, as they move nothing."""
    i = j = 0
    while i < len(before) and j < len(after):
        left, right = i + 1, j + 1
        while prod(before[i:left]) != prod(after[j:right]):
            if prod(before[i:left]) < prod(after[j:right]):
                left += 1
            else:
                right += 1
            if left > len(before) or right > len(after):
                return
        parts = [axis for axis in range(j, right) if after[axis] != 1]
        if left - i == 1 and len(parts) > 1:
            yield i, tuple(range(parts[0], parts[-1] + 1))
        i, j = left, right


def _orders(count: int) -> Iterator[Axes]:
    """Other orders of so many axes, the likeliest first."""
    usual = tuple(range(count))
    near: dict[Axes, None] = {}
    for a, b in sorted(itertools.combinations(usual, 2), key=lambda pair: pair[1] - pair[0]):
        swapped = list(usual)
        swapped[a], swapped[b] = b, a
        near[tuple(swapped)] = None
    for axis, place in itertools.permutations(usual, 2):
        rest = [a for a in usual if a != axis]
        near[*rest[:place], axis, *rest[place:]] = None
    if count <= ALL_ORDERS_OF:
        near.update(dict.fromkeys(itertools.permutations(usual)))
    yield from (axes for axes in near if axes != usual)
