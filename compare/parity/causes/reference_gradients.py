"""The values that the reference has in one call, each with its gradient."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch.utils import _pytree as pytree

from graphmode.weights import as_numpy

from ..inside.calls import CallId
from .change import Change, Site
from .replay import Replay
from .sites import source
from .values import LARGEST

if TYPE_CHECKING:
    from ..inside.localise import Look

WITHIN = 1e-9  # of themselves, in which elements are one and the same


class Theirs(NamedTuple):
    """A value of the reference, its gradient, None where it takes none, and the line that makes it; `is_again` where
    that is given the value, as one that lays it otherwise is; and its place among all of them."""

    value: np.ndarray
    gradient: np.ndarray | None
    source: str = ""
    is_again: bool = False
    place: int = 0


def reference_gradients(look: Look, at: CallId) -> list[Theirs]:
    """The floating values that the reference has in the counterpart of a call."""
    forced = {look.matches[call] for call in look.run.forced}
    there = look.calls[look.matches[at]]
    replay = Replay(look.judge.module, look.calls, there.id, forced, backward=True)
    made: list[tuple[Theirs, list[np.ndarray]]] = []

    def note(site: Site) -> None:
        results = site.result if isinstance(site.result, tuple | list) else [site.result]
        for x in results:
            if isinstance(x, torch.Tensor) and x.is_floating_point() and x.numel() <= LARGEST:
                value, reached = as_numpy(x.detach().to_dense().clone()), list[np.ndarray]()
                if x.requires_grad:
                    x.register_hook(functools.partial(_keep, reached))
                given = [each for each in pytree.tree_leaves((site.args, site.kwargs)) if each is not x]
                again = any(isinstance(each, torch.Tensor) and _are_of_same_elements(each, x) for each in given)
                gradient = np.zeros_like(value) if x.requires_grad else None
                made.append((Theirs(value, gradient, source(site), again), reached))

    evidence = replay.run(Change(), note=note)
    found = [each._replace(gradient=sum(reached[1:], reached[0])) if reached else each for each, reached in made]
    for name, value in there.inputs.items():
        if value.dtype.kind == "f":
            found.append(Theirs(value, evidence.get(("input_gradient", name))))
    if sum(call.path == there.id.path for call in look.calls) == 1:
        inside = tuple(f"{path}." for path in replay.children)
        own = {name: x for name, x in replay.parameters.items() if not replay.full(name).startswith(inside)}
        for name, parameter in own.items():
            gradient = evidence.get(("parameter_gradient", replay.full(name)))
            found.append(Theirs(as_numpy(parameter.detach().to_dense()), gradient))
    for child in (look.calls[id] for ids in replay.children.values() for id in ids):
        for name, value in child.outputs.items():
            if value.dtype.kind == "f":
                gradient = evidence.get(("received_cotangent", f"{name} of {child.id}"))
                again = any(np.array_equal(value, each) for each in child.inputs.values())
                found.append(Theirs(value, gradient, is_again=again))
    return found


@torch.no_grad()
def _are_of_same_elements(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.numel() != b.numel() or not a.is_floating_point():
        return False
    return torch.allclose(a.flatten().sort()[0].to(b), b.flatten().sort()[0], rtol=WITHIN, atol=0)


def _keep(reached: list[np.ndarray], gradient: torch.Tensor) -> None:
    reached.append(as_numpy(gradient.detach().to_dense().clone()))
