"""Sums, products and other arithmetic: an operand left out, taken twice, or multiplied by another number."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch

from ..variants import Called, Fit, Variant, of, signature

signature("clamp_min clamp_max", "input value")
signature("dropout dropout1d dropout2d dropout3d alpha_dropout", "input p training inplace")
MOST_TURNS = 4  # whose constants are told
MOST_GAPS = 6  # between the values that are compared with a number, on either side of it
SUMS = ("add", "add_", "sub", "sub_", "__rsub__", "__radd__", "__add__", "__iadd__")
PRODUCTS = ("mul", "mul_", "div", "div_", "__rdiv__", "__rtruediv__", "true_divide", "matmul", "bmm")


@of(*SUMS)
def summands(call: Called) -> Iterator[Variant | Fit]:
    a, b = call.args[0], call.args[1] if len(call.args) > 1 else None
    if not isinstance(b, torch.Tensor):
        if isinstance(b, int | float):
            verb = "subtracts from" if call.name == "__rsub__" else "subtracts" if "sub" in call.name else "adds"
            yield from _constant(call, float(b), verb)
            yield from _beside_a_number(call, b)
        return
    if not (isinstance(a, torch.Tensor) and a.is_floating_point() and b.is_floating_point()):
        if isinstance(a, torch.Tensor) and "sub" in call.name:
            yield Variant(
                "sign",
                "has the sign of the difference turned",
                "subtract them in the reference's order",
                lambda func, args, kwargs: -func(*args, **kwargs),
            )
        return
    if call.site.result.shape == a.shape:
        yield from _broadcast(call, b)
    yield from _one_of_two(call, is_residual=a.shape == b.shape)
    yield Variant(
        "sign",
        "subtracts where the reference adds, or adds where it subtracts",
        f"{call.name.strip('_')} them",
        lambda func, args, kwargs: args[0] - args[1] if "add" in call.name else args[0] + args[1],
    )
    yield Variant(
        "sign",
        "has the sign of the result turned",
        "subtract them in the reference's order" if "sub" in call.name else "keep its sign",
        lambda func, args, kwargs: -func(*args, **kwargs),
    )
    for place, words in ((0, "first"), (1, "second")):
        yield Fit(
            "residual-scaled",
            f"multiplies {call.name_of(place) or f'the {words} summand'} by {{value}}",
            "add it as it is",
            1.0,
            lambda value, place=place: _times(place, value),
            (0.5, 2.0),
        )


@of(*SUMS, "mul", "mul_", "div", "div_")
def turned_over(call: Called) -> Iterator[Variant]:
    """A square parameter, such as of pairs of classes, by its transpose."""
    for place, side in enumerate(call.args[:2]):
        name = call.name_of(place) if isinstance(side, torch.Tensor) and side.dim() > 1 else ""
        if name and side.shape[-1] == side.shape[-2] > 1:
            yield Variant(
                "weight-transposed",
                f"takes {name} transposed",
                "take it as it is, and sum over the axis that the reference sums over",
                lambda func, args, kwargs, place=place: _transposed(func, args, place),
            )


def _one_of_two(call: Called, is_residual: bool) -> Iterator[Variant]:
    """One of two that are added or subtracted left out, or taken twice."""
    is_sum = "sub" not in call.name
    signs = (1, 1) if is_sum else (-1, 1) if call.name == "__rsub__" else (1, -1)
    of = "of the sum" if is_sum else "of the difference"
    id = "residual" if is_residual else "summand"
    for kept, lost in ((0, "second"), (1, "first")):
        name = call.name_of(1 - kept)
        what = name or f"the {lost} {'summand' if is_sum else 'term'}"
        missing, which = what, f" ({of}, the {lost} is missing)" if name else ""
        if not is_sum:
            pass  # what a residual is added to; of what is subtracted nobody says so
        elif call.is_residual(1 - kept, kept):
            missing, which = "the residual", f" ({of}, the {lost} is missing)"
        elif call.is_residual(kept, 1 - kept):
            missing, which = "to the residual what is computed from it", f" ({of}, the {lost} is missing)"
        takes_away = signs[1 - kept] < 0

        def one_alone(func: Any, args: Any, kwargs: Any, kept: int = kept) -> Any:
            return signs[kept] * _shaped(args[kept], func(*args, **kwargs))

        def once_more(func: Any, args: Any, kwargs: Any, lost: int = 1 - kept) -> Any:
            return func(*args, **kwargs) + signs[lost] * args[lost]

        if is_sum:
            says, fix = f"does not add {missing}{which}", "add both, as the reference does"
        else:
            says = f"does not subtract {missing}{which}" if takes_away else f"leaves {what} out{which}"
            fix = "subtract the one from the other, as the reference does"
        yield Variant(f"{id}-missing", says, fix, one_alone)
        verb, once = ("subtracts", "subtract") if takes_away else ("adds", "add") if is_sum else ("takes", "take")
        yield Variant(f"{id}-twice", f"{verb} {what} twice", f"{once} it once", once_more)


FORMS = {"b + x": lambda x, b: b + x, "b - x": lambda x, b: b - x, "x - b": lambda x, b: x - b}


def _beside_a_number(call: Called, b: float) -> Iterator[Variant]:
    """The sign of one side turned: `1 - x` for `1 + x`."""
    usual = "b + x" if "add" in call.name else "b - x" if call.name.startswith("__r") else "x - b"
    says = {form: form.replace("b", f"{b:.6g}") for form in FORMS}
    for form, make in FORMS.items():
        if form != usual:
            yield Variant(
                "sign",
                f"computes {says[form]} where the reference computes {says[usual]}",
                f"write {says[usual]}",
                lambda func, args, kwargs, make=make: make(args[0], b),
            )


def _broadcast(call: Called, b: torch.Tensor) -> Iterator[Variant]:
    """The second summand laid over the first in another way: repeated in another order, or not at its ends."""
    whole, name = call.site.result.shape, call.name_of(1) or "the second summand"
    aligned = (1,) * (len(whole) - b.dim()) + tuple(b.shape)
    for axis in range(len(whole) - 1):
        one, other = aligned[axis : axis + 2]
        if (one == 1) != (other == 1) and min(whole[axis : axis + 2]) > 1:
            first = "whole" if one == 1 else "elements"
            yield Variant(
                "repeat-order",
                f"repeats {name}'s {'elements' if one == 1 else 'whole'} along axes {axis} and {axis + 1}, "
                f"where the reference repeats its {first}",
                f"repeat the {first}: {'jnp.tile' if one == 1 else 'jnp.repeat'}, or broadcast over axis {axis}",
                lambda func, args, kwargs, axis=axis: func(args[0], _turned(args[1], args[0].shape, axis), **kwargs),
                is_guess=True,  # before a softmax or argmax it comes to the same as no summand
            )
    verb = f"subtract {name} from" if "sub" in call.name else f"add {name} to"
    for axis in range(1, len(whole)):
        for place, words in ((0, "first"), (-1, "last")):
            if whole[axis] > 2:
                yield Variant(
                    "summand-missing",
                    f"does not {verb} the {words} element of axis {axis}",
                    "do so with all",
                    lambda func, args, kwargs, a=axis, p=place: func(
                        args[0], _without(args[0], args[1], a, p), **kwargs
                    ),
                )


def _turned(b: torch.Tensor, whole: torch.Size, axis: int) -> torch.Tensor:
    return b.expand(whole).transpose(axis, axis + 1).reshape(whole)


def _without(a: torch.Tensor, b: torch.Tensor, axis: int, place: int) -> torch.Tensor:
    kept = torch.ones(a.shape[axis], dtype=b.dtype, device=b.device)
    kept[place] = 0
    return b.expand_as(a) * kept.reshape(-1, *[1] * (a.dim() - axis - 1))


@of(*PRODUCTS)
def factors(call: Called) -> Iterator[Variant | Fit]:
    a, b = call.args[0], call.args[1] if len(call.args) > 1 else None
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and call.name in ("mul", "mul_", "div", "div_"):
        fixes = ("divide it", "divide by it") if "div" in call.name else ("multiply by it",) * 2
        lost = ("the dividend", "the divisor") if "div" in call.name else ("the first factor", "the second factor")
        for kept in (0, 1):
            yield Variant(
                "factor-missing",
                f"leaves {call.name_of(1 - kept) or lost[1 - kept]} out",
                fixes[1 - kept],
                lambda func, args, kwargs, kept=kept: _shaped(args[kept], func(*args, **kwargs)),
            )
    if isinstance(b, int | float) and not isinstance(b, bool):
        if "mul" in call.name:
            yield Variant(
                "factor-missing",
                f"has the number {b:.6g} alone: leaves {call.name_of(0) or 'what it multiplies'} out",
                "multiply by it",
                lambda func, args, kwargs: torch.full_like(func(*args, **kwargs), b),
            )
        yield from _constant(call, float(b), "multiplies by" if "mul" in call.name else "divides by")
    if call.name in ("matmul", "bmm") and isinstance(b, torch.Tensor):
        for place, words in ((0, "first"), (1, "second")):
            side = call.args[place]
            if side.dim() > 1 and side.shape[-1] == side.shape[-2]:
                yield Variant(
                    "weight-transposed",
                    f"transposes the {words} matrix",
                    "multiply by it as it is",
                    lambda func, args, kwargs, place=place: _transposed(func, args, place),
                )
    if isinstance(a, torch.Tensor) and a.is_floating_point():
        number = isinstance(b, int | float) and not isinstance(b, bool)
        yield Fit(
            "scale",
            "has the product {value} times",
            f"look at how the number is computed: it is {b:.6g} in the reference" if number else "leave the factor out",
            1.0,
            lambda value: lambda func, args, kwargs: func(*args, **kwargs) * value,
            (0.5, 2.0),
        )


@of("pow", "__pow__")
def power(call: Called) -> Iterator[Fit]:
    if len(call.args) > 1 and isinstance(call.args[1], int | float):
        yield Fit(
            "exponent",
            "raises to the power {value}",
            "raise to the power {known}",
            float(call.args[1]),
            lambda value: lambda func, args, kwargs: func(args[0], value),
            (1.0, 2.0, 0.5, 3.0),
        )


IN_JAX = {"neg": "negative"}


@of("sqrt", "rsqrt", "exp", "log", "log2", "log10", "log1p", "neg", "abs", "sin", "cos", "square", "reciprocal")
def function(call: Called) -> Iterator[Variant]:
    if call.name == "sin":
        yield Variant(
            "rotary-sign",
            "has the sign of the sine turned: rotates the other way round",
            "rotate as the reference does",
            lambda func, args, kwargs: -func(*args, **kwargs),
        )
    if call.name == "exp":
        for factor, words in ((0.5, "half of it, as a deviation is of a variance's logarithm"), (2.0, "twice as much")):
            yield Variant(
                "exponent",
                f"takes exp of {words}",
                "take it of what the reference does: jnp.exp(x)",
                lambda func, args, kwargs, factor=factor: func(factor * args[0]),
            )
    yield Variant(
        "function-missing",
        f"leaves {call.name} out",
        f"write jnp.{IN_JAX.get(call.name, call.name)}",
        lambda func, args, kwargs: args[0].clone(),
    )
    for other in ("sin", "cos", "sqrt", "rsqrt", "exp", "log", "log2", "log10", "log1p", "abs", "square", "neg"):
        if other != call.name:
            yield Variant(
                "function",
                f"computes {other} for {call.name}",
                f"write jnp.{IN_JAX.get(call.name, call.name)}",
                lambda func, args, kwargs, other=other: getattr(torch, other)(args[0]),
                is_guess=not call.args[0].is_floating_point(),
            )


COMPARED_BY = {  # from either side, or not the opposite
    **dict.fromkeys(("gt", "lt"), frozenset({"gt", "lt", "not"})),
    **dict.fromkeys(("ge", "le"), frozenset({"ge", "le", "not"})),
    "eq": frozenset({"eq", "not"}),
    "ne": frozenset({"ne", "not"}),
}
SIGNS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<=", "eq": "==", "ne": "!="}


@of("gt", "lt", "ge", "le", "eq", "ne", "__gt__", "__lt__", "__ge__", "__le__", "__eq__", "__ne__")
def comparison(call: Called) -> Iterator[Variant]:
    of_floats = any(isinstance(x, torch.Tensor) and x.is_floating_point() for x in call.args)
    for other in SIGNS:
        if other != call.name.strip("_"):
            yield Variant(
                "comparison",
                f"compares with {SIGNS[other]} for {SIGNS[call.name.strip('_')]}",
                f"compare as the reference does, with {SIGNS[call.name.strip('_')]}",
                lambda func, args, kwargs, other=other: getattr(torch, other)(*args),
                is_guess=(of_floats and other in ("eq", "ne")) or _is_as_no_mask(call, getattr(torch, other)),
                by=COMPARED_BY[other],
            )


@of("gt", "lt", "ge", "le", "__gt__", "__lt__", "__ge__", "__le__")
def threshold(call: Called) -> Iterator[Variant]:
    """Of the numbers that the tensor may be compared with instead, one between each two of its values."""
    x, known = call.args
    if not isinstance(x, torch.Tensor) or not x.is_floating_point() or not isinstance(known, int | float):
        return
    values = x.detach()[x.isfinite()].unique().tolist()
    ends = [-math.inf, *values, math.inf]
    for number, words in ((known**2, "the square"), (abs(known) ** 0.5, "the root"), (-known, "the negative")):
        low, high = ends[max(bisect.bisect(ends, number) - 1, 0)], ends[min(bisect.bisect(ends, number), len(ends) - 1)]
        if not low <= known <= high:
            yield _compared(low, high, f"{number:.6g} ({words} of it)", number, known)
    place = bisect.bisect(ends, known)
    near = ends[max(place - MOST_GAPS - 1, 0) : place + MOST_GAPS + 1]
    for low, high in itertools.pairwise(near):
        if low <= known <= high:
            continue
        number = _plainest(low, high)
        yield _compared(low, high, f"{number:.6g}", number, known)


def _compared(low: float, high: float, such_as: str, number: float, known: float) -> Variant:
    between = f"between {low:.6g} and {high:.6g}"
    if math.inf in (-low, high):
        between = f"above {low:.6g}" if high == math.inf else f"below {high:.6g}"
    return Variant(
        "threshold",
        f"compares with a number {between}, such as {such_as}, for {known:.6g}",
        f"compare with {known:.6g}",
        lambda func, args, kwargs: func(args[0], number),
        is_guess=True,
        known=known,
    )


def _plainest(low: float, high: float) -> float:
    """The number between them with the fewest digits; near the other one where one is infinite."""
    if math.inf in (-low, high):
        end = low if high == math.inf else high
        low, high = max(low, end - abs(end) - 1), min(high, end + abs(end) + 1)
    middle = (low + high) / 2
    for digits in range(12):
        step = 10.0 ** (math.floor(math.log10(max(abs(low), abs(high), 1e-300))) - digits)
        near = round(middle / step) * step
        if low < near < high:
            return float(f"{near:.12g}")
    return middle


def _is_as_no_mask(call: Called, compare: Any) -> bool:
    """Whether this holds everywhere or nowhere, where the reference's comparison holds here and there."""
    return _is_uniform(compare(*call.args)) and not _is_uniform(call.site.result)


