"""Moves of elements: in what order pieces come, are repeated, shuffled and rolled."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch

from ..variants import Called, Variant, after, of, other_orders, signature

MOST_HEADS = 32
MOST_PIECES = 4  # whose orders are all tried

signature("chunk split", "input size dim")
signature("cat concat concatenate stack", "tensors dim")
signature("roll", "input shifts dims")
signature("pixel_shuffle", "input upscale_factor")
signature("pixel_unshuffle", "input downscale_factor")


@of("chunk", "split", "unbind", "tensor_split")
def pieces(call: Called) -> Iterator[Variant]:
    count = len(call.site.result)
    if count > 6:
        return
    usual = tuple(range(count))
    takes = f"takes the pieces of {call.name} in the order"
    if call.is_made_in("__iter__"):  # a, b = x
        takes = "unpacks a tensor in the order"
    for order in other_orders(count):
        yield Variant(
            "pieces-order",
            f"{takes} {order}, where the reference's is {usual}",
            "take them in order",
            lambda func, args, kwargs, order=order: tuple(func(*args, **kwargs)[i] for i in order),
        )
    dim = call.get("dim", 0) if call.name != "unbind" else None
    if dim is not None and count > 1:
        yield Variant(
            "pieces-interleaved",
            "takes every n-th element into a piece",
            "take neighbours into a piece",
            lambda func, args, kwargs: tuple(_every(args[0], count, dim)),
        )
        yield from _of_heads(call, count, dim)


def _of_heads(call: Called, count: int, dim: int) -> Iterator[Variant]:
    """Queries, keys and values that a projection packs by head: each piece of all heads for all pieces of each head."""
    x = call.args[0]
    dim %= x.dim()
    if count not in (2, 3) or any(piece.shape != call.site.result[0].shape for piece in call.site.result):
        return
    for heads in range(2, MOST_HEADS + 1):
        if x.shape[dim] % (count * heads) == 0 and x.shape[dim] > count * heads:  # else it is every n-th element
            yield Variant(
                "head-order",
                f"takes the {count} pieces of each of {heads} heads, for {count} pieces of all heads",
                f"the projection is packed as [{count}, heads, head_dim], not as [heads, {count}, head_dim]",
                lambda func, args, kwargs, heads=heads: _by_head(args[0], heads, count, dim),
            )
    for axis, heads in ((axis, heads) for axis in range(dim) for heads in range(2, MOST_HEADS + 1)):
        if x.shape[axis] % heads == 0:
            yield Variant(
                "head-order",
                f"takes {count} pieces of all {heads} heads, for the {count} pieces of each head",
                f"the projection is packed as [heads, {count}, head_dim], not as [{count}, heads, head_dim]",
                lambda func, args, kwargs, axis=axis, heads=heads: _of_all_heads(args[0], heads, axis, count, dim),
            )


def _by_head(x: torch.Tensor, heads: int, count: int, dim: int) -> tuple[torch.Tensor, ...]:
    return tuple(each.flatten(dim, dim + 1) for each in x.unflatten(dim, (heads, count, -1)).unbind(dim + 1))


def _of_all_heads(x: torch.Tensor, heads: int, axis: int, count: int, dim: int) -> tuple[torch.Tensor, ...]:
    """`axis` holds the heads, the last to change in it."""
    whole = x.unflatten(axis, (-1, heads)).movedim(axis + 1, dim).flatten(dim, dim + 1)
    pieces = whole.unflatten(dim, (count, heads, -1)).unbind(dim)
    return tuple(each.movedim(dim, axis + 1).flatten(axis, axis + 1) for each in pieces)


@of("cat", "concat", "concatenate", "stack")
def joined(call: Called) -> Iterator[Variant]:
    tensors, dim = list(call.args[0]), call.get("dim", 0)
    if len(tensors) > MOST_PIECES:
        yield from _grouped(tensors)
        return
    if _rolls(call, tensors, dim):
        yield Variant(
            "shift",
            "rolls the other way",
            "roll as the reference does, which joins the end of a tensor and what is before it",
            lambda func, args, kwargs: torch.cat(args[0][::-1], dim).roll(-args[0][0].shape[dim], dim),
        )
    for order in other_orders(len(tensors)):
        yield Variant(
            "pieces-order",
            f"joins the pieces in the order {order}, where the reference's is {tuple(range(len(tensors)))}",
            "join them in order",
            lambda func, args, kwargs, order=order: func([list(args[0])[i] for i in order], *args[1:], **kwargs),
        )
    for number in range(len(tensors)):
        for axis in range(tensors[number].dim()):
            yield Variant(
                "reversed",
                f"joins piece {number} with axis {axis} reversed",
                "join it as it is",
                lambda func, args, kwargs, n=number, a=axis: func(_flipped(args[0], n, a), *args[1:], **kwargs),
            )
    if len(tensors) == 2 and call.name == "cat" and tensors[0].shape == tensors[1].shape:
        yield Variant(
            "rotary-interleaving",
            "interleaves the pieces",
            "join the halves one after the other: rotate halves, as the reference does",
            lambda func, args, kwargs: _interleaved(args[0][0], args[0][1], dim),
        )
        yield Variant(
            "rotary-sign",
            "has the sign of the first piece turned",
            "rotate as (-x2, x1)",
            lambda func, args, kwargs: func([-args[0][0], args[0][1]], *args[1:], **kwargs),
        )
        yield Variant(
            "rotary-sign",
            "rotates the other way round",
            "rotate as (-x2, x1)",
            lambda func, args, kwargs: -func(*args, **kwargs),
        )


def _rolls(call: Called, tensors: list[torch.Tensor], dim: int) -> bool:
    """Whether the pieces are a tensor's, its end first."""
    makers = [call.ancestry.maker(x) if call.ancestry is not None else None for x in tensors]
    origins = [maker.args[0] for maker in makers if maker is not None and maker.args]
    if call.name == "stack" or len(tensors) != 2 or len(origins) != 2 or not isinstance(origins[0], torch.Tensor):
        return False
    return origins[0] is origins[1] and torch.equal(torch.cat(tensors[::-1], dim), origins[0])


