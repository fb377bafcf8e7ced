"""Pairs of an optimizer of PyTorch's and the same here, as a `Case` takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from graphmode import optim

if TYPE_CHECKING:
    import optax

Pair = tuple[Callable[[Iterable[Any]], Any], "optax.GradientTransformation"]


def momentum(lr: float) -> Pair:
    """Stochastic gradient descent with momentum 0.9, and this learning rate."""
    return partial(_made, "SGD", lr=lr, momentum=0.9), optim.sgd(lr=lr, momentum=0.9)


def adam(lr: float) -> Pair:
    return partial(_made, "Adam", lr=lr), optim.adam(lr=lr)


def adamw(lr: float) -> Pair:
    return partial(_made, "AdamW", lr=lr), optim.adamw(lr=lr)


def _made(name: str, parameters: Iterable[Any], **settings: Any) -> Any:
    """PyTorch is imported when it is needed: a zoo without it can be listed."""
    import torch

    return getattr(torch.optim, name)(parameters, **settings)
