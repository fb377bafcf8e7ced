"""A module of PyTorch of its own."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def copied(module: torch.nn.Module) -> torch.nn.Module:
    """A deep copy. Tensors that were computed of parameters and are plain attributes, as the weight of
    `torch.nn.utils.weight_norm` and what a forward keeps for later, PyTorch does not copy: they are detached."""
    import torch

    kept = [value for child in module.modules() for value in vars(child).values()]
    computed = [value for value in kept if isinstance(value, torch.Tensor) and not value.is_leaf]
    return copy.deepcopy(module, {id(tensor): tensor.detach().clone() for tensor in computed})
