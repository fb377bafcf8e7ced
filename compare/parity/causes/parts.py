"""Parts of a tensor that are cut out, or written in place: others than the reference's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from .change import Change, Site
from .sites import constructs, instruction, is_floating, numbers
from .variants import Variant

ELEMENTWISE = {
    *("mul", "div", "add", "sub", "true_divide", "mul_", "div_", "add_", "sub_"),
    *("relu", "gelu", "silu", "sigmoid", "tanh", "exp", "log", "sqrt", "clamp", "abs", "neg"),
    *("relu_", "sigmoid_", "tanh_", "clamp_"),
}


def parts(sites: list[Site]) -> Iterator[tuple[Variant, Change]]:
    """All that is known of this kind, each with the calls that it changes."""
    yield from _interleaved(sites)
    yield from _bounds(sites)
    yield from _left_as_written(sites)


def _interleaved(sites: list[Site]) -> Iterator[tuple[Variant, Change]]:
    """Every second element for one half and the rest for the other, or halves for these: of three parts likewise."""
    strided: dict[tuple[int, int, int], list[Site]] = {}
    for site in sites:
        for axis, part in _axes(site):
            if isinstance(part, slice) and part.step and part.step > 1 and part.stop is None:
                strided.setdefault((id(site.args[0]), axis, part.step), []).append(site)
    for (_, axis, count), same in strided.items():
        starts = {part.start or 0 for site in same for at, part in _axes(site) if at == axis}
        if starts == set(range(count)) and same[0].args[0].shape[axis] % count == 0:
            yield _by_instruction(
                same,
                sites,
                f"cuts axis {axis} into {count} pieces, where the reference takes every {_ordinal(count)} element",
                f"take them so: x[..., 0::{count}] and so on",
                lambda func, args, kwargs, axis=axis: _piece(args, axis),
            )


def _by_instruction(
    same: list[Site], sites: list[Site], says: str, fix: str, apply: Callable[..., Any]
) -> tuple[Variant, Change]:
    """A change of all calls that these instructions make."""
    instructions = set(map(instruction, same))
    every = [site for site in sites if instruction(site) in instructions]
    return Variant("interleaved", says, fix, apply), Change(apply, numbers(every))


def _ordinal(count: int) -> str:
    return {2: "second", 3: "third"}.get(count, f"{count}th")


def _axes(site: Site) -> Iterator[tuple[int, Any]]:
    """The parts that an index takes, each with its axis."""
    parts = _parts(site)
    if any(part is None or isinstance(part, torch.Tensor | list) for part in parts) or not parts:
        return
    rest = site.args[0].dim() - (len(parts) - sum(part is Ellipsis for part in parts))
    axis = 0
    for part in parts:
        if part is Ellipsis:
            axis += rest
            continue
        yield axis, part
        axis += 1


def _piece(args: tuple[Any, ...], axis: int) -> torch.Tensor:
    x, index = args[0], args[1] if isinstance(args[1], tuple) else (args[1],)
    part = next(part for part in index if isinstance(part, slice) and part.step)
    return x.chunk(part.step, axis)[part.start or 0]


def _bounds(sites: list[Site]) -> Iterator[tuple[Variant, Change]]:
    """All that several instructions cut at one number, such as a capacity, cut one later or earlier."""
    by_bound: dict[int, list[Site]] = {}
    for site in sites:
        for bound in _bounds_of(site):
            by_bound.setdefault(bound, []).append(site)
    for bound, same in by_bound.items():
        if len(set(map(instruction, same))) > 1:
            for other in (bound + 1, bound - 1):
                variant = Variant(
                    "bound",
                    f"cuts at {other} where the reference cuts at {bound}: compares with it by <= for <, or the other "
                    "way round",
                    f"keep what is before {bound}: places below it, counted from 0",
                    _cut_at(bound, other),
                )
                yield variant, Change(variant.apply, numbers(same))


def _parts(site: Site) -> tuple[Any, ...]:
    if site.name not in ("__getitem__", "__setitem__") or not isinstance(site.args[0], torch.Tensor):
        return ()
    return site.args[1] if isinstance(site.args[1], tuple) else (site.args[1],)


def _bounds_of(site: Site) -> set[int]:
    ends = {end for part in _parts(site) if isinstance(part, slice) for end in (part.start, part.stop)}
    return {end for end in ends if type(end) is int and end > 0}


def _cut_at(bound: int, other: int) -> Callable[..., Any]:
    def moved(part: Any) -> Any:
        if not isinstance(part, slice):
            return part
        start, stop = (other if end == bound else end for end in (part.start, part.stop))
        return slice(start, stop, part.step)

    def apply(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        parts = args[1] if isinstance(args[1], tuple) else (args[1],)
        return func(args[0], tuple(map(moved, parts)), *args[2:], **kwargs)

    return apply


def _left_as_written(sites: list[Site]) -> Iterator[tuple[Variant, Change]]:
    """What one instruction has written into a tensor stays as it was, where a later call changes all of it."""
    for same in constructs(sites):
        if same[0].name != "__setitem__" or not is_floating(same[0].args[0]):
            continue
        into = same[0].args[0]
        if any(site.args[0] is not into for site in same):
            continue
        for later in sites:
            takes = any(each is into for each in later.args[:1])
            if not takes or later.name not in ELEMENTWISE or later.number < same[-1].number:
                continue
            if is_floating(later.result) and later.result.shape == into.shape:
                variant = Variant(
                    "written-part",
                    f"leaves {later.name} out of what is written into a part of its tensor before",
                    f"{later.name} of all elements, those that were written too: write first, as the reference does",
                    _LeftAsWritten(),
                )
                yield variant, Change(variant.apply, numbers([*same, later]))


class _LeftAsWritten:
    """In place of writes into parts of a tensor, and of a later call of it: that leaves those parts as they were."""

    def __init__(self) -> None:
        self.written: list[Any] = []

    def __call__(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if getattr(func, "__name__", "") == "__setitem__":
            self.written.append(args[1])
            return func(*args, **kwargs)
        whole = torch.zeros(args[0].shape, dtype=torch.bool)
        for index in self.written:
            whole[index] = True
        self.written.clear()
        before = args[0].clone()
        result = torch.where(whole, before, func(*args, **kwargs))
        return args[0].copy_(result) if func.__name__.endswith("_") else result
