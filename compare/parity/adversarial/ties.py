"""What an answer owes to an order that PyTorch does not promise: of equal elements, and of writes to one place."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pack_padded_sequence
from torch.overrides import TorchFunctionMode

from .writes import write_of

GIVE_INDICES = ("argsort",)
GIVE_VALUES = ("msort",)
UNORDERED = {"topk", "sort", "kthvalue", "median", "nanmedian", "mode", *GIVE_INDICES, *GIVE_VALUES}
DIMENSION = {"topk": 2, "kthvalue": 2, "sort": 1, "argsort": 1, "median": 1, "nanmedian": 1, "mode": 1}
"""Where among the arguments the dimension stands."""
OF_ALL = ("median", "nanmedian")  # where no dimension is given

Order = Callable[[int], torch.Tensor]


class TiesNoted(TorchFunctionMode):
    """Collects in `why` what PyTorch does not promise of operations that run within it: where they put elements that
    are equal, or what they keep of several that they write to one place.

    `pack_padded_sequence` is none of them: it puts what it has sorted back.
    """

    def __init__(self) -> None:
        super().__init__()
        self.why: list[str] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, given = getattr(function, "__name__", ""), kwargs or {}
        if _is_unordered(name, given) and _has_ties(args[0] if args else given.get("input")):
            self.why.append(f"{name} promises no order among ties")
        write = write_of(function, name, args, given)
        if write is not None and write.is_repeated:
            self.why.append(f"{name} writes several times to one place, and PyTorch promises not what it keeps")
        return function(*args, **given)


class Reordered(TorchFunctionMode):
    """Within it equal elements come in another order, which PyTorch might as well have taken, and of what is written to
    one place another is kept. In one of `ORDERS` those that come first are taken, in one the last.

    Args:
      order: of the elements that an operation is given, by their number.
    """

    def __init__(self, order: Order):
        super().__init__()
        self.order = order

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, given = getattr(function, "__name__", ""), dict(kwargs or {})
        write = write_of(function, name, args, given)
        if write is not None and write.is_repeated:
            return write.with_others_kept(self.order(write.places.numel()))
        if not _is_unordered(name, given) or "out" in given:
            return function(*args, **given)
        x = args[0] if args else given.pop("input")
        dim = _dimension(name, args, given)
        if dim is None:
            x, dim = x.reshape(-1), 0
        if not x.ndim:
            return function(x, *args[1:], **given)
        order = self.order(x.shape[dim]).to(x.device)
        function = _first_of if name == "topk" else function
        result = function(x.index_select(dim, order), *args[1:], **given)
        if name in GIVE_INDICES:
            return order[result]
        if isinstance(result, torch.Tensor):
            return result
        return type(result)((result[0], order[result[1]]))


def _turned(count: int) -> torch.Tensor:
    return torch.arange(count - 1, -1, -1)


def _shuffled(count: int) -> torch.Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(0))


ORDERS: tuple[Order, ...] = (_turned, _shuffled, torch.arange)


def _first_of(x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, *_: Any, **__: Any) -> Any:
    """`topk`, of what is equal that which comes first: which it takes by itself is no matter of the order alone."""
    ordered = x.sort(dim=dim, descending=largest, stable=True)
    return torch.return_types.topk((ordered.values.narrow(dim, 0, k), ordered.indices.narrow(dim, 0, k)))


def _is_unordered(name: str, kwargs: Mapping[str, Any]) -> bool:
    return name in UNORDERED and not kwargs.get("stable") and _caller() is not pack_padded_sequence.__code__


def _dimension(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int | None:
    if name in GIVE_VALUES:
        return 0
    place = DIMENSION[name]
    given = kwargs.get("dim", args[place] if len(args) > place else None)
    return given if given is not None or name in OF_ALL else -1


def _caller() -> CodeType:
    """The code that calls the function which a mode handles, whatever other modes lie between."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_name == "__torch_function__":
        frame = frame.f_back
    return frame.f_code


def _has_ties(x: Any) -> bool:
    values = np.asarray(x.detach().cpu().to(float)).reshape(-1)
    return len(np.unique(values)) < len(values)
