"""Averages of weights along a run, as torch.optim.swa_utils.AveragedModel keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp


def _lerp(average: jax.Array, value: jax.Array, weight: jax.Array | float) -> jax.Array:
    """torch.lerp: from the nearer end, so that weights 0 and 1 give the ends themselves."""
    weight = jnp.asarray(weight, jnp.finfo(average.dtype).dtype)
    distance = value - average
    return jnp.where(weight < 0.5, average + weight * distance, value - distance * (1 - weight))


@dataclass(frozen=True)
class Averaging:
    """How a new value enters an average: by a fixed weight, or equally with all before; see `ema` and `swa`."""

    decay: float | None = None

    def init(self, params: Any) -> Any:
        """The average before any update: the parameters.

        Args:
          params: a pytree of arrays.
        """
        return jax.tree.map(jnp.asarray, params)

    def update(self, average: Any, params: Any, n: int | jax.Array) -> Any:
        """The average with one more set of parameters.

        Leaves of integers and booleans are copied, as AveragedModel copies buffers (a count of batches); so it does
        with floating buffers too, unless `use_buffers=True`: leave them out of `params` for the former.

        Args:
          average: what `init` or `update` gave.
          params: a pytree like it.
          n: how many were averaged before, AveragedModel's `n_averaged`, may be traced; where it is 0, `params` are
            copied.

        Returns:
          The new average, every leaf in the dtype that it had; computed in float32 where it has fewer bits.

        Raises:
          ValueError: where the trees differ in structure or a leaf in shape.
        """

        def one(path: Any, old: Any, new: Any) -> jax.Array:
            old, new = jnp.asarray(old), jnp.asarray(new)
            if old.shape != new.shape:
                raise ValueError(
                    f"params{jax.tree_util.keystr(path)} has shape {new.shape}, and its average {old.shape}; "
                    f"give parameters of the model that was given to init"
                )
            if not jnp.issubdtype(old.dtype, jnp.inexact):
                return new.astype(old.dtype)
            wide = jnp.promote_types(old.dtype, jnp.float32)
            left, right = old.astype(wide), new.astype(wide)
            weight = 1 - self.decay if self.decay is not None else 1 / (jnp.asarray(n, jnp.finfo(wide).dtype) + 1)
            return jnp.where(n == 0, new.astype(old.dtype), _lerp(left, right, weight).astype(old.dtype))

        was: Any = jax.tree.structure(average)
        now: Any = jax.tree.structure(params)
        if was != now:
            raise ValueError(f"params is {now}, and average is {was}; give parameters like those given to init")
        return jax.tree_util.tree_map_with_path(one, average, params)


def ema(decay: float = 0.999) -> Averaging:
    """The exponential moving average, decay * average + (1 - decay) * params.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.swa_utils.get_ema_multi_avg_fn.html

    Args:
      decay: from 0, the latest parameters alone, to 1, the first alone.

    Raises:
      ValueError: where `decay` is outside of [0, 1].

    Example:
      >>> average = ema(0.75)
      >>> kept = average.update(average.init(jnp.zeros(2)), jnp.ones(2), 1)
      >>> kept.tolist()
      [0.25, 0.25]
    """
    if not 0 <= decay <= 1:
        raise ValueError(f"decay is {decay!r}; give a decay from 0 to 1")
    return Averaging(float(decay))


def swa() -> Averaging:
    """The equal average of all parameters so far, average + (params - average) / (n + 1).

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.swa_utils.get_swa_multi_avg_fn.html

    Example:
      >>> average = swa()
      >>> kept = average.update(jnp.zeros(2), jnp.ones(2), 3)
      >>> kept.tolist()
      [0.25, 0.25]
    """
    return Averaging()
