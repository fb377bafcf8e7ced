"""Arguments of `torch.optim` that say how a step is computed and not what: taken, and without effect."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec

from .rule import Rule
from .transformation import Group, Optimizer

WAYS = ("foreach", "fused", "capturable", "differentiable")
P = ParamSpec("P")


class _LeftOut:
    """The default in a signature: comes as an argument from `optax.inject_hyperparams`, which passes all of them on."""

    def __repr__(self) -> str:
        return "None"


def takes_ways(make: Callable[P, Optimizer]) -> Callable[P, Optimizer]:
    """Names the ways in the signature, by which `optax.inject_hyperparams` calls the function."""
    signature = inspect.signature(make)
    own = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    kind, default = inspect.Parameter.KEYWORD_ONLY, _LeftOut()
    ways = [inspect.Parameter(name, kind, default=default, annotation="bool | None") for name in WAYS]
    make.__signature__ = signature.replace(parameters=[*own, *ways])  # type: ignore[attr-defined]
    return make


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
        if not (value is None or isinstance(value, bool | _LeftOut)):
            raise TypeError(f"{name} is {value!r}; leave it out, or give a bool: it is without effect here")
    injected = any(isinstance(value, _LeftOut) for value in ways.values())
    return Optimizer(rule, arguments, groups, injected=injected)
