"""Wiring: the port hands on a tensor that the reference has too, but elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from graphmode.weights import as_numpy

from ...report.records import Cause
from .replay import Replay, Site
from .target import Aim, Key, Target

FIX = {
    "residual-missing": "add the residual, as the reference does",
    "norm-missing": "normalise first: the reference is pre-norm there, or post-norm, and the port the other",
    "layer-missing": "call it",
    "wiring": "hand on what the reference does",
}


def origins(replay: Replay, target: Target, sites: list[Site]) -> Iterator[Cause]:
    """Explains tensors that are not what they should be by being another tensor of the module, exactly.

    What a port computes from a wrong tensor is wrong too, so this explains a suspect only where each tensor that is off
    in the forward pass is found; of gradients it asks nothing.
    """
    wrong = {key: aim for key, aim in target.forward.aims.items() if not aim.residual(aim.reference) <= 1e-9}
    if not wrong or any(key[0] == "buffer" for key in wrong):
        return
    known = list(_known(replay, sites))
    names = [(key, aim, _named(aim.port, aim, known)) for key, aim in wrong.items()]
    if any(found is None for _, _, found in names):
        return
    told = [(key, _named(aim.reference, aim, known), found) for key, aim, found in names]
    key, wanted, found = told[0]
    assert found is not None
    kind = _kind(wanted, found)
    where = "hands" if key[0] == "received" else "gives"
    right = f" where the reference {where} {wanted[0]}" if wanted else ""
    left = max(aim.residual(value) for _, aim, value in ((k, a, f[2]) for k, a, f in names if f))
    yield Cause(id=kind, says=f"{where} {found[0]}{_to(key)}{right}", fix=FIX[kind], residual=left)


Known = tuple[str, Site | None, np.ndarray]


def _known(replay: Replay, sites: list[Site]) -> Iterator[Known]:
    """Every tensor of an unchanged run, in words."""
    for name, value in replay.call.inputs.items():
        yield f"its input {name}", None, value
    for path, ids in replay.children.items():
        for each in ids:
            call = replay.calls[each]
            for name, value in call.outputs.items():
                yield f"what {path} gives" + (f" ({name})" if len(call.outputs) > 1 else ""), None, value
            for name, value in call.inputs.items():
                yield f"what {path} takes" + (f" ({name})" if len(call.inputs) > 1 else ""), None, value
    for site in sites:
        for tensor in pytree.tree_leaves(site.result):
            if isinstance(tensor, torch.Tensor):
                yield f"what {site.name} gives", site, as_numpy(tensor.detach())


def _named(value: np.ndarray, aim: Aim, known: list[Known]) -> Known | None:
    for each in known:
        alike = each[2].shape == value.shape and each[2].dtype.kind == value.dtype.kind
        if alike and Aim(value, value, aim.scale).residual(each[2]) <= 1e-10:
            return each
    return None


def _kind(wanted: Known | None, found: Known) -> str:
    site = None if wanted is None else wanted[1]
    if site is not None and site.name in ("add", "add_", "__iadd__"):
        parts = [as_numpy(x.detach()) for x in _tensors(site.args)]
        if any(part.shape == found[2].shape and np.array_equal(part, found[2]) for part in parts):
            return "residual-missing"
    if (wanted is not None and "norm" in wanted[0].lower()) or "norm" in found[0].lower() or "ln" in found[0].lower():
        return "norm-missing"
    return "wiring"


def _to(key: Key) -> str:
    return f" to {key[1].partition(' of ')[2]}" if key[0] == "received" else ""


def _tensors(args: Any) -> list[torch.Tensor]:
    return [x for x in pytree.tree_leaves(args) if isinstance(x, torch.Tensor)]
