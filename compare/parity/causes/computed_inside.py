"""What functions of PyTorch compute inside, as `cross_entropy` does the logarithms of shares."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from graphmode.weights import as_numpy

from ...dispatch_mode import DispatchMode
from .values import LARGEST

MOST = 20_000_000  # elements, that are kept


class ComputedInside(DispatchMode):
    """Within it, what each operation of PyTorch gives is kept, below the functions that people call.

    Attributes:
      values: what they gave then, views of others left out.
    """

    def __init__(self) -> None:
        super().__init__()
        self.values: list[np.ndarray] = []
        self._left = MOST

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        for x in () if getattr(func, "is_view", False) else pytree.tree_leaves(results):
            if isinstance(x, torch.Tensor) and x.is_floating_point() and x.layout == torch.strided:
                self._keep(x)
        return results

    def _keep(self, x: torch.Tensor) -> None:
        if x.numel() <= min(LARGEST, self._left):
            self._left -= x.numel()
            self.values.append(as_numpy(x.detach().clone()))