def _grouped(tensors: list[torch.Tensor]) -> Iterator[Variant]:
    """Many pieces that come in groups, as the sines and cosines of several frequencies do: what stands at one place of
    each group, and then at the next; all of them, or all but the first."""
    for begin in (0, 1):
        count = len(tensors) - begin
        for width in (width for width in range(2, count) if count % width == 0):
            after = ", after the first" if begin else ""
            yield Variant(
                "pieces-order",
                f"joins every {width}{_TH.get(width, 'th')} piece{after}, and then the others likewise, where the "
                "reference joins the pieces one by one",
                "join them in order: all of a group before the next group's",
                lambda func, args, kwargs, b=begin, w=width: func(_by_place(args[0], b, w), *args[1:], **kwargs),
            )


_TH = {2: "nd", 3: "rd"}


def _by_place(tensors: Any, begin: int, width: int) -> list[torch.Tensor]:
    first, others = list(tensors)[:begin], list(tensors)[begin:]
    if len(others) % width:
        raise ValueError(f"{len(others)} pieces are no groups of {width}")
    return [*first, *(piece for place in range(width) for piece in others[place::width])]


@of("repeat_interleave", "repeat", "tile")
def repeated(call: Called) -> Iterator[Variant]:
    result, x = call.site.result, call.args[0]
    if not isinstance(x, torch.Tensor) or result.dim() != x.dim():
        return
    times = [after // before if before else 1 for after, before in zip(result.shape, x.shape, strict=True)]
    for axis in (axis for axis in range(x.dim()) if times[axis] > 1 and x.shape[axis] > 1):
        if call.name == "repeat_interleave":
            yield Variant(
                "repeat-order",
                "repeats the whole, not each element",
                "repeat each element: jnp.repeat",
                lambda func, args, kwargs: args[0].repeat(times),
            )
        else:
            others = [1 if each == axis else count for each, count in enumerate(times)]
            yield Variant(
                "repeat-order",
                f"repeats each element along axis {axis}, not the whole",
                "repeat the whole: jnp.tile",
                lambda func, args, kwargs, a=axis, s=others: args[0].repeat_interleave(times[a], a).repeat(s),
            )


@of("repeat_interleave")
def runs(call: Called) -> Iterator[Variant]:
    """Each element as often as is said of it, in places that are off by one."""
    counts, dim = call.args[1] if len(call.args) > 1 else call.site.kwargs.get("repeats"), call.site.kwargs.get("dim")
    dim = call.args[2] if len(call.args) > 2 else dim
    if not isinstance(counts, torch.Tensor) or counts.numel() < 2 or dim is None:
        return
    fix = 'jnp.repeat(x, counts, total_repeat_length=n), or jnp.searchsorted(ends, places, side="right")'

    def late(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.narrow(dim, 0, 1), x.narrow(dim, 0, x.shape[dim] - 1)], dim)

    def early(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.narrow(dim, 1, x.shape[dim] - 1), x.narrow(dim, -1, 1)], dim)

    yield Variant("search-side", "ends each run of equal elements one place late", fix, after(late))
    yield Variant("search-side", "ends each run of equal elements one place early", fix, after(early))


