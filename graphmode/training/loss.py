"""What a loss function may return, and how a step reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

RESERVED = ("loss", "lr", "grad_norm", "loss_scale", "skipped")


class Loss(NamedTuple):
    """What a loss function may return beside a scalar, `(scalar, metrics)` or a mapping of losses.

    Attributes:
      value: scalar; what is minimised.
      metrics: scalars by name, averaged over accumulated batches.
      present: which parameters have a gradient, where a branch that was not taken has none: a bool, traced or not, by
        the name of a parameter or module, as `gm.optim`'s `update` takes it. With accumulation one that is present in
        any part is present. optax's own optimizers do not look at it: an absent gradient is a zero to them. What no
        branch uses, or through `stop_gradient` alone, needs no word: it is left alone, as PyTorch leaves what has no
        `grad`.
    """

    value: jax.Array
    metrics: Mapping[str, jax.Array] = MappingProxyType({})
    present: Any = None


def as_loss(returned: Any) -> Loss:
    """What the loss function returned, as a `Loss` of scalars.

    Raises:
      TypeError: where the loss or a metric is no scalar, or the loss no floating one.
      ValueError: for an empty mapping, or a metric that has the name of one of the step's own.
    """
    if isinstance(returned, Loss):
        found = returned
    elif isinstance(returned, Mapping):
        parts = {name: _scalar(f"the loss {name!r}", value) for name, value in returned.items()}
        if not parts:
            raise ValueError("loss returned an empty mapping; give at least one loss")
        found = Loss(sum(parts.values(), jnp.zeros((), jnp.float32)), parts)
    elif isinstance(returned, Sequence) and len(returned) == 2:
        found = Loss(*returned)
    else:
        found = Loss(returned)
    metrics = found.metrics or {}
    if not isinstance(metrics, Mapping):
        raise TypeError(f"loss returned metrics as a {type(metrics).__name__}; give a mapping of scalars by name")
    if taken := [name for name in metrics if name in RESERVED]:
        raise ValueError(f"loss returned {taken[0]!r}, which is a metric of the step's own; give it another name")
    value = _scalar("the loss", found.value)
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise TypeError(f"the loss is {value.dtype}, and a floating scalar was wanted")
    metrics = {name: _scalar(f"the metric {name!r}", as_metric(name, metric)) for name, metric in metrics.items()}
    return Loss(value, metrics, found.present)


def as_metric(name: str, value: Any) -> jax.Array:
    """Raises `TypeError` for what is no number, text for instance."""
    try:
        return jnp.asarray(value)
    except (TypeError, ValueError):
        raise TypeError(f"the metric {name!r} is {value!r}, and a scalar was wanted; leave it out") from None


def _scalar(name: str, value: Any) -> jax.Array:
    if not hasattr(value, "shape") or value.shape != ():
        told = f"has shape {list(value.shape)}" if hasattr(value, "shape") else f"is a {type(value).__name__}"
        raise TypeError(f"{name} {told}, and a scalar was wanted: take its mean over the batch")
    return value
