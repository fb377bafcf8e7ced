"""Masks: left out, read the other way round, filled with another number, causal ones that are off."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..change import Site
from ..variants import Called, Fit, Variant, after, before, of, signature

MASKED_BY = ("masked_fill", "masked_scatter", "scaled_dot_product_attention", "multi_head_attention_forward")
HIDES = -1e4  # what is added to scores so that nothing is left of them, at most

signature("masked_fill masked_fill_", "input mask value")
signature("where", "condition input other")
signature("fill_diagonal_", "input fill_value wrap")
signature("tril triu tril_ triu_", "input diagonal")

POLARITY = "True means attend in jax.nn.dot_product_attention and SDPA, and ignore in nn.MultiheadAttention: invert it"


@of("masked_fill", "masked_fill_")
def filled(call: Called) -> Iterator[Variant | Fit]:
    yield Variant("mask-polarity", "fills where the mask does not hold", POLARITY, call.with_(mask=lambda m: ~m))
    yield Variant(
        "mask-missing", "leaves the mask out", "mask as the reference does", lambda func, args, kwargs: args[0].clone()
    )
    known = call.get("value")
    fix = f"fill with {'jnp.finfo(x.dtype).min' if known == torch.finfo(torch.float64).min else known}"
    for value in (0.0, -1e4, -1e9, float("-inf"), torch.finfo(torch.float32).min):
        if value != known:
            yield Variant("mask-value", f"fills with {value:g}", fix, call.with_(value=value))
    if isinstance(known, int | float):
        yield Fit(
            "mask-value",
            "fills with {value}",
            fix,
            float(known) if math.isfinite(known) else math.copysign(1e30, known),
            lambda value: call.with_(value=value),
            (-1e4, -1e3, -100.0, -30.0, -10.0, 0.0, 1.0),
        )


@of("fill_diagonal_")
def diagonal(call: Called) -> Iterator[Variant]:
    """Of what is compared with itself, as each row of a batch is with all in a contrastive loss."""
    known = call.get("fill_value")
    fix = f"write {known} on the diagonal"
    yield Variant("mask-missing", "leaves the diagonal as it is", fix, lambda func, args, kwargs: args[0])
    for value in (0.0, -1e4, -1e9, float("-inf"), torch.finfo(torch.float32).min, 1.0):
        if value != known:
            yield Variant("mask-value", f"has {value:g} on the diagonal", fix, call.with_(fill_value=value))


@of("where")
def chosen(call: Called) -> Iterator[Variant]:
    if not chooses(call.site):
        return
    yield Variant(
        "mask-polarity",
        "takes the one branch where the condition asks for the other",
        "swap the branches of jnp.where",
        lambda func, args, kwargs: func(args[0], args[2], args[1]),
    )
    for place, words, other in ((1, "first", 2), (2, "second", 1)):
        masks = _is_zero(call.args[place]) and _hides(call.args[other])
        yield Variant(
            "mask-missing" if masks else "branch",
            "leaves the mask out: adds nothing anywhere" if masks else f"always takes the {words} branch",
            "choose by the condition: jnp.where",
            lambda func, args, kwargs, place=place: _like(args[place], func(*args)),
        )


@of("and", "__and__", "__rand__", "__iand__", "logical_and", "bitwise_and", "or", "__or__", "logical_or", "bitwise_or")
def both(call: Called) -> Iterator[Variant]:
    """Two conditions in one: a mask of padding with a causal one, say."""
    if not all(isinstance(x, torch.Tensor) and x.dtype == torch.bool for x in call.args) or len(call.args) != 2:
        return
    for place, words in enumerate(("first", "second")):
        yield Variant(
            "mask-missing",
            f"leaves the {words} of two masks out",
            f"combine both, as the reference does by {call.name.strip('_')}",
            lambda func, args, kwargs, other=1 - place: args[other].expand_as(func(*args)).clone(),
        )
        yield Variant(
            "mask-polarity",
            f"reads the {words} of two masks the other way round",
            POLARITY,
            before(lambda mask: ~mask, place),
        )


BITS: dict[str, tuple[str, Callable[..., torch.Tensor]]] = {
    "and": ("&", torch.bitwise_and),
    "or": ("|", torch.bitwise_or),
    "xor": ("^", torch.bitwise_xor),
    "lshift": ("<<", torch.bitwise_left_shift),
    "rshift": (">>", torch.bitwise_right_shift),
}
OTHERS = {
    "and": ("or", "xor"),
    "or": ("and", "xor"),
    "xor": ("or", "and"),
    "lshift": ("rshift",),
    "rshift": ("lshift",),
}


@of(*(f"__{sided}{name}__" for name in BITS for sided in ("", "r", "i")))
@of(*(f"{kind}_{name}" for kind in ("bitwise", "logical") for name in ("and", "or", "xor")))
@of("bitwise_left_shift", "bitwise_right_shift")
def combined(call: Called) -> Iterator[Variant]:
    """Bits of two masks, or of two integers, by another operator; or those of the one alone."""
    name = call.name.strip("_").replace("left_shift", "lshift").replace("right_shift", "rshift").rpartition("_")[2]
    is_reflected = name not in BITS and name[0] == "r"
    usual = name if name in BITS else name[1:]
    if any(isinstance(x, torch.Tensor) and x.is_floating_point() for x in call.args):
        return
    fix = f"combine them as the reference does: {BITS[usual][0]}"
    is_mask = call.site.result.dtype == torch.bool
    for other in OTHERS[usual]:
        sign, function = BITS[other]
        yield Variant(
            "operator",
            f"combines by {sign} what the reference combines by {BITS[usual][0]}",
            fix,
            lambda func, args, kwargs, f=function: f(*(args[:2][::-1] if is_reflected else args[:2])),
            is_guess=is_mask and other == "xor",  # what nobody writes of masks, and what much else comes to
        )
    for place in () if is_mask else range(1 if "shift" in usual else 2):
        yield Variant(
            "operator-missing",
            f"leaves {BITS[usual][0]} out: has the {('first', 'second')[place]} alone",
            fix,
            lambda func, args, kwargs, place=place: _like(args[place], func(*args)),
        )


@of("to", "bool", "type")
def as_mask(call: Called) -> Iterator[Variant]:
    if call.site.result.dtype == torch.bool and call.args[0].dtype != torch.bool:
        yield Variant("mask-polarity", "reads the mask the other way round", POLARITY, after(lambda mask: ~mask))


@of("tril", "triu", "tril_", "triu_")
def triangle(call: Called) -> Iterator[Variant]:
    """Of a matrix; where that is one number throughout, or is then used as a mask, it is what hides the future."""
    known, masks = call.get("diagonal", 0), _masks(call)
    if call.site.result.dtype == torch.bool:
        yield Variant("mask-polarity", "has the mask the other way round", POLARITY, after(lambda mask: ~mask))
    for diagonal in dict.fromkeys((known - 1, known + 1, known - 2, known + 2, 0, -known)):
        if diagonal != known:
            before = ", the length of what came before" if masks and known > 0 == diagonal else ""
            yield Variant(
                "causal-mask" if masks else "triangle",
                f"takes the triangle from diagonal {diagonal}",
                f"take it from {known}{before}",
                call.with_(diagonal=diagonal),
            )
    name = call.name.rstrip("_")
    if not masks:
        fix = f"write jnp.{name} with k={known}"
        yield Variant("triangle", f"leaves {name} out", fix, lambda func, args, kwargs: args[0].clone())
        other = {"tril": torch.triu, "triu": torch.tril}[name]
        says = f"takes the other triangle, by {other.__name__} from diagonal {-known}"
        yield Variant("triangle", says, fix, lambda func, args, kwargs: other(args[0], -known))
        yield Variant("triangle", f"transposes what {name} gives", fix, after(lambda x: x.transpose(-1, -2)))
        return
    yield Variant(
        "causal-mask",
        "masks nothing of the future",
        f"mask with jnp.{call.name.rstrip('_')}",
        lambda func, args, kwargs: _whole(args[0], call.name),
        leaves_out=True,
    )
    yield Variant(
        "causal-mask",
        "masks the past",
        f"mask with jnp.{call.name.rstrip('_')}",
        lambda func, args, kwargs: func(*args, **kwargs).transpose(-1, -2),
    )


@of("le", "lt", "ge", "gt", "__le__", "__lt__", "__ge__", "__gt__")
def places(call: Called) -> Iterator[Variant]:
    """A causal mask that is a comparison of the places of queries with those of keys."""
    if not compares_places(call.site):
        return
    for shift in (1, -1):
        yield Variant(
            "causal-mask",
            f"sets the causal mask off by one: compares places that are {shift:+d} of the reference's",
            "let position i see 0 to i",
            lambda func, args, kwargs, s=shift: func(args[0] + s, args[1]),
        )
    for all_of in (torch.ones_like, torch.zeros_like):
        says, fix = "masks nothing of the future", "mask as the reference does: jnp.tril"
        yield Variant("causal-mask", says, fix, after(all_of), leaves_out=True)
    yield Variant(
        "causal-mask",
        "masks the past",
        "mask as the reference does: jnp.tril",
        after(lambda mask: mask.transpose(-1, -2)),
    )


@of("__getitem__")
def taken(call: Called) -> Iterator[Variant]:
    """What a mask takes out of a tensor."""
    index = call.args[1] if len(call.args) > 1 else None
    if isinstance(index, torch.Tensor) and index.dtype == torch.bool:
        fix = "take those alone: jnp.where with a mask, and count what it holds for"
        yield Variant("mask-missing", "takes all, and not those alone that a mask holds for", fix, _all_of)
        says = "takes those that the mask does not hold for"
        yield Variant("mask-polarity", says, POLARITY, lambda func, args, kwargs: func(args[0], ~args[1]))


def _all_of(func: Any, args: Any, kwargs: Any) -> Any:
    return args[0].flatten(0, args[1].dim() - 1).clone()


def _masks(call: Called) -> bool:
    x = call.args[0]
    if x.dtype == torch.bool or bool((x == x.flatten()[0]).all()):
        return True
    takers = call.ancestry.takers(call.site.result) if call.ancestry is not None else []
    return any(site.name.rstrip("_") in MASKED_BY and call.site.result is not site.args[0] for site in takers)


def chooses(site: Site) -> bool:
    """Whether it takes each element from one of two by a condition."""
    return site.name == "where" and len(site.args) == 3


def compares_integers(site: Site) -> bool:
    """Whether it compares tensors of them by size: places with each other, or with lengths."""
    return _orders(site) and all(map(_is_integer, site.args))


def compares_distances(site: Site) -> bool:
    """Whether it compares a tensor of integers by size with one number, as how far two places are apart."""
    return _orders(site) and _is_integer(site.args[0]) and type(site.args[1]) is int


def _orders(site: Site) -> bool:
    return site.name.strip("_") in ("le", "lt", "ge", "gt") and len(site.args) == 2


def compares_places(site: Site) -> bool:
    """Whether it compares places along one axis with places along another: integers that follow each other."""
    if not compares_integers(site):
        return False
    a, b = (tuple(x.shape) for x in site.args)
    if not (len(a) == len(b) >= 2 and 1 in (a[-1], b[-1]) and 1 in (a[-2], b[-2]) and a[-2:] != b[-2:]):
        return False
    return all((x.diff(dim=-1 if x.shape[-1] > 1 else -2) == 1).all() for x in site.args)


def _is_integer(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not (value.is_floating_point() or value.dtype == torch.bool)


def _is_zero(value: Any) -> bool:
    return not (value != 0).any() if isinstance(value, torch.Tensor) else value == 0


def _hides(value: Any) -> bool:
    return bool((value <= HIDES).all() if isinstance(value, torch.Tensor) else value <= HIDES)


def _like(value: Any, result: torch.Tensor) -> torch.Tensor:
    return value.expand_as(result).clone() if isinstance(value, torch.Tensor) else torch.full_like(result, value)


def _whole(x: torch.Tensor, name: str) -> torch.Tensor:
    return x.clone() if name.startswith("tril") else torch.zeros_like(x)
