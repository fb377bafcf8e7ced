"""Activations that the reference writes out in arithmetic, for which the port has another."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .change import Change, Site
from .known.activation import ACTIVATIONS
from .sites import is_floating, makers
from .variants import Variant

WRITTEN = {"mul", "add", "sub", "rsub", "div", "truediv", "pow", "exp", "tanh", "sigmoid", "erf", "log1p", "softplus"}
LAST = {"mul", "add", "sub", "div", "truediv", "sigmoid"}  # of the calls that write an activation out
WRITE = {
    "gelu": "jax.nn.gelu(x, approximate=False), or gm.nn.GELU()",
    "gelu (tanh)": "jax.nn.gelu(x, approximate=True), or gm.nn.GELU(approximate='tanh')",
}


def written_out(sites: list[Site]) -> Iterator[tuple[Variant, Change]]:
    """Another activation for one that the reference writes out, as GELU by `tanh` and `pow`."""
    made = makers(sites)
    for last in sites:
        if last.name.strip("_") not in LAST or not is_floating(last.result):
            continue
        first = _start_of(last, made)
        if first is None:
            continue
        for place, taken in enumerate(first.args):
            usual = _activation(taken, last.result) if is_floating(taken) else ""
            for name, function in ACTIVATIONS.items():
                if usual and name != usual:
                    both = name.startswith("gelu") and usual.startswith("gelu")
                    variant = Variant(
                        "gelu-form" if both else "activation",
                        f"computes {_form(name)} where the reference computes {_form(usual)}",
                        "write " + WRITE.get(usual, f"the reference's {usual}"),
                        _Another(place, function),
                    )
                    yield variant, Change(variant.apply, frozenset((first.number, last.number)))


def _start_of(last: Site, made: dict[int, Site]) -> Site | None:
    """The first call that leads to this one by calls on tensors of its shape alone."""
    chain, waiting = {last.number: last}, [last]
    while waiting:
        for given in waiting.pop().args:
            source = made.get(id(given))
            if source is None or source.number in chain or source.name.strip("_") not in WRITTEN:
                continue
            if source.result.shape == last.result.shape:
                chain[source.number] = source
                waiting.append(source)
    return chain[min(chain)] if len(chain) > 1 else None


def _activation(x: torch.Tensor, result: torch.Tensor) -> str:
    """Which one gives this of that; empty where none of the known ones does."""
    if x.shape != result.shape:
        return ""
    close = functools.partial(torch.allclose, result.detach(), rtol=1e-12, atol=1e-14)
    return next((name for name, function in ACTIVATIONS.items() if close(function(x.detach()))), "")


class _Another:
    """In place of the calls that write an activation out: the first notes what it is of, the last gives another."""

    def __init__(self, place: int, function: Callable[[torch.Tensor], torch.Tensor]):
        self.place, self.function = place, function
        self.taken: torch.Tensor | None = None

    def __call__(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.taken is None:
            self.taken = args[self.place]
            return func(*args, **kwargs)
        taken, self.taken = self.taken, None
        return self.function(taken)


def _form(name: str) -> str:
    return {"gelu": "gelu in its exact form, by erf,", "gelu (tanh)": "gelu in its tanh form"}.get(name, name)
