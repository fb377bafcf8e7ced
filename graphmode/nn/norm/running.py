"""What batch and instance norm share: parameters, running statistics and the switch between the two kinds."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx

from graphmode.weights import Counter, carries

from ..arguments import as_integer
from ..layer import Layer
from ..layout import DataFormat, as_layout


class RunningNorm(Layer):
    """The base of both; `spatial` is the number of spatial axes, None for any."""

    spatial: ClassVar[Any] = None

    def __init__(
        self,
        num_features: int,
        eps: float,
        momentum: float | None,
        affine: bool,
        track_running_stats: bool,
        *,
        bias: bool,
        use_running_average: bool,
        data_format: DataFormat,
        param_dtype: jnp.dtype,
    ):
        self.num_features = as_integer("num_features", num_features, least=0)
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        self.use_running_average = use_running_average
        self.data_format = as_layout(data_format, self.spatial)
        shape = (self.num_features,)
        self.weight: Any = nnx.data(None)
        self.bias: Any = nnx.data(None)
        self.running_mean: Any = nnx.data(None)
        self.running_var: Any = nnx.data(None)
        self.num_batches_tracked: Any = nnx.data(None)
        if affine:
            self.weight = nnx.Param(jnp.ones(shape, param_dtype))
            if bias:
                self.bias = nnx.Param(jnp.zeros(shape, param_dtype))
        if track_running_stats:
            self.running_mean = nnx.BatchStat(jnp.zeros(shape, param_dtype))
            self.running_var = nnx.BatchStat(jnp.ones(shape, param_dtype))
            self.num_batches_tracked = nnx.BatchStat(jnp.zeros((), jnp.int32), **carries(Counter()))

    def set_view(self, use_running_average: bool | None = None) -> None:
        """Called by `nnx.view`.

        Args:
          use_running_average: True to read the running statistics.
        """
        if use_running_average is not None:
            self.use_running_average = use_running_average

    def _arrays(self) -> tuple[Any, ...]:
        variables = self.running_mean, self.running_var, self.weight, self.bias
        return tuple(None if variable is None else variable[...] for variable in variables)

    def _keep(self, running_mean: jax.Array | None, running_var: jax.Array | None) -> None:
        # `set_value`, since `variable[...] = x` asks a tracer for its sharding, and composing that error walks the
        # whole trace: a third of the time to trace EfficientNet's training pass.
        if running_mean is not None:
            self.running_mean.set_value(running_mean)
            self.running_var.set_value(running_var)
