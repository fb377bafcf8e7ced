"""Look-ups and positions: indices off by some, rows that count otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..sites import takes_all
from ..variants import Called, Fit, Variant, after, instead, of, signature

SHIFTS = (1, -1, 2, -2)  # in the order in which they are likely

signature("embedding", "input weight padding_idx max_norm norm_type scale_grad_by_freq sparse")
signature("arange", "start end step")
signature("cumsum", "input dim")
signature("one_hot", "input num_classes")


@of("embedding")
def looked_up(call: Called) -> Iterator[Variant | Fit]:
    weight, padding = call.get("weight"), call.get("padding_idx")
    rows = weight.shape[0]
    for shift in SHIFTS:
        yield Variant(
            "index-offset",
            f"looks up row i{shift:+d} for i",
            "look up row i; positions start where the reference's start",
            call.with_(input=lambda i, s=shift: (i + s).clamp(0, rows - 1)),
        )
        yield Variant(
            "index-offset",
            f"looks up row i{shift:+d} for i, round the end",
            "look up row i",
            call.with_(input=lambda i, s=shift: (i + s) % rows),
        )
    if padding is not None:
        yield Variant(
            "padding-index",
            f"lets row {padding} learn",
            f"give padding_idx={padding}: no gradient there",
            call.with_(padding_idx=None),
        )
        yield Variant(
            "padding-index",
            f"gives zeros for row {padding}",
            "padding_idx changes gradients and the first values alone",
            instead(_zeroed),
        )
    width = weight.shape[1]
    yield Variant("scale", "multiplies by sqrt(width)", "leave the factor out", after(lambda x: x * width**0.5))
    yield Fit(
        "scale", "multiplies the rows by {value}", "leave the factor out", 1.0, lambda value: after(lambda x: x * value)
    )


@of("one_hot")
def classes(call: Called) -> Iterator[Variant]:
    """Each index as a row of zeros and a one: in another place, or none where the index is beyond the last."""
    result = call.site.result
    count = result.shape[-1]
    for shift in SHIFTS:
        yield Variant(
            "index-offset",
            f"has the one of class i at {shift:+d}",
            "take the reference's index, from 0 on: jax.nn.one_hot gives zeros for an index out of range",
            lambda func, args, kwargs, s=shift: (args[0][..., None] + s == torch.arange(count)).to(result.dtype),
        )
    maker = call.ancestry.maker(call.get("input")) if call.ancestry is not None else None
    if maker is None or maker.name != "__getitem__" or not isinstance(maker.args[1], tuple):
        return
    whole, parts = maker.args[0], maker.args[1]
    taken = [place for place, part in enumerate(parts) if isinstance(part, int) and not isinstance(part, bool)]
    if len(taken) == 1 and all(takes_all(part) for part in parts if not isinstance(part, int)):
        axis = taken[0]

        def of_all(func: Any, args: Any, kwargs: Any) -> torch.Tensor:
            cut_out_of = args[0]._base  # of each run its own
            if cut_out_of is None or cut_out_of.dim() != whole.dim():
                raise ValueError("it is cut out of nothing that is known")
            return func(cut_out_of, count).double().mean(axis)

        yield Variant(
            "pooling",
            f"has the mean over all of axis {axis} for the one at {parts[axis]}, of which it makes classes",
            f"take the one at {parts[axis]}, as the reference does",
            of_all,
        )


def _zeroed(i: Any, weight: torch.Tensor, padding_idx: int | None = None, *rest: Any, **kwargs: Any) -> torch.Tensor:
    rows = torch.nn.functional.embedding(i, weight, padding_idx)
    return rows * (i != padding_idx).unsqueeze(-1)


@of("arange")
def positions(call: Called) -> Iterator[Variant]:
    start = call.args[0] if len(call.args) > 1 else call.get("start", 0)
    if isinstance(start, int) and start:
        yield Variant(
            "position-offset",
            f"counts positions from 0 where the reference goes on from {start}",
            f"start where the reference does, at {start} here: after what came before, such as a cache",
            after(lambda x: x - start),
        )
    for shift in SHIFTS:
        yield _shifted(shift)
        yield _shifted(shift, ", none below 0", lambda x: x.clamp(min=0))
    backwards = after(lambda x: x.flip(0))
    # a sign that is turned elsewhere looks like it
    yield Variant("position-order", "counts positions backwards", "count upwards", backwards, is_guess=True)


@of("__getitem__", "select", "narrow")
def places(call: Called) -> Iterator[Variant]:
    """Positions that are cut out of a table of them."""
    result = call.site.result
    if isinstance(result, torch.Tensor) and not result.is_floating_point() and result.dtype != torch.bool:
        for shift in SHIFTS:
            yield _shifted(shift, is_guess=True)  # taking the next element of a range is the same


def _shifted(
    shift: int,
    words: str = "",
    limit: Callable[[torch.Tensor], torch.Tensor] = lambda x: x,
    *,
    is_guess: bool = False,
) -> Variant:
    return Variant(
        "position-offset",
        f"counts positions from {shift:+d} of the reference's{words}",
        "count from where the reference starts",
        after(lambda x: limit(x + shift)),
        is_guess=is_guess,
    )


@of("cumsum")
def summed(call: Called) -> Iterator[Variant]:
    dim = call.get("dim", -1)
    yield Variant(
        "position-offset",
        "leaves the element itself out of the running sum",
        "count it in: jnp.cumsum",
        lambda func, args, kwargs: func(*args, **kwargs) - args[0],
    )
    ends = ("start", "end") if call.comes_of("flip", "fliplr", "flipud") else ("end", "start")
    yield Variant(
        "axis",
        f"sums from the {ends[0]}",
        f"sum from the {ends[1]}" + (": flip before and after" if ends[1] == "end" else ""),
        lambda func, args, kwargs: args[0].flip(dim).cumsum(dim).flip(dim),
    )


@of("argmax", "argmin", "topk", "sort", "argsort", "max", "min")
def ties(call: Called) -> Iterator[Variant]:
    x, dim = call.args[0], call.site.kwargs.get("dim", -1)
    if call.name in ("max", "min") and not isinstance(call.site.result, tuple):
        return
    if call.name in ("argmax", "argmin"):

        def last(func: Any, args: Any, kwargs: Any) -> Any:
            return x.shape[dim] - 1 - func(args[0].flip(dim), *args[1:], **kwargs)

        yield Variant("tie-order", "takes the last of equal elements", "take the first", last)
    if call.name in ("topk", "sort", "argsort"):

        def stable(func: Any, args: Any, kwargs: Any) -> Any:
            found = torch.sort(args[0], dim=-1, descending=True, stable=True)
            k = args[1] if len(args) > 1 else args[0].shape[-1]
            return found.values[..., :k], found.indices[..., :k]

        if call.name == "topk":
            yield Variant(
                "tie-order",
                "orders equal elements by their place",
                "PyTorch promises no order of equal elements: let the reference take the first of "
                "sort(descending=True, stable=True), or give inputs without ties",
                stable,
            )


@of("sort", "argsort", "topk")
def direction(call: Called) -> Iterator[Variant]:
    flag = "largest" if call.name == "topk" else "descending"
    usual = bool(call.site.kwargs.get(flag, call.name == "topk"))
    if len(call.args) < (4 if call.name == "topk" else 3):
        yield Variant(
            "sort-direction",
            f"sorts as with {flag}={not usual}",
            f"sort as with {flag}={usual}",
            lambda func, args, kwargs: func(*args, **{**kwargs, flag: not usual}),
        )


@of("searchsorted", "bucketize")
def search_side(call: Called) -> Iterator[Variant]:
    """Of what is equal to a value, whether it comes before or behind it."""
    is_right = bool(call.site.kwargs.get("right")) or call.site.kwargs.get("side") == "right"
    usual, other = ("right", "left") if is_right else ("left", "right")
    meaning = {"left": "leaves out what is equal", "right": "counts what is equal"}

    def otherwise(func: Any, args: Any, kwargs: Any) -> Any:
        rest = {name: value for name, value in kwargs.items() if name not in ("right", "side")}
        return func(*args, **rest, right=not is_right)

    yield Variant(
        "search-side",
        f"searches by side={other!r}, which {meaning[other]}",
        f'jnp.searchsorted(..., side="{usual}"); jnp.digitize(right=...) has it the other way round',
        otherwise,
    )
