"""Arguments of `torch.optim` that say how a step is computed and not what: taken, and without effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .rule import Rule
from .transformation import Group, Optimizer

WAYS = ("foreach", "fused", "capturable", "differentiable")


def made(
    rule: Rule, arguments: Mapping[str, Any], groups: Iterable[Group], ways: Mapping[str, bool | None]
) -> Optimizer:
    """The optimizer, where `ways` are among PyTorch's: a step here is one graph, which JAX differentiates as it is.

    Raises:
      TypeError: for another argument, and for a way that is neither a bool nor None.
    """
    for name, value in ways.items():
        if name not in WAYS:
            raise TypeError(
                f"{rule.name.lower()} has no argument {name}; it has {', '.join(arguments)} and groups, and takes "
                f"{', '.join(WAYS)} without effect"
            )
        if not (value is None or isinstance(value, bool)):
            raise TypeError(f"{name} is {value!r}; leave it out, or give a bool: it is without effect here")
    return Optimizer(rule, arguments, groups)
