"""A module of PyTorch of its own."""

from __future__ import annotations

import copy
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def copied(module: torch.nn.Module) -> torch.nn.Module:
    """A deep copy. Tensors that were computed of parameters and are plain attributes, as the weight of
    `torch.nn.utils.weight_norm` and what a forward keeps for later, PyTorch does not copy: they are detached. Hooks and
    other functions that enclose the module, or what it holds, `copy.deepcopy` takes as they are: those of the copy
    enclose the copy's."""
    import torch

    kept = [value for child in module.modules() for value in vars(child).values()]
    computed = [value for value in kept if isinstance(value, torch.Tensor) and not value.is_leaf]
    memo: dict[int, Any] = {id(tensor): tensor.detach().clone() for tensor in computed}
    ours = copy.deepcopy(module, memo)
    for child in ours.modules():
        _enclose_copies(vars(child), memo)
        for name, value in vars(child).items():
            if isinstance(value, dict) and name.endswith("_hooks"):
                _enclose_copies(value, memo)
    return ours


def _enclose_copies(holder: dict[Any, Any], memo: dict[int, Any]) -> None:
    for name, value in list(holder.items()):
        own = _enclosing_copies(value, memo)
        if own is not value:
            holder[name] = own


def _enclosing_copies(value: Any, memo: dict[int, Any]) -> Any:
    """A function that encloses what was copied, with the copies in its place; all else as it is."""
    if not isinstance(value, types.FunctionType) or not value.__closure__ or id(value) in memo:
        return memo.get(id(value), value)
    memo[id(value)] = value  # one that encloses itself
    cells = tuple(_of_copies(cell, memo) for cell in value.__closure__)
    if all(cell is old for cell, old in zip(cells, value.__closure__, strict=True)):
        return value
    own = types.FunctionType(value.__code__, value.__globals__, value.__name__, value.__defaults__, cells)
    own.__kwdefaults__ = value.__kwdefaults__
    own.__dict__.update(value.__dict__)
    memo[id(value)] = own
    return own


def _of_copies(cell: types.CellType, memo: dict[int, Any]) -> types.CellType:
    """The same cell for all functions that share it."""
    try:
        held = cell.cell_contents
    except ValueError:  # of a name that has no value yet
        return cell
    own = _enclosing_copies(held, memo) if isinstance(held, types.FunctionType) else memo.get(id(held), held)
    return cell if own is held else memo.setdefault(id(cell), types.CellType(own))
