"""Parameters that are one tensor in PyTorch and two variables in the port: they part as soon as the port is trained."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from flax import nnx

from .plan import Group


def warn_of_lost_ties(plan: Iterable[Group], state_dict: Mapping[str, Any]) -> None:
    """Warns once, of all keys that hold one tensor and are loaded into parameters of their own.

    One tensor is the same memory from the same place on, in the same shape and strides: parts of one buffer, such as
    the weights of a recurrent layer, are several. What is no `nnx.Param` is not trained, and may well be shared.
    """
    first: dict[Any, tuple[str, Group]] = {}
    lost = []
    for group in plan:
        if len(group.keys) > 1 or not all(isinstance(leaf.variable, nnx.Param) for leaf in group.leaves):
            continue
        (key,) = group.keys
        if (place := _place(state_dict.get(key))) is None:
            continue
        other, of_other = first.setdefault(place, (key, group))
        if _variables(group) != _variables(of_other):
            lost.append(f"{key} is {other} ({group.paths} and {of_other.paths} in the port)")
    if lost:
        warnings.warn(
            f"tensors that are tied in PyTorch are loaded into separate parameters: {'; '.join(lost)}. Equal now, they "
            "part in training: give the port one variable under both names (self.b.weight = self.a.weight), or, where "
            "it is not trained, silence this with warnings.filterwarnings",
            UserWarning,
            stacklevel=3,  # who called load
        )


def _variables(group: Group) -> list[int]:
    return [id(leaf.variable) for leaf in group.leaves]


def _place(tensor: Any) -> tuple[Any, ...] | None:
    """Where a tensor lies, and how; None for what has no memory of its own to speak of."""
    if hasattr(tensor, "data_ptr"):
        address = str(tensor.device), tensor.data_ptr()
        return (*address, tuple(tensor.shape), tensor.stride()) if tensor.numel() else None
    if isinstance(tensor, np.ndarray) and tensor.size:
        return tensor.__array_interface__["data"][0], tensor.shape, tensor.strides
    return None
