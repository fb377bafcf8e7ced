"""Dynamic loss scaling for float16, as `torch.amp.GradScaler` does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Scale(NamedTuple):
    """What dynamic loss scaling keeps between steps.

    Attributes:
      value: float32 []; what the loss is multiplied by.
      growth_tracker: int32 []; steps without an overflow since the value last changed.
    """

    value: jax.Array
    growth_tracker: jax.Array


@dataclass(frozen=True)
class LossScaling:
    """The arguments of `torch.amp.GradScaler`, with its defaults.

    Args:
      init_scale: what the loss is multiplied by at first.
      growth_factor: of the scale, after `growth_interval` steps in a row without an overflow.
      backoff_factor: of the scale, after an overflow.
      growth_interval: see above.
      smallest: a scale below this one is no matter of float16's range: it counts as a loss that is not finite. PyTorch
        has no such end.

    Raises:
      ValueError: where the factors do not grow and shrink.

    Source: https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling
    """

    init_scale: float = 65536.0
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    smallest: float = 2.0**-20

    def __post_init__(self) -> None:
        if not self.growth_factor > 1:
            raise ValueError(f"growth_factor is {self.growth_factor!r}; give a number above 1")
        if not 0 < self.backoff_factor < 1:
            raise ValueError(f"backoff_factor is {self.backoff_factor!r}; give a number between 0 and 1")
        if self.growth_interval < 1 or not self.init_scale > 0:
            raise ValueError(
                f"growth_interval is {self.growth_interval!r} and init_scale {self.init_scale!r}; give positive ones"
            )

    def init(self) -> Scale:
        return Scale(jnp.asarray(self.init_scale, jnp.float32), jnp.zeros((), jnp.int32))

    def update(self, scale: Scale, finite: jax.Array) -> Scale:
        """After a step whose gradients were all finite, or were not."""
        tracker = scale.growth_tracker + 1
        grown = scale.value * self.growth_factor
        grows = tracker == self.growth_interval
        larger = jnp.where(grows & jnp.isfinite(grown), grown, scale.value)
        return Scale(
            jnp.where(finite, larger, scale.value * self.backoff_factor),
            jnp.where(finite & ~grows, tracker, 0),
        )


def unscaled(grads: Any, scale: Scale) -> Any:
    inverse = 1 / scale.value
    return jax.tree.map(lambda g: g * inverse.astype(g.dtype), grads)


def all_finite(tree: Any) -> jax.Array:
    """bool []: whether every element of every floating array is finite."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    if not leaves:
        return jnp.asarray(True)
    # zeros but for what is not finite: as quick as a maximum, which may lose a NaN (see extremes.py)
    return jnp.all(jnp.stack([jnp.sum(leaf * 0) == 0 for leaf in leaves]))
