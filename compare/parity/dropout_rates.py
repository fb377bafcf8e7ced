"""Dropout, which is off on both sides while they are compared: its rates, held beside each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flax import nnx

from ..functional_dropout import rates_of_functions

if TYPE_CHECKING:
    import torch

HELD_BY_OTHERS = ("dropout", "dropout_rate", "dropout_p")  # attributes of attention and recurrent layers


def dropout_warnings(reference: torch.nn.Module, port: nnx.Module) -> Iterator[str]:
    """What to say of a port whose rates of dropout are other ones, or not as many."""
    theirs = Counter(rate for module in reference.modules() for rate in _rates(module))
    ours = Counter(rate for _, module in nnx.iter_modules(port) for rate in _rates(module))
    called, called_by_port = (Counter({_rounded(rate): 1 for rate in rates if rate}) for rates in rates_of_functions())
    if called or called_by_port:  # how often a rate is used cannot be told from the calls of many runs
        theirs, ours = Counter(set(theirs | called)), Counter(set(ours | called_by_port))
    if ours != theirs:
        yield (
            f"dropout is off on both sides, and not compared: the rates are {_told(theirs)} in the reference, and "
            f"{_told(ours)} in the port; a rate is the share that is dropped (what Flax and PyTorch take, and not what "
            "is kept)"
        )


def _rates(module: Any) -> list[float]:
    names = ("p", "rate") if "dropout" in type(module).__name__.lower() else HELD_BY_OTHERS
    values = [getattr(module, name, None) for name in names]
    return [_rounded(value) for value in values if isinstance(value, float) and value > 0][:1]


def _rounded(rate: float) -> float:
    return round(float(rate), 6)


def _told(rates: Counter[float]) -> str:
    if not rates:
        return "none"
    return ", ".join(f"{rate:g}" + (f" ({count} times)" if count > 1 else "") for rate, count in sorted(rates.items()))
