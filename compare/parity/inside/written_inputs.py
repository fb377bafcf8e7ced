"""Calls of modules that write into what they are given, as `ReLU(inplace=True)` does, where that is read after them."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from .calls import Call


class _Written(NamedTuple):
    """A tensor that a call wrote into: the caller's, and the call's own copy of it."""

    call: Call
    original: torch.Tensor
    copy: torch.Tensor


class WrittenInputs(TorchFunctionMode):
    """Within it, calls that wrote into what is read after them are told so.

    Attributes:
      paused: whether nothing that runs reads for the reference.
    """

    def __init__(self) -> None:
        super().__init__()
        self.paused = False
        self._written: dict[int, _Written] = {}  # by the identity of the original; the last one

    def write(self, call: Call, original: torch.Tensor, copy: torch.Tensor) -> None:
        """Notes that a call has written into its copy of a tensor."""
        self._written[id(original)] = _Written(call, original, copy)

    def read(self, tree: Any) -> None:
        """Tells the calls that wrote into any of these tensors, and those within them that did."""
        for leaf in pytree.tree_leaves(tree):
            found = self._written.get(id(leaf))
            while found is not None and not found.call.is_read_written:
                found.call.is_read_written = True
                found = self._written.get(id(found.copy))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._written and not self.paused:
            self.read((args, kwargs))
        return func(*args, **kwargs)