def _is_uniform(mask: torch.Tensor) -> bool:
    return bool((mask == mask.flatten()[:1]).all())


@of("__invert__", "logical_not", "bitwise_not")
def inverted(call: Called) -> Iterator[Variant]:
    yield Variant(
        "mask-polarity", "does not invert the mask", "invert it: ~mask", lambda func, args, kwargs: args[0].clone()
    )


def _in_turns(call: Called, known: float) -> list[float]:
    """The constants that the same instruction has in the turns of a loop; the known one where it is always that."""
    turns = call.ancestry.turns(call.site) if call.ancestry is not None else ()
    found = dict.fromkeys(
        site.args[1] for site in turns if len(site.args) > 1 and isinstance(site.args[1], int | float)
    )
    return list(itertools.islice(found, MOST_TURNS)) if len(found) > 1 else [known]


def _constant(call: Called, known: float, words: str) -> Iterator[Variant | Fit]:
    id = "constant" if "add" in call.name or "sub" in call.name else "scale"
    turns = _in_turns(call, known)
    yield Variant(
        f"{id}-missing",
        f"leaves out the constant {', '.join(f'{each:.6g}' for each in turns)}{' in turn' if len(turns) > 1 else ''}",
        f"use {'the one of the turn' if len(turns) > 1 else f'{known:.6g}'} as the reference does",
        lambda func, args, kwargs: args[0].clone(),
    )
    for near in _near(known):
        yield Variant(
            id,
            f"{words} {near:.6g}",
            f"use {known:.6g}",
            lambda func, args, kwargs, near=near: func(args[0], near, *args[2:], **kwargs),
        )
    yield Fit(
        id,
        f"{words} {{value}}",
        "use {known}",
        known,
        lambda value: lambda func, args, kwargs: func(args[0], value, *args[2:], **kwargs),
        (known * known, known**0.5 if known > 0 else known, 1.0, -known),
    )


