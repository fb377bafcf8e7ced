"""Averages of weights along a run, as torch.optim.swa_utils.AveragedModel keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from .lr_scheduler.arguments import as_whole
from .rule import lerp


@dataclass(frozen=True)
class Averaging:
    """How a new value enters an average: by a fixed weight, or equally with all before; see `ema` and `swa`."""

    decay: float | None = None
    start: int = 0
    every: int = 1

    def enters(self, step: int | jax.Array) -> bool | jax.Array:
        """Whether the parameters after so many updates, which may be traced, enter the average: after `start` of them,
        each `every`-th."""
        if (self.start, self.every) == (0, 1):
            return True
        return (step > self.start) & ((step - self.start) % self.every == 0)

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
            return jnp.where(n == 0, new.astype(old.dtype), lerp(left, right, weight).astype(old.dtype))

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
      TypeError: where it is traced.

    Example:
      >>> average = ema(0.75)
      >>> kept = average.update(average.init(jnp.zeros(2)), jnp.ones(2), 1)
      >>> kept.tolist()
      [0.25, 0.25]
    """
    if isinstance(decay, jax.core.Tracer):
        raise TypeError("decay is traced, and a number was wanted: make ema(decay) outside of the graph")
    if not 0 <= decay <= 1:
        raise ValueError(f"decay is {decay!r}; give a decay from 0 to 1")
    return Averaging(float(decay))


def swa(*, start: int = 0, every: int = 1) -> Averaging:
    """The equal average of parameters along a run, average + (params - average) / (n + 1).

    PyTorch's loop, `if epoch > swa_start: swa_model.update_parameters(model)` at the end of each epoch of `n` batches,
    is `start=(swa_start + 1) * n, every=n`. Until the first have entered, the average is the parameters at the start.
    Running statistics are not averaged: PyTorch's `update_bn` makes them anew by a pass over the data.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.swa_utils.get_swa_multi_avg_fn.html

    Args:
      start: after how many updates the average begins; `gm.train_step` counts them.
      every: how many updates lie between two sets of parameters that enter it.

    Raises:
      ValueError: where `start` is below 0, or `every` below 1.

    Example:
      >>> average = swa()
      >>> kept = average.update(jnp.zeros(2), jnp.ones(2), 3)
      >>> kept.tolist()
      [0.25, 0.25]
      >>> [step for step in range(1, 13) if swa(start=4, every=3).enters(step)]
      [7, 10]
    """
    start, every = as_whole("start", start), as_whole("every", every)
    if start < 0 or every < 1:
        raise ValueError(f"start is {start} and every {every}; give a start of at least 0, and an every of at least 1")
    return Averaging(start=start, every=every)
