"""Elements and parts of a tensor, and new axes: another element, the turn before, another end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..ancestry import tensors_of
from ..change import VIEWS, WRITES
from ..sites import instruction, takes_all
from ..variants import Called, Variant, after, of
from .reduction import is_mask


@of("__getitem__", "unsqueeze")
def new_axes(call: Called) -> Iterator[Variant]:
    """New axes in other places, as where a mask of keys is taken for one of queries."""
    x, index = call.args[0], call.args[1] if len(call.args) > 1 else call.get("dim")
    parts = index if isinstance(index, tuple) else (index,)
    if not isinstance(x, torch.Tensor) or x.dim() < 2:
        return
    whole = all(part is None or part is Ellipsis or takes_all(part) for part in parts)
    if call.name != "unsqueeze" and not whole:
        return
    count = 1 if call.name == "unsqueeze" else sum(part is None for part in parts)
    shape = call.site.result.shape
    for places in itertools.combinations(range(1, x.dim() + count), count):
        other = tuple(None if place in places else slice(None) for place in range(x.dim() + count))
        if x[other].shape != shape:
            yield Variant(
                "new-axis",
                f"adds its new axes elsewhere: [{_words(other)}], of shape {list(x[other].shape)}",
                f"add them as the reference does, to shape {list(shape)}",
                lambda func, args, kwargs, other=other: args[0][other],
            )


@of(*VIEWS)
def written_view(call: Called) -> Iterator[Variant]:
    """A copy in place of a view that is written into."""
    takers = call.ancestry.takers if call.ancestry is not None else lambda _: []
    views = [x for x in tensors_of(call.site.result) if x is not call.args[0]]
    if any(WRITES.fullmatch(site.name) and site.args[0] is view for view in views for site in takers(view)):
        yield Variant(
            "write-missing",
            f"loses what is written into what {call.name} gives, which in the reference is a view of its tensor",
            "put it back: x = x.at[...].set(...)",
            after(lambda result: pytree.tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, result)),
        )


@of("__getitem__", "select", "narrow")
def element(call: Called) -> Iterator[Variant]:
    x, index = call.args[0], call.args[1] if len(call.args) > 1 else None
    if not isinstance(x, torch.Tensor) or call.name != "__getitem__":
        return
    if not call.site.result.numel():
        return  # up to what a count says, which is none as yet: its value here is no number of the line
    parts = index if isinstance(index, tuple) else (index,)
    if any(isinstance(part, torch.Tensor) for part in parts):
        return
    if Ellipsis not in parts and None not in parts:
        yield from _averaged(parts, is_guess=is_mask(x))
    for place, part in enumerate(parts):
        turns = _is_number(part) and _takes_others(call, place)
        several = dict.fromkeys((0, -1, part)) if turns else ()
        for other in (*several, *_others(part)):
            changed = (*parts[:place], other, *parts[place + 1 :])
            if not turns and _is_number(part) and _are_one(x, parts, place, other):
                continue
            yield Variant(
                "index",
                f"takes [{_words(changed)}] in every call"
                if turns
                else f"takes [{_words(changed)}] for [{_words(parts)}]",
                "take the one of the turn" if turns else f"take [{_words(parts)}]",
                lambda func, args, kwargs, changed=changed: func(args[0], changed),
                is_guess=is_mask(x),  # a part of a mask that is true throughout is like no mask at all
            )
        for shift, words in ((1, "after"), (-1, "before")) if _is_number(part) else ():
            if (part < 0) != (part + shift < 0):
                continue
            yield Variant(
                "index",
                f"takes the element {words} the reference's in each call",
                "take the one of the same turn: x[1:] and x[:-1] are one apart",
                _shifted(place, shift),
                is_guess=is_mask(x),
            )


@of("matmul", "einsum", "bmm", "linear", "__getitem__", "chunk", "softmax", "mul", "add")
def reversed_axis(call: Called) -> Iterator[Variant]:
    if isinstance(call.site.result, torch.Tensor) and call.site.result.dim() > 1:
        for axis in range(1, call.site.result.dim()):
            yield Variant(
                "reversed",
                f"has axis {axis} of what {call.name} gives reversed",
                "leave its order",
                after(lambda x, axis=axis: x.flip(axis)),
                is_guess=True,  # a softmax does not tell the other end of a ramp from the other sign
            )


def _takes_others(call: Called, place: int) -> bool:
    """Whether the same instruction takes other elements in other turns."""
    sites = call.ancestry.sites if call.ancestry is not None else ()
    here = instruction(call.site)
    same = (site.args[1] for site in sites if site.name == call.name and instruction(site) == here)
    return len({str(index[place] if isinstance(index, tuple) else index) for index in same}) > 1


def _are_one(x: torch.Tensor, parts: tuple[Any, ...], place: int, other: int) -> bool:
    """Whether this number, counted from the other end, is the one that is there."""
    if any(part is None or part is Ellipsis for part in parts[:place]):
        return False
    length = x.shape[place]
    return bool(length) and other % length == parts[place] % length


def _is_number(part: Any) -> bool:
    return isinstance(part, int) and not isinstance(part, bool)


def _shifted(place: int, by: int) -> Callable[..., Any]:
    def apply(func: Any, args: Any, kwargs: Any) -> Any:
        parts = list(args[1]) if isinstance(args[1], tuple) else [args[1]]
        if (parts[place] < 0) != (parts[place] + by < 0):
            raise IndexError("there is none before the first, nor after the last")
        parts[place] += by
        return func(args[0], tuple(parts))

    return apply


def _averaged(parts: tuple[Any, ...], *, is_guess: bool) -> Iterator[Variant]:
    """The mean in place of one element, as of the patches in place of the class token."""
    numbers = [place for place, part in enumerate(parts) if _is_number(part)]
    if len(numbers) != 1:
        return
    place = numbers[0]
    several = {"all": slice(None)}
    if parts[place] in (0, -1):
        several["all but that"] = slice(1, None) if parts[place] == 0 else slice(None, -1)
    for words, kept in several.items():
        changed = (*parts[:place], kept, *parts[place + 1 :])
        # axes before it that a number has taken away are none: it is the only one
        yield Variant(
            "pooling",
            f"takes the mean over {words} of axis {place} for [{_words(parts)}]",
            f"take [{_words(parts)}]",
            lambda func, args, kwargs, changed=changed: func(args[0], changed).mean(place),
            is_guess=is_guess,
        )


def _others(part: Any) -> Iterator[Any]:
    if _is_number(part):
        yield from (value for value in dict.fromkeys((0, -1, part + 1, part - 1, -2)) if value != part)
    if isinstance(part, slice) and isinstance(part.step or 1, int):
        start, stop, step = part.start, part.stop, part.step
        if isinstance(start, int):
            yield from (slice(start + shift, stop and stop + shift, step) for shift in (1, -1) if start + shift >= 0)
            yield slice(0, stop and stop - start, step)
            if start > 0 and stop is None and step is None:
                yield slice(None, -start)  # as many, from the other end
        if isinstance(stop, int):
            yield slice(-stop, None, step) if stop > 0 and start is None else slice(start, stop - 1, step)
            yield slice(start, None if stop == -1 else stop + 1, step)  # one more than all but the last are all
            if stop < 0:
                yield slice(-stop, None, step)
        if step and step > 1:
            yield slice(1 - (start or 0), stop, step)


def _words(parts: tuple[Any, ...]) -> str:
    def one(part: Any) -> str:
        if isinstance(part, slice):
            return ":".join(
                "" if x is None else str(x) for x in (part.start, part.stop, part.step)[: 3 if part.step else 2]
            )
        return "..." if part is Ellipsis else str(part)

    return ", ".join(map(one, parts))
