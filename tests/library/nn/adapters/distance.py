"""Adapters of this room."""

from .base import Adapter

ADAPTERS: dict[str, Adapter] = {}
FUNCTION_ADAPTERS: dict[str, Adapter] = {}


def _scale_of_normalize(tensors, args, kwargs):
    """Along an axis of length 1 the derivative is 0, the difference of two terms of the size of 1 / |input|."""
    input = args[0].detach()
    if input.ndim and input.shape[kwargs.get("dim", 1)] == 1:
        return {"gradient.0.0": float(1 / input.abs().min())}
    return {}


FUNCTION_ADAPTERS["normalize"] = Adapter(scale=_scale_of_normalize)
