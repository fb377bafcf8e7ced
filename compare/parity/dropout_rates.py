"""Dropout, which is off on both sides while they are compared: its rates, held beside each other."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import jax
from flax import nnx

from ..functional_dropout import rates_of_functions

if TYPE_CHECKING:
    import torch

    from ..jax_side import PortSide
    from ..torch_side import TorchSide
    from .judge import Question

HELD_BY_OTHERS = ("dropout", "dropout_rate", "dropout_p")  # attributes of attention and recurrent layers


def dropout_warnings(reference: TorchSide, port: PortSide, question: Question | None) -> Iterator[str]:
    """What to say of a port whose rates of dropout are other ones, or not as many.

    Args:
      reference, port: the sides.
      question: in training; on it one dropout that is called twice is as good as two.
    """
    yield from _told_apart(reference.module, port.model, lambda: question and _same_calls(reference, port, question))


def _told_apart(reference: torch.nn.Module, port: nnx.Module, called_alike: Callable[[], Any]) -> Iterator[str]:
    theirs = Counter(rate for module in reference.modules() for rate in _rates(module))
    ours = Counter(rate for _, module in nnx.iter_modules(port) for rate in _rates(module))
    called, called_by_port = (Counter({_rounded(rate): 1 for rate in rates if rate}) for rates in rates_of_functions())
    if called or called_by_port:  # how often a rate is used cannot be told from the calls of many runs
        theirs, ours = Counter(set(theirs | called)), Counter(set(ours | called_by_port))
    if ours != theirs and not (set(ours) == set(theirs) and called_alike()):
        yield (
            f"dropout is off on both sides, and not compared: the rates are {_told(theirs)} in the reference, and "
            f"{_told(ours)} in the port; a rate is the share that is dropped (what Flax and PyTorch take, and not what "
            "is kept)"
        )


def _same_calls(reference: TorchSide, port: PortSide, question: Question) -> bool:
    """Whether both sides call dropout as often at each rate."""
    theirs: Counter[float] = Counter()
    ours: Counter[float] = Counter()

    def note(path: str, module: nnx.Module, run: Any, args: Any, kwargs: Any) -> Any:
        ours.update(_rates(module))
        return run(module, *args, **kwargs)

    with contextlib.suppress(Exception):  # then their numbers stand
        module = reference.set_mode(question.mode)
        given = reference.place(question.inputs, question.mode, question.cotangents)
        hooks = [each.register_forward_hook(lambda m, *_: theirs.update(_rates(m))) for each in module.modules()]
        try:
            with reference.as_it_was():
                module(*given.args, **given.kwargs)
        finally:
            for hook in hooks:
                hook.remove()
        batch, program = port.place(question.inputs, question.mode, question.cotangents), port.program(question.mode)
        with port.context():
            jax.make_jaxpr(lambda *call: program.forward(*call, through=note, with_heads=False))(
                program.params, program.rest, *batch.call
            )
        return ours == theirs
    return False


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
