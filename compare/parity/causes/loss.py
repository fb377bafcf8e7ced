"""Why a case's loss goes wrong: the reference's, run again as a module of its own would be."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from ..inside.calls import CallId, Calls
from ..inside.torch_calls import recorded
from ..yardstick import SMALLEST_GRADIENT, magnitude
from .replay import Replay
from .target import EXPLAINED, Aim, Target
from .wrong_call import Again, WrongCall

if TYPE_CHECKING:
    from ..inside.localise import Look

MODEL = CallId("")


class LossCall(WrongCall):
    """The loss on the outputs that were recorded; what is off is the gradient that it sends back to them.

    Args:
      look: in which the port's loss went wrong.

    Raises:
      LookupError: where something else outside of all modules is off, or the case has no loss of its own.
    """

    def __init__(self, look: Look):
        seen = [] if look.backward is None else look.backward.seen
        gradients = {s.name: s for s in seen if s.what == "received_cotangent" and s.around is None}
        own = look.port.case.loss
        if own is None or not gradients or any(f.what != "received_cotangent" for f in look.outside):
            raise LookupError("no loss to be explained")
        call = look.calls[MODEL]
        model, calls = _run(own[0], call.result)
        self.replay = Replay(model, calls, MODEL, set(), backward=True)
        aims = {}
        for name, output in zip(calls[MODEL].inputs, call.outputs, strict=True):
            if output in gradients:
                port, reference = gradients[output].port, gradients[output].reference
                scale = max(magnitude(reference), SMALLEST_GRADIENT * look.largest_gradient)
                aims["input_gradient", name] = Aim(port, reference, scale)
        self.target, self.in_part = Target(aims), False


class LossAgain(Again):
    """The loss on other inputs."""

    def _goes_wrong(self, look: Look | None) -> WrongCall | None:
        if look is None:
            return None
        call = LossCall(look)
        return call if call.settle() and call.target.before > EXPLAINED else None


def loss_call(look: Look) -> LossCall | None:
    """The loss, where nothing else outside of all modules goes wrong; None where there is none to explain."""
    with contextlib.suppress(Exception):
        return LossCall(look)
    return None


class _Loss(torch.nn.Module):
    def __init__(self, of: Callable[[Any], Any]):
        super().__init__()
        self.of = of

    def forward(self, outputs: Any) -> Any:
        return self.of(outputs)


def _run(of: Callable[[Any], Any], outputs: Any) -> tuple[torch.nn.Module, Calls]:
    """The loss as a module, and the record of a run of it."""
    model = _Loss(of)
    leaves, structure = pytree.tree_flatten(outputs)
    leaves = [x.clone().requires_grad_() if _has_gradient(x) else x for x in leaves]
    with recorded(model) as calls, torch.enable_grad():
        model(pytree.tree_unflatten(leaves, structure)).backward()
    return model, calls


def _has_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()