def _near(known: float) -> tuple[float, ...]:
    """Other whole numbers that a count of axes, steps or features is taken for."""
    return (known - 1, known + 1, known - 2, known + 2, known / 2, known * 2) if known.is_integer() and known else ()


@of("pow", "pow_", "__pow__", "square", "mul")
def centred(call: Called) -> Iterator[Variant]:
    x = call.args[0]
    by_itself = len(call.args) > 1 and call.args[1] is x
    exponent = call.args[1] if len(call.args) > 1 else None
    if not by_itself and call.name != "square" and not (isinstance(exponent, int | float) and exponent == 2):
        return
    # Of a single value the mean is the value itself, and without it nothing is left.
    if isinstance(x, torch.Tensor) and x.is_floating_point() and x.dim() and x.shape[-1] > 1:
        yield Variant(
            "mean-removed",
            "removes the mean over the last axis before it squares: that makes a variance",
            "square the values as they are, as an RMS norm does",
            lambda func, args, kwargs: (args[0] - args[0].mean(-1, keepdim=True)) ** 2,
        )


def _times(place: int, value: float):
    def apply(func: Any, args: Any, kwargs: Any) -> Any:
        changed = list(args)
        changed[place] = changed[place] * value
        return func(*changed, **kwargs)

    return apply


def _transposed(func: Any, args: Any, place: int) -> Any:
    changed = list(args)
    changed[place] = changed[place].transpose(-1, -2)
    return func(*changed)


def _shaped(value: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return value.expand_as(like).clone()


@of("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout")
def dropped(call: Called) -> Iterator[Variant]:
    rate = float(call.get("p", 0.5))
    if call.get("training", True) or not 0 < rate < 1:
        return
    for factor, words in ((1 - rate, "multiplies by 1 - p"), (1 / (1 - rate), "divides by 1 - p")):
        yield Variant(
            "dropout",
            f"{words} where dropout is off",
            "leave the values as they are: PyTorch scales while it trains, and only what it keeps",
            lambda func, args, kwargs, factor=factor: args[0] * factor,
        )
