"""`torch.nn.InstanceNorm1d`, `InstanceNorm2d` and `InstanceNorm3d`."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
from flax import nnx

from ..layout import DataFormat, channel_axis, check_shape
from .channels import instance_norm_with_running_stats
from .running import RunningNorm


class InstanceNorm(RunningNorm):
    """The base of all of them."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        *,
        bias: bool = True,
        use_running_average: bool = False,
        data_format: DataFormat = "channels_last",
        param_dtype: jnp.dtype = jnp.float32,
        rngs: nnx.Rngs | None = None,
    ):
        super().__init__(
            num_features,
            eps,
            momentum,
            affine,
            track_running_stats,
            bias=bias,
            use_running_average=use_running_average,
            data_format=data_format,
            param_dtype=param_dtype,
        )

    def __call__(self, input: jax.Array, use_running_average: bool | None = None) -> jax.Array:
        """`input` normalised, in its own shape and dtype; `use_running_average` overrides the attribute for once."""
        spatial = type(self).spatial
        is_bound = self.affine or self.running_mean is not None
        channels = self.num_features if is_bound else None
        check_shape(input, self.data_format, spatial, channels=channels, channels_name="num_features")
        found = input.shape[channel_axis(self.data_format, input.ndim, spatial)]
        if found != self.num_features:
            warnings.warn(
                f"input has shape {tuple(input.shape)}, so {found} channels, and num_features is {self.num_features}; "
                "without affine it is not used, and this is no error, as in PyTorch; is data_format right?",
                stacklevel=3,
            )
        evaluates = self.use_running_average if use_running_average is None else use_running_average
        mean, var, weight, bias = self._arrays()
        is_one = input.ndim == spatial + 1
        normed = instance_norm_with_running_stats(
            input[None] if is_one else input,
            mean,
            var,
            weight,
            bias,
            use_input_stats=not (evaluates and self.track_running_stats),
            momentum=0.0 if self.momentum is None else self.momentum,
            eps=self.eps,
            data_format=self.data_format,
        )
        self._keep(normed.running_mean, normed.running_var)
        return normed.output[0] if is_one else normed.output


class InstanceNorm1d(InstanceNorm):
    """`InstanceNorm2d` for sequences, `[B, L, C]`; with `data_format="NCL"` for `[B, C, L]`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.InstanceNorm1d.html

    Example:
      >>> InstanceNorm1d(3)(jnp.ones((2, 5, 3))).shape
      (2, 5, 3)
    """

    spatial = 1


class InstanceNorm2d(InstanceNorm):
    """Each channel of each image normalised over `H` and `W`, in training and in evaluation.

    With `track_running_stats` it keeps running statistics in training, averaged over the batch, and reads them in
    evaluation; `module.train()`, `module.eval()` and `nnx.view(module, use_running_average=...)` switch that.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.InstanceNorm2d.html

    Args:
      num_features: number of channels.
      eps: added to the variance.
      momentum: fraction of the new statistics in the running ones; None is 0, as in PyTorch.
      affine: whether there are `weight` and `bias`.
      track_running_stats: whether there are running statistics.
      bias: False for a `weight` alone.
      use_running_average: False in training, True in evaluation.
      data_format: `"NHWC"` for `[B, H, W, C]`, or `"NCHW"`; the batch axis is optional.
      param_dtype: of parameters and running statistics; float32 serves half precision inputs too.
      rngs: taken so that all layers are built alike; nothing is drawn.

    Attributes:
      weight, bias: `[num_features]`, or None.
      running_mean, running_var: `[num_features]`, the variance unbiased, or None.
      num_batches_tracked: int32 scalar, or None; in the `state_dict`, and never counted, as in PyTorch.

    Raises:
      ValueError: where `input` is no image with `num_features` channels, or has one position only.
      TypeError: where dtypes do not fit.

    Where there is nothing of `num_features` entries, another number of channels is a warning only, as in PyTorch.

    Example:
      >>> InstanceNorm2d(3, affine=True)(jnp.ones((2, 4, 4, 3))).shape
      (2, 4, 4, 3)
    """

    spatial = 2


class InstanceNorm3d(InstanceNorm):
    """`InstanceNorm2d` for volumes, `[B, D, H, W, C]`; with `data_format="NCDHW"` for `[B, C, D, H, W]`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.InstanceNorm3d.html

    Example:
      >>> InstanceNorm3d(3)(jnp.ones((2, 4, 4, 4, 3))).shape
      (2, 4, 4, 4, 3)
    """

    spatial = 3
