"""Rounding to integers, and integers of fewer bits: where an index or a hash comes from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ..variants import Called, Variant, after, of, signature

ADDS = ("add", "radd", "iadd")
ROUNDED = {"floor": "down", "ceil": "up", "round": "to the nearest", "trunc": "towards zero"}
NARROWER = {torch.int64: (torch.int32, torch.int16, torch.uint8), torch.int32: (torch.int16, torch.uint8)}
signature("div true_divide floor_divide", "input other rounding_mode")
COUNTS = ("mul", "mul_", "__mul__", "__rmul__", "add", "add_", "__add__", "__radd__", "sub", "pow", "cumsum", "sum")


@of("floor", "ceil", "round", "trunc", "fix", "floor_", "ceil_", "round_", "trunc_")
def rounding(call: Called) -> Iterator[Variant]:
    known = call.name.rstrip("_").replace("fix", "trunc")
    for other, words in ROUNDED.items():
        if other != known:
            yield Variant(
                "rounding",
                f"rounds {words} where the reference rounds {ROUNDED[known]}",
                f"write jnp.{known}; astype to an integer rounds towards zero",
                lambda func, args, kwargs, other=other: getattr(torch, other)(args[0]),
            )


@of("div", "floor_divide", "__floordiv__", "__rfloordiv__")
def quotient(call: Called) -> Iterator[Variant]:
    mode = call.get("rounding_mode") if call.name == "div" else "floor"
    if mode is None:
        return
    other = "trunc" if mode == "floor" else "floor"
    yield Variant(
        "rounding",
        f"rounds the quotient {ROUNDED[other]} where the reference rounds {ROUNDED[mode]}",
        "write // or jnp.floor_divide" if mode == "floor" else "write jax.lax.div on integers, or jnp.trunc of x / y",
        lambda func, args, kwargs: torch.div(*_in_order(call, args), rounding_mode=other),
    )


@of("remainder", "__mod__", "__rmod__", "fmod")
def remainder(call: Called) -> Iterator[Variant]:
    other, words = ("remainder", "divisor") if call.name == "fmod" else ("fmod", "dividend")
    yield Variant(
        "rounding",
        f"gives the remainder the sign of the {words}",
        "write jnp.fmod or jax.lax.rem" if call.name == "fmod" else "write % or jnp.remainder, not jax.lax.rem",
        lambda func, args, kwargs: getattr(torch, other)(*_in_order(call, args)),
    )


@of(*COUNTS)
def narrower(call: Called) -> Iterator[Variant]:
    result = call.site.result
    if not isinstance(result, torch.Tensor) or not result.numel():
        return
    for dtype in NARROWER.get(result.dtype, ()):
        limits = torch.iinfo(dtype)
        if result.min() < limits.min or result.max() > limits.max:
            yield Variant(
                "integer-overflow",
                f"counts in {str(dtype).removeprefix('torch.')}, beyond which the result goes",
                f"count in {str(result.dtype).removeprefix('torch.')}: JAX's integers have 32 bits unless "
                "jax_enable_x64 is set; or take the remainder before the numbers grow",
                after(lambda x, dtype=dtype: x.to(dtype).to(x.dtype)),
            )


def _in_order(call: Called, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Dividend and divisor: the reflected operators of Python have them the other way round."""
    return (args[1], args[0]) if call.name.startswith("__r") else tuple(args[:2])


@of("floor", "floor_")
def drawn_mask(call: Called) -> Iterator[Variant]:
    """Of `floor(share + uniform)`, which is 1 for that share of the numbers: those at the other end."""
    maker = call.ancestry.maker(call.args[0]) if call.ancestry is not None else None
    if maker is None or maker.name.strip("_") not in ADDS:
        return
    result, share = call.site.result, next((x for x in maker.args if isinstance(x, float)), 0.0)
    if not 0 < share < 1 or not bool(((result == 0) | (result == 1)).all()):
        return
    yield Variant(
        "mask-drawn",
        f"keeps where what is drawn is below {share:.6g}, where the reference keeps from {1 - share:.6g} on",
        f"keep as many at the reference's end: u >= {1 - share:.6g}",
        lambda func, args, kwargs: (args[0] < 2 * share).to(args[0].dtype),
    )
