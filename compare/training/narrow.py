"""Whether PyTorch's script runs in a narrower dtype than float32, and the port does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ..dispatch_mode import DispatchMode
from ..parity.yardstick import rms_error

NARROW = (torch.bfloat16, torch.float16)
MORE_PRECISE = 0.01  # of PyTorch's error: float32 has a thousandth of float16's


class SeenDtypes(DispatchMode):
    """Notes the narrow dtypes of what PyTorch computes in it, autocast's casts and the backward pass included.

    Attributes:
      narrow: names of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.narrow: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(given):
            if isinstance(leaf, torch.Tensor) and leaf.dtype in NARROW:
                self.narrow.add(str(leaf.dtype).removeprefix("torch."))
        return given


def is_more_precise(port: list[float], reference: list[float], exact: list[float]) -> bool:
    """Whether the port's losses are as far from rounding to a narrow dtype as float32's are."""
    ours, theirs = (rms_error(np.asarray(losses), np.asarray(exact)) for losses in (port, reference))
    return ours < MORE_PRECISE * theirs
