"""What is written into a part of a tensor: left out, where the mask does not hold, or another number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ..variants import Called, Fit, Variant, of, signature
from .mask import POLARITY

signature("__setitem__", "input indices value")
signature("index_fill index_fill_", "input dim index value")
signature("masked_scatter masked_scatter_", "input mask source")

SET = (
    "write x = jnp.where(mask, value, x), or x = x.at[index].set(value), and go on with what it gives; of a variable, "
    "self.x[...] = that"
)


@of("__setitem__")
def assigned(call: Called) -> Iterator[Variant | Fit]:
    masks = _has_mask(call.args[1])
    what = "the masked assignment" if masks else "the assignment to a part"
    yield Variant(
        "mask-missing" if masks else "assignment-missing", f"leaves {what} out", SET, lambda func, args, kwargs: None
    )
    if masks:
        yield Variant(
            "mask-polarity",
            "assigns where the mask does not hold",
            "assign where it holds: jnp.where(mask, value, x)",
            lambda func, args, kwargs: func(args[0], _turned(args[1]), args[2]),
        )
    yield from _number(call, masks, "assigns")


@of("index_fill", "index_fill_")
def index_filled(call: Called) -> Iterator[Variant | Fit]:
    yield Variant("assignment-missing", f"leaves {call.name} out", SET, lambda func, args, kwargs: args[0].clone())
    yield from _number(call, False, "fills with")


@of("masked_scatter", "masked_scatter_")
def mask_scattered(call: Called) -> Iterator[Variant]:
    yield Variant(
        "mask-missing",
        f"leaves {call.name} out",
        "scatter as the reference does",
        lambda func, args, kwargs: args[0].clone(),
    )
    yield Variant("mask-polarity", "scatters where the mask does not hold", POLARITY, call.with_(mask=lambda m: ~m))


def _number(call: Called, masks: bool, does: str) -> Iterator[Fit]:
    known = call.get("value")
    x = call.args[0]
    if isinstance(known, int | float) and not isinstance(known, bool) and x.is_floating_point():
        yield Fit(
            "mask-value" if masks else "constant",
            f"{does} {{value}}",
            "take {known}",
            float(known),
            lambda value: call.with_(value=value),
            (0.0, 1.0, -1.0),
        )


def _has_mask(index: Any) -> bool:
    return any(_is_mask(part) for part in (index if isinstance(index, tuple | list) else (index,)))


def _is_mask(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.bool


def _turned(index: Any) -> Any:
    if isinstance(index, tuple | list):
        return tuple(~part if _is_mask(part) else part for part in index)
    return ~index