@of("meshgrid")
def grids(call: Called) -> Iterator[Variant]:
    """The axes of a grid the other way round: NumPy's order is not PyTorch's."""
    usual = call.site.kwargs.get("indexing") or "ij"
    other = "xy" if usual == "ij" else "ij"
    yield Variant(
        "grid-order",
        f"has the grid's axes as with indexing='{other}'" + (", jnp.meshgrid's default" if other == "xy" else ""),
        f"give indexing='{usual}'",
        lambda func, args, kwargs: func(*args, **{**kwargs, "indexing": other}),
    )

    def read_on(func: Any, args: Any, kwargs: Any) -> Any:
        """In the other order, and taken for what lies in this one, as where points are one axis then."""
        right, wrong = func(*args, **kwargs), func(*args, **{**kwargs, "indexing": other})
        return tuple(b.reshape(a.shape) for a, b in zip(right, wrong, strict=True))

    yield Variant(
        "grid-order",
        f"has the grid's points in the order of indexing='{other}'"
        + (", jnp.meshgrid's default" if other == "xy" else ""),
        f"give indexing='{usual}'",
        read_on,
    )


@of("pixel_shuffle", "pixel_unshuffle")
def shuffled(call: Called) -> Iterator[Variant]:
    factor = call.get(call.names[1])

    def other(func: Any, args: Any, kwargs: Any) -> Any:
        x = args[0]
        order = torch.arange(x.shape[1]).reshape(factor**2, -1).T.reshape(-1)
        return func(x[:, order], factor)

    yield Variant("pixel-order", "takes the channels as [factor, factor, C]", "they lie as [C, factor, factor]", other)
    yield Variant(
        "pixel-order",
        "swaps the two factors",
        "they lie as [C, factor, factor], rows first",
        lambda func, args, kwargs: _swapped_factors(func, args[0], factor),
    )


@of("roll")
def rolled(call: Called) -> Iterator[Variant]:
    yield Variant(
        "shift",
        "rolls the other way",
        "roll as the reference does",
        call.with_(shifts=_negated),
    )
    yield Variant("shift", "does not roll", "roll as the reference does", lambda func, args, kwargs: args[0].clone())
    shifts, dims = call.get("shifts"), call.get("dims")
    if not (isinstance(shifts, tuple | list) and isinstance(dims, tuple | list) and len(shifts) > 1):
        return
    says = f"rolls each of axes {', '.join(map(str, dims))} by what is another's"
    yield Variant("shift", says, "give the shifts in the order of their axes", call.with_(shifts=_turned))
    for place, dim in enumerate(dims):
        for words, factor in (("rolls the other way", -1), ("does not roll", 0)):
            other = functools.partial(_times, place=place, factor=factor)
            yield Variant("shift", f"{words} along axis {dim}", "roll as the reference does", call.with_(shifts=other))


@of("flip")
def flipped(call: Called) -> Iterator[Variant]:
    yield Variant("reversed", "does not flip", "flip as the reference does", lambda func, args, kwargs: args[0].clone())


def _every(x: torch.Tensor, count: int, dim: int) -> list[torch.Tensor]:
    return [x[(slice(None),) * (dim % x.dim()) + (slice(i, None, count),)] for i in range(count)]


def _flipped(tensors: Any, number: int, axis: int) -> list[torch.Tensor]:
    return [x.flip(axis) if i == number else x for i, x in enumerate(tensors)]


def _interleaved(a: torch.Tensor, b: torch.Tensor, dim: int) -> torch.Tensor:
    dim = dim % a.dim()
    return torch.stack([a, b], dim + 1).flatten(dim, dim + 1)


def _swapped_factors(func: Any, x: torch.Tensor, factor: int) -> torch.Tensor:
    order = torch.arange(x.shape[1]).reshape(-1, factor, factor).transpose(1, 2).reshape(-1)
    return func(x[:, order], factor)


def _turned(shifts: Any) -> Any:
    return (*shifts[1:], shifts[0])


def _times(shifts: Any, place: int, factor: int) -> Any:
    return tuple(factor * s if i == place else s for i, s in enumerate(shifts))


def _negated(shifts: Any) -> Any:
    return -shifts if isinstance(shifts, int) else tuple(-s for s in shifts)
