"""Whether PyTorch's script ever clips: the norms that `clip_grad_norm_` finds, beside its limit."""

from __future__ import annotations

from typing import Any

import torch

NO_STEP_CLIPS = (
    "No step clips: the largest norm of the gradients is {largest:.3g}, and {what} is {limit:g}. A port that clips "
    "otherwise, or not at all, would pass: give steps with larger gradients."
)


class SeenNorms:
    """Within it, the norms that `torch.nn.utils.clip_grad_norm_` finds are noted; nothing is where PyTorch lacks the
    function of its own that scales gradients by them.

    Attributes:
      largest: of the norms, by the limit.
    """

    PLACE, NAME = torch.nn.utils.clip_grad, "_clip_grads_with_norm_"

    def __init__(self) -> None:
        self.largest: dict[float, float] = {}

    def __enter__(self) -> None:
        self._original = getattr(self.PLACE, self.NAME, None)
        if self._original is not None:
            setattr(self.PLACE, self.NAME, self._scale)

    def __exit__(self, *exception: object) -> None:
        if self._original is not None:
            setattr(self.PLACE, self.NAME, self._original)

    def _scale(self, parameters: Any, max_norm: float, total_norm: torch.Tensor, *rest: Any, **kwargs: Any) -> Any:
        limit = float(max_norm)
        self.largest[limit] = max(self.largest.get(limit, 0.0), float(total_norm))
        return self._original(parameters, max_norm, total_norm, *rest, **kwargs)  # type: ignore[misc]

    @property
    def warning(self) -> str:
        """That none came to its limit; empty where one did, or none was seen."""
        never = [(limit, largest) for limit, largest in self.largest.items() if largest <= limit]
        if not never or len(never) < len(self.largest):
            return ""
        limit, largest = never[0]
        return NO_STEP_CLIPS.format(largest=largest, what="max_norm of PyTorch's script", limit=limit)
