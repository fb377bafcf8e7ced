"""What is written several times to one place, of which PyTorch does not promise what it keeps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree


@dataclass(frozen=True)
class Write:
    """A call that writes a tensor's elements to places that a tensor of integers says.

    Attributes:
      places: the element of the target that each is written to, by its number; int64.
      written: what is written there, of the same shape.
      again: the call, with another tensor in the place of `written`.
    """

    places: torch.Tensor
    written: torch.Tensor
    again: Callable[[torch.Tensor], Any]

    @property
    def is_repeated(self) -> bool:
        """Whether a place is written to more than once."""
        return self.places.unique().numel() < self.places.numel()

    def with_others_kept(self, order: torch.Tensor) -> Any:
        """The call, so that of what is written to one place the last in this order of all elements is kept."""
        places = self.places.reshape(-1)
        order = order.to(places.device)
        last = order.new_zeros(int(places.max()) + 1).scatter_reduce(0, places, order.argsort(), "amax")
        return self.again(self.written.reshape(-1)[order[last[places]]].reshape(self.written.shape))


def write_of(function: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Write | None:
    """What such a call writes; None where it is none, adds to what is there, or writes one number alone."""
    with contextlib.suppress(RuntimeError, IndexError, TypeError):  # a form that is not known here, or a refused one
        return _write_of(function, name, args, kwargs)
    return None


def _write_of(function: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Write | None:
    if name == "__setitem__" and len(args) == 3 and _is_written_at(args[1]):
        x, index, written = args
        return _write(x, lambda numbers: numbers[index], written, lambda other: function(x, index, other))
    if name in ("index_put", "index_put_") and len(args) == 3 and not kwargs.get("accumulate"):
        x, index, written = args
        return _write(x, lambda numbers: numbers[tuple(index)], written, lambda other: function(x, index, other))
    if name in ("scatter", "scatter_", "index_copy", "index_copy_") and not kwargs.get("reduce") and len(args) == 4:
        x, dim, index, written = args

        def places(numbers: torch.Tensor) -> torch.Tensor:
            if not name.startswith("scatter"):
                return numbers.index_select(dim, index)
            return numbers.gather(dim, index)

        if name.startswith("scatter") and isinstance(written, torch.Tensor):
            written = written[tuple(map(slice, index.shape))]
        return _write(x, places, written, lambda other: function(x, dim, index, other))
    return None


def _is_written_at(index: Any) -> bool:
    tensors = [x for x in pytree.tree_leaves(index) if isinstance(x, torch.Tensor)]
    return any(x.dim() and not x.is_floating_point() and x.dtype != torch.bool for x in tensors)


def _write(x: Any, places: Callable[[torch.Tensor], torch.Tensor], written: Any, again: Callable[..., Any]) -> Any:
    if not isinstance(written, torch.Tensor) or written.numel() < 2:
        return None
    with torch.no_grad():
        found = places(torch.arange(x.numel(), device=x.device).reshape(x.shape))
    return Write(found, written.expand(found.shape), again) if found.numel() else None
