"""Adapters of this room."""

from .base import Adapter

ADAPTERS: dict[str, Adapter] = {}
FUNCTION_ADAPTERS: dict[str, Adapter] = {}


def _transposed(args, kwargs, layout):
    input, weight, *rest = args
    return (input, weight.T, *rest), kwargs


FUNCTION_ADAPTERS["linear"] = Adapter(inputs=_transposed)


def _equation_first(args, kwargs, layout):
    operands, equation = args
    return (equation, *operands), kwargs


FUNCTION_ADAPTERS["einsum"] = Adapter(inputs=_equation_first)
