"""Bags of rows: where one ends, what is done with its rows, and what a mean is divided by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F

from ..variants import Called, Fit, Variant, of, signature

MODES = ("sum", "mean", "max")
ENDS = "a bag begins at its offset, and ends before the next one's: searchsorted with side='right', less 1"

signature(
    "embedding_bag",
    "input weight offsets max_norm norm_type scale_grad_by_freq mode sparse per_sample_weights include_last_offset "
    "padding_idx",
)


@of("embedding_bag")
def bag(call: Called) -> Iterator[Variant | Fit]:
    usual, weights, padding = call.get("mode", "mean"), call.get("per_sample_weights"), call.get("padding_idx")
    if weights is not None:
        says = "leaves the weights of a bag's rows out"
        yield Variant("factor-missing", says, "multiply each row by its weight", call.with_(per_sample_weights=None))
    if padding is not None:
        says, fix = f"counts row {padding} in, the one of padding", f"leave row {padding} out, and count the others"
        yield Variant("padding-index", says, fix, call.with_(padding_idx=None))
        if usual == "mean":
            says = f"divides by the number of all rows of a bag, those of row {padding}, too"
            yield Variant("padding-index", says, fix, _over_all(call))
    if usual == "max" and call.get("offsets") is not None:
        says, fix = "gives -inf for a bag without rows", "give 0 there: gm.segment_max(..., empty=0)"
        yield Variant("empty-bag", says, fix, _empty_at_least(call))
    for mode in MODES:
        if mode != usual and (weights is None or mode == "sum"):
            says = f"takes the {mode} of a bag's rows for the {usual}"
            yield Variant("reduction", says, f"take the {usual}", call.with_(mode=mode))
    if call.get("offsets") is None:
        return
    says = "counts the first row of each bag to the bag before"
    yield Variant("bag-ends", says, ENDS, _shifted(call, first=True))
    yield Variant("bag-ends", f"{says}, and the very first to none", ENDS, _shifted(call, first=False))
    if usual == "mean" and padding is None:
        says = "divides by the number of a bag's rows + {value}"
        fix = "divide by the number, or by 1 where it is 0: jnp.maximum(n, 1)"
        yield Fit("constant", says, fix, 0.0, _more_rows, (1e-8, 1e-6, 1e-5, 1.0))


def _over_all(call: Called) -> Any:
    summed = call.with_(mode="sum")

    def run(func: Any, args: Any, kwargs: Any) -> torch.Tensor:
        counts = args[0].shape[1] if args[0].ndim == 2 else _counts(args, kwargs).clamp(min=1)
        return summed(func, args, kwargs) / counts

    return run


def _empty_at_least(call: Called) -> Any:
    def run(func: Any, args: Any, kwargs: Any) -> Any:
        found = func(*args, **kwargs)
        largest = found[0] if isinstance(found, tuple) else found
        largest = torch.where(_counts(args, kwargs) > 0, largest, -torch.inf)
        return (largest, *found[1:]) if isinstance(found, tuple) else largest

    return run


def _counts(args: Any, kwargs: Any) -> torch.Tensor:
    """How many rows each bag has, `[B, 1]`."""
    offsets = _offsets(args, kwargs)
    if kwargs.get("include_last_offset", False):
        offsets = offsets[:-1]
    return (torch.cat([offsets[1:], offsets.new_tensor([len(args[0])])]) - offsets)[:, None]


def _shifted(call: Called, *, first: bool) -> Any:
    """Bags that end one later; the very first row is in the first bag, or in none."""

    def run(func: Any, args: Any, kwargs: Any) -> torch.Tensor:
        rows, offsets = args[0], _offsets(args, kwargs)
        if first:
            moved = torch.where(torch.arange(len(offsets)) > 0, offsets + 1, offsets).clamp(max=len(rows))
            return call.with_(offsets=moved)(func, args, kwargs)
        others = call.with_(input=rows[1:], offsets=offsets.clamp(max=len(rows) - 1))
        return others(func, args, kwargs)

    return run


def _more_rows(value: float) -> Any:
    def run(func: Any, args: Any, kwargs: Any) -> torch.Tensor:
        rows, weight, offsets = args[0], args[1], _offsets(args, kwargs)
        if kwargs.get("include_last_offset", False):
            offsets = offsets[:-1]
        return F.embedding_bag(rows, weight, offsets, mode="sum") / (_counts(args, kwargs) + value)

    return run


def _offsets(args: Any, kwargs: Any) -> torch.Tensor:
    return args[2] if len(args) > 2 else kwargs["offsets"]
