"""Metrics over data that is not trained on, as one compiled graph, added up on the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from ..nn.arguments import as_integer
from .data import as_source, read_ahead
from .data.host import check_holds_arrays
from .loss import as_metric
from .state import TrainState
from .step import TrainStep


class Mean(NamedTuple):
    """A metric whose batches do not count by their rows: a sum, and how many terms it has, both scalars."""

    total: jax.Array
    count: jax.Array  # type: ignore[assignment]


class Evaluation:
    """Metrics of a model in evaluation mode over all batches of an epoch.

    Args:
      data: what `as_source` takes; read from its first batch to the end of its epoch each time.
      metrics: `(model, batch)` to a mapping of names to scalars, which are means over the batch's rows, or to `Mean`s.
      every: after how many steps; None for the end of each epoch of the training data.
      averaged: whether the averaged parameters are judged.

    Example:
      >>> import graphmode as gm, jax.numpy as jnp, numpy as np
      >>> from flax import nnx
      >>> model = gm.nn.Linear(3, 1, rngs=nnx.Rngs(0))
      >>> step = gm.train_step(model, lambda model, batch: jnp.mean(model(batch) ** 2), gm.optim.sgd(lr=0.1))
      >>> evaluation = Evaluation([np.ones((4, 3), np.float32)], lambda model, batch: {"mean": jnp.mean(model(batch))})
      >>> sorted(evaluation.run(step, step.init()))
      ['mean']
    """

    def __init__(
        self,
        data: Any,
        metrics: Callable[[nnx.Module, Any], Mapping[str, Any]],
        *,
        every: int | None = None,
        averaged: bool = False,
    ):
        if not callable(metrics):
            raise TypeError(f"metrics is a {type(metrics).__name__}; give a function of model and batch")
        self.every = None if every is None else as_integer("every", every, least=1)
        self.data, self.metrics, self.averaged = data, metrics, averaged
        self._compiled: tuple[TrainStep, Any] | None = None

    def check(self, step: TrainStep) -> None:
        """Raises `ValueError` where the averaged parameters are to be judged, and the step averages nothing."""
        if self.averaged and not step.averages:
            raise ValueError("averaged is True, and the step averages nothing: make it with averaging=")

    def run(self, step: TrainStep, state: TrainState) -> dict[str, float]:
        """The metrics by name, over all rows.

        Raises:
          ValueError: where the data has no batch, or one that holds no arrays, as None; where the step averages
            nothing and `averaged` is set.
          TypeError: where a metric is no scalar.
        """
        self.check(step)
        if self._compiled is None or self._compiled[0] is not step:
            self._compiled = step, jax.jit(self._batch(step))
        added: Any = None
        params = state.average[0] if self.averaged else state.params
        source = as_source(self.data)
        source.restart()
        with read_ahead(source, place=step.place_rows) as batches:
            for number, batch in enumerate(batches.one_epoch()):
                check_holds_arrays(batch, f"batch {number} of the evaluation")
                found = self._compiled[1](params, state.rest, batch)
                added = found if added is None else jax.tree.map(jnp.add, added, found)
        if added is None:
            raise ValueError("data of the evaluation has no batch")
        return {name: float(mean.total / mean.count) for name, mean in added.items()}

    def _batch(self, step: TrainStep) -> Callable[[Any, Any, Any], dict[str, Mean]]:
        def run(params: Any, rest: Any, batch: Any) -> dict[str, Mean]:
            model = step.objective.evaluated(params, rest)
            rows = jax.tree.leaves(batch)[0].shape[0]
            found = {}
            metrics = self.metrics(model, batch)
            if not isinstance(metrics, Mapping):
                raise TypeError(f"metrics gave a {type(metrics).__name__}; give a mapping of scalars by name")
            for name, value in metrics.items():
                mean = (
                    value
                    if isinstance(value, Mean)
                    else Mean(as_metric(name, value).astype(float) * rows, jnp.asarray(rows))
                )
                if jnp.shape(mean.total) != ():
                    raise TypeError(f"the metric {name!r} has shape {jnp.shape(value)}, and a scalar was wanted")
                found[name] = Mean(jnp.asarray(mean.total, float), jnp.asarray(mean.count, float))
            return found

        return run
