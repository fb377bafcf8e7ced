"""Adapters of this room."""

from .base import Adapter

ADAPTERS: dict[str, Adapter] = {}
FUNCTION_ADAPTERS: dict[str, Adapter] = {}


def _indices_first(args, kwargs, layout):
    """`op_db` hands the weight first, and swaps the two in the call."""
    weight, indices, *rest = args
    return (indices, weight, *rest), kwargs


FUNCTION_ADAPTERS["embedding"] = FUNCTION_ADAPTERS["embedding_bag"] = Adapter(inputs=_indices_first)


def _classes(module, args, kwargs, outputs):
    """In a graph the number of classes is given; -1 is tested beside."""
    return {"num_classes": outputs.shape[-1]}


FUNCTION_ADAPTERS["one_hot"] = Adapter(given=_classes)
