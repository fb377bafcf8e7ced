"""Reductions and selections: other axes, another divisor, another element."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..variants import Called, Variant, after, instead, of, signature

REDUCTIONS = ("mean", "sum", "var", "std", "amax", "amin", "logsumexp", "prod", "norm")
SQUARES = ("pow", "square", "mul")
signature("mean sum amax amin prod logsumexp", "input dim keepdim")
signature("var std", "input dim unbiased keepdim")
signature("max min argmax argmin", "input dim keepdim")


@of(*REDUCTIONS, "max", "min", "argmax", "argmin")
def axes(call: Called) -> Iterator[Variant]:
    x, dim = call.args[0], call.get("dim")
    if isinstance(dim, int) and isinstance(x, torch.Tensor):
        for other in range(x.dim()):
            if other != dim % x.dim():
                yield Variant(
                    "axis",
                    f"reduces over axis {other}",
                    f"reduce over the reference's axis {dim}",
                    call.with_(dim=other),
                )


@of(*REDUCTIONS)
def several_axes(call: Called) -> Iterator[Variant]:
    """As many other axes, one less, or one more."""
    x, dims = call.args[0], call.get("dim")
    if not isinstance(dims, tuple | list) or not isinstance(x, torch.Tensor):
        return
    usual = {dim % x.dim() for dim in dims}
    for count in (len(usual), len(usual) - 1, len(usual) + 1):
        for other in itertools.combinations(range(x.dim()), count):
            if other and set(other) != usual:
                yield Variant(
                    "axis", f"reduces over axes {other}", f"reduce over axes {tuple(dims)}", call.with_(dim=other)
                )


@of("mean")
def divisor_of_squares(call: Called) -> Iterator[Variant]:
    """Of a variance that is written out: the mean of squares."""
    maker = call.ancestry.maker(call.args[0]) if call.ancestry is not None else None
    count = call.args[0].numel() // max(call.site.result.numel(), 1)
    if maker is not None and maker.name.strip("_") in SQUARES and count > 1:
        yield Variant(
            "ddof",
            "divides by n - 1",
            "give ddof=0: the reference divides by n",
            after(lambda x: x * (count / (count - 1))),
        )


@of("var", "std")
def divisor(call: Called) -> Iterator[Variant]:
    biased = call.get("unbiased", True) is False or call.site.kwargs.get("correction", 1) == 0

    def other(func: Any, args: Any, kwargs: Any) -> Any:
        kept = {k: v for k, v in kwargs.items() if k not in ("unbiased", "correction")}
        dims = args[1] if len(args) > 1 and not isinstance(args[1], bool) else kept.pop("dim", None)
        return getattr(torch, call.name)(args[0], dim=dims, correction=1 if biased else 0, **kept)

    yield Variant(
        "ddof",
        f"divides by {'n - 1' if biased else 'n'}",
        f"give ddof={0 if biased else 1}: PyTorch divides by {'n' if biased else 'n - 1'} here, jnp by n",
        other,
    )
    yield Variant(
        "mean-kept",
        "does not remove the mean: takes the mean of the squares" + (", and its root" if call.name == "std" else ""),
        f"remove the mean before squaring: jnp.{call.name}",
        _with_mean,
    )
    swapped = "std" if call.name == "var" else "var"
    yield Variant(
        "reduction",
        f"computes {swapped} for {call.name}",
        f"compute {call.name}",
        lambda func, args, kwargs: getattr(torch, swapped)(*args, **kwargs),
    )


def _with_mean(func: Any, args: Any, kwargs: Any) -> Any:
    dims = args[1] if len(args) > 1 and not isinstance(args[1], bool) else kwargs.get("dim")
    found = (args[0] ** 2).mean(dims, keepdim=kwargs.get("keepdim", False))
    return found.sqrt() if func.__name__ == "std" else found


@of("mean", "sum", "amax", "amin", "logsumexp")
def another(call: Called) -> Iterator[Variant]:
    others: tuple[str, ...] = ("amax", "sum", "mean") if call.name == "logsumexp" else ("mean", "sum", "amax", "amin")
    if not call.site.result.is_floating_point():
        others = ()  # a count: what else comes to the same in one place of it is no other reduction
    for name in others:
        if name != call.name:
            yield Variant(
                "reduction",
                f"takes the {name} for the {call.name}",
                f"take the {call.name}",
                lambda func, args, kwargs, name=name: getattr(torch, name)(*args, **kwargs),
            )


@of("sum")
def counted(call: Called) -> Iterator[Variant]:
    """Of a mask: how many it holds for."""
    x, dim = call.args[0], call.get("dim")
    if not isinstance(x, torch.Tensor) or not is_mask(x) or not (dim is None or isinstance(dim, int)):
        return
    axes = [dim % x.dim()] if isinstance(dim, int) else range(x.dim())
    sizes = {f"the size of axis {axis}": _size(axis) for axis in axes}
    if dim is None and x.dim() > 1:
        sizes["the number of all elements"] = torch.Tensor.numel
    for words, size in sizes.items():
        yield Variant(
            "count",
            f"takes {words} for the number of those that the mask holds for",
            "count what the mask holds for: mask.sum()",
            lambda func, args, kwargs, size=size: torch.full_like(func(*args, **kwargs), size(args[0])),
        )


def is_mask(x: torch.Tensor) -> bool:
    """Whether it is of booleans, or of zeros and ones, both among them."""
    if x.dtype == torch.bool or not x.numel():
        return x.dtype == torch.bool
    return bool(((x == 0) | (x == 1)).all()) and bool((x != x.flatten()[0]).any())


def _size(axis: int) -> Callable[[torch.Tensor], int]:
    return lambda x: x.shape[axis]


@of("argmax", "argmin")
def places(call: Called) -> Iterator[Variant]:
    other = "argmin" if call.name == "argmax" else "argmax"
    yield Variant(
        "reduction",
        f"takes the {other} for the {call.name}",
        f"write jnp.{call.name}",
        lambda func, args, kwargs: getattr(torch, other)(*args, **kwargs),
    )
    for shift in (1, -1):
        yield Variant(
            "index-offset",
            f"has the place {shift:+d}",
            "count from where the reference does: PyTorch and JAX count from 0",
            after(lambda x, shift=shift: x + shift),
        )


@of("max", "min")
def extremes(call: Called) -> Iterator[Variant]:
    if isinstance(call.site.result, torch.Tensor) and len(call.args) == 1:
        for name in ("amax", "amin", "mean", "sum"):
            yield Variant(
                "reduction",
                f"takes the {name}",
                f"take the {call.name}",
                lambda func, args, kwargs, name=name: getattr(torch, name)(args[0]),
            )
    elif isinstance(call.site.result, tuple):  # values along an axis, and where they are
        for name in ("min" if call.name == "max" else "max", "mean", "sum"):
            yield Variant(
                "reduction",
                f"takes the {name} for the {call.name}",
                f"take the {call.name}",
                lambda func, args, kwargs, name=name: _along_axis(name, func, args, kwargs),
            )


OPPOSITE = {"max": "min", "maximum": "minimum", "fmax": "fmin"}
OPPOSITE |= {other: name for name, other in OPPOSITE.items()}


@of(*OPPOSITE)
def of_two(call: Called) -> Iterator[Variant]:
    """The larger or smaller of two tensors, element by element."""
    if len(call.args) != 2 or not isinstance(call.args[1], torch.Tensor):
        return
    other, fix = OPPOSITE[call.name], f"write jnp.{'maximum' if 'max' in call.name else 'minimum'} of both"
    usual, wrong = (name.removeprefix("f")[:3] for name in (call.name, other))
    yield Variant("limits", f"takes the {wrong} of two tensors for the {usual}", fix, instead(getattr(torch, other)))
    for kept, words in ((0, "first"), (1, "second")):
        name = call.name_of(kept) or f"the {words} of two tensors"
        yield Variant(
            "limits",
            f"takes {name} as it is, where the reference takes the {usual} of both",
            fix,
            lambda func, args, kwargs, kept=kept: args[kept].expand_as(func(*args, **kwargs)).clone(),
        )


def _along_axis(name: str, func: Any, args: Any, kwargs: Any) -> Any:
    result = getattr(torch, name)(*args, **kwargs)
    return result if isinstance(result, tuple) else (result, func(*args, **kwargs)[1])
