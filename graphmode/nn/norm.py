"""`torch.nn.BatchNorm2d`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from graphmode.weights import Counter, carries

from .arguments import DataFormat, as_data_format, check_image


class BatchNorm2d(nnx.Module):
    """Batch normalisation over `B`, `H` and `W`, with PyTorch's momentum and unbiased running variance.

    In training it normalises with the batch's own statistics and moves the running ones; with `use_running_average`
    it reads the running ones. `module.train()` and `module.eval()` switch that, and so do `set_attributes` and
    `nnx.view(module, use_running_average=...)`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.BatchNorm2d.html

    Args:
      num_features: number of channels.
      eps: added to the variance.
      momentum: fraction of the new statistics in the running ones (Flax's is the fraction that is kept); None for the
        plain average of all batches.
      affine: whether there are `weight` and `bias`.
      track_running_stats: False for no running statistics: the batch's own are then always used.
      use_running_average: False in training, True in evaluation.
      data_format: `"NHWC"` for `[B, H, W, C]`, or `"NCHW"`.
      param_dtype: of parameters and running statistics.
      rngs: taken so that all layers are built alike; nothing is drawn.

    Attributes:
      weight, bias: `[num_features]`, or None.
      running_mean, running_var: `[num_features]`, the variance unbiased, or None.
      num_batches_tracked: int32 scalar, or None.

    Raises:
      ValueError: where `x` is not a batch of images with `num_features` channels, or, in training, has one value a
        channel (its variance would be 0/0).
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        use_running_average: bool = False,
        data_format: DataFormat = "NHWC",
        param_dtype: jnp.dtype = jnp.float32,
        rngs: nnx.Rngs | None = None,
    ):
        if num_features < 1:
            raise ValueError(f"num_features is {num_features}; give 1 or more")
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.use_running_average = use_running_average
        self.data_format = as_data_format(data_format)
        shape = (num_features,)
        self.weight: Any = nnx.data(None)
        self.bias: Any = nnx.data(None)
        self.running_mean: Any = nnx.data(None)
        self.running_var: Any = nnx.data(None)
        self.num_batches_tracked: Any = nnx.data(None)
        if affine:
            self.weight = nnx.Param(jnp.ones(shape, param_dtype))
            self.bias = nnx.Param(jnp.zeros(shape, param_dtype))
        if track_running_stats:
            self.running_mean = nnx.BatchStat(jnp.zeros(shape, param_dtype))
            self.running_var = nnx.BatchStat(jnp.ones(shape, param_dtype))
            self.num_batches_tracked = nnx.BatchStat(jnp.zeros((), jnp.int32), **carries(Counter()))

    def __call__(self, x: jax.Array, use_running_average: bool | None = None) -> jax.Array:
        """`x` normalised, in its own shape and dtype; `use_running_average` overrides the attribute for this call."""
        check_image(x, self.data_format, channels=self.num_features, batched=True)
        if use_running_average is None:
            use_running_average = self.use_running_average
        channel = 3 if self.data_format == "NHWC" else 1
        if use_running_average and self.running_mean is not None:
            mean, variance = self.running_mean[...], self.running_var[...]
        else:
            mean, variance = self._statistics(x, channel)
        scale = lax.rsqrt(variance + self.eps)
        if self.weight is not None:
            scale = scale * self.weight[...]
        y = (x - _along(mean, channel)) * _along(scale, channel)
        if self.bias is not None:
            y = y + _along(self.bias[...], channel)
        return y.astype(x.dtype)

    def set_view(self, use_running_average: bool | None = None) -> None:
        """Called by `nnx.view`.

        Args:
          use_running_average: True to read the running statistics.
        """
        if use_running_average is not None:
            self.use_running_average = use_running_average

    def _statistics(self, x: jax.Array, channel: int) -> tuple[jax.Array, jax.Array]:
        """Mean and biased variance of this batch, `[C]`; moves the running statistics."""
        count = x.size // self.num_features
        if count < 2:
            raise ValueError(
                f"x has shape {tuple(x.shape)}, so {count} values a channel, and training wants 2 or more for a "
                "variance; give a larger batch or image, or switch to evaluation with .eval()"
            )
        axes = tuple(axis for axis in range(4) if axis != channel)
        x = x.astype(jnp.promote_types(x.dtype, jnp.float32))
        mean = jnp.mean(x, axes)
        # E[(x - mean)^2], never E[x^2] - mean^2: at mean 1000 that loses three more digits.
        variance = jnp.mean(jnp.square(x - _along(mean, channel)), axes)
        if self.running_mean is not None:
            self._track(mean, variance, count)
        return mean, variance

    def _track(self, mean: jax.Array, variance: jax.Array, count: int) -> None:
        """Moves the running statistics towards these of a batch of `count` values a channel, the variance biased."""
        # `set_value`, since `variable[...] = x` asks a tracer for its sharding, and composing that error walks the
        # whole trace: a third of the time to trace EfficientNet's training pass.
        self.num_batches_tracked.set_value(self.num_batches_tracked[...] + 1)
        momentum: Any = self.momentum
        if momentum is None:
            momentum = 1 / self.num_batches_tracked[...].astype(self.running_mean.dtype)
        for running, new in ((self.running_mean, mean), (self.running_var, variance * (count / (count - 1)))):
            new = lax.stop_gradient(new).astype(running.dtype)
            running.set_value((1 - momentum) * running[...] + momentum * new)


def _along(values: jax.Array, channel: int) -> jax.Array:
    """`[C]` as an array of rank 4 that broadcasts over images."""
    return values.reshape([-1 if axis == channel else 1 for axis in range(4)])
