"""`torch.nn.BatchNorm1d`, `BatchNorm2d`, `BatchNorm3d` and `SyncBatchNorm`."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from flax import nnx

from ..layout import DataFormat, channel_axis, check_shape
from .channels import batch_norm_with_running_stats
from .running import RunningNorm

Node = TypeVar("Node", bound=nnx.Module)


class BatchNorm(RunningNorm):
    """The base of all of them, with PyTorch's momentum and unbiased running variance."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
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

    def __call__(
        self, input: jax.Array, use_running_average: bool | None = None, *, mask: jax.Array | None = None
    ) -> jax.Array:
        """`input` normalised, in its own shape and dtype.

        Args:
          input: as the class says.
          use_running_average: overrides the attribute for once.
          mask: bool, broadcasts to `input`, false in the padding of a ragged batch: the statistics are then those of
            the sequences laid end to end, and running ones NaN where there are fewer than two values.
        """
        self._check(input)
        return self._normalised(input, use_running_average, mask=mask)

    def _check(self, input: jax.Array) -> None:
        check_shape(
            input,
            self.data_format,
            self.spatial,
            channels=self.num_features,
            channels_name="num_features",
            batched=True,
        )

    def _normalised(
        self,
        input: jax.Array,
        use_running_average: bool | None,
        axis_name: Hashable | None = None,
        *,
        mask: jax.Array | None = None,
    ) -> jax.Array:
        evaluates = self.use_running_average if use_running_average is None else use_running_average
        mean, var, weight, bias = self._arrays()
        reads = evaluates and mean is not None
        moves = not evaluates and self.track_running_stats
        momentum: Any = self.momentum
        if moves and self.num_batches_tracked is not None:
            batches = self.num_batches_tracked[...] + 1
            self.num_batches_tracked.set_value(batches)
            if momentum is None and mean is not None:  # the plain average of all batches
                momentum = 1 / batches.astype(jnp.promote_types(mean.dtype, jnp.float32))
        if momentum is None:  # what is not counted moves nothing, as in PyTorch
            momentum = 0.0
        running: tuple[Any, Any] = (mean, var) if reads or moves else (None, None)
        normed = batch_norm_with_running_stats(
            input,
            *running,
            weight,
            bias,
            training=not reads,
            momentum=momentum,
            eps=self.eps,
            data_format=self.data_format,
            axis_name=None if evaluates else axis_name,
            mask=mask,
        )
        if moves:
            self._keep(normed.running_mean, normed.running_var)
        return normed.output


class BatchNorm1d(BatchNorm):
    """`BatchNorm2d` for `[B, C]` and for sequences, `[B, L, C]`; with `data_format="NCL"` for `[B, C, L]`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.BatchNorm1d.html

    For sequences with padding give a mask `[B, L, 1]`.

    Example:
      >>> BatchNorm1d(3)(jnp.ones((4, 3))).shape
      (4, 3)
    """

    spatial = 1

    def _check(self, input: jax.Array) -> None:
        if input.ndim != 2:
            super()._check(input)
        elif input.shape[1] != self.num_features:
            raise ValueError(
                f"input has shape {tuple(input.shape)}, and [B, num_features = {self.num_features}] was wanted"
            )


class BatchNorm2d(BatchNorm):
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
      bias: False for a `weight` alone.
      use_running_average: False in training, True in evaluation.
      data_format: `"NHWC"` for `[B, H, W, C]`, or `"NCHW"`.
      param_dtype: of parameters and running statistics; float32 serves half precision inputs too.
      rngs: taken so that all layers are built alike; nothing is drawn.

    Attributes:
      weight, bias: `[num_features]`, or None.
      running_mean, running_var: `[num_features]`, the variance unbiased, or None.
      num_batches_tracked: int32 scalar, or None.

    Raises:
      ValueError: where `input` is not a batch of images with `num_features` channels, or, in training, has one value a
        channel (its variance would be 0/0).
      TypeError: where dtypes do not fit.

    Example:
      >>> norm = BatchNorm2d(3)
      >>> norm(jnp.ones((2, 4, 4, 3))).shape, norm.num_batches_tracked.item()
      ((2, 4, 4, 3), 1)
    """

    spatial = 2


class BatchNorm3d(BatchNorm):
    """`BatchNorm2d` for volumes, `[B, D, H, W, C]`; with `data_format="NCDHW"` for `[B, C, D, H, W]`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.BatchNorm3d.html

    Example:
      >>> BatchNorm3d(3)(jnp.ones((2, 4, 4, 4, 3))).shape
      (2, 4, 4, 4, 3)
    """

    spatial = 3


class SyncBatchNorm(BatchNorm):
    """`BatchNorm2d` for any number of axes, whose statistics in training are those of the batch on all devices.

    Under `jit` over a sharded batch every batch norm is one already: the mean is over the whole array. It is inside of
    `jax.shard_map` and `jax.vmap`, where the code sees one share of the batch, that `axis_name` is needed. Without it
    this is a plain batch norm, as PyTorch's is without a process group.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.SyncBatchNorm.html

    Args:
      num_features, eps, momentum, affine, track_running_stats, bias: as `BatchNorm2d`'s.
      process_group: PyTorch's; None.
      axis_name: of the mesh axis, or axes, over which the statistics are averaged.
      use_running_average, param_dtype, rngs: as `BatchNorm2d`'s.
      data_format: `"channels_last"` for `[B, ..., C]`, or `"channels_first"`.

    Raises:
      ValueError: as `BatchNorm2d`, and where a `process_group` is given.

    Example:
      >>> norm = SyncBatchNorm(3, axis_name="batch")
      >>> share = jax.vmap(lambda x: norm(x, use_running_average=True), axis_name="batch")
      >>> share(jnp.ones((2, 8, 3))).shape
      (2, 8, 3)
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: None = None,
        *,
        bias: bool = True,
        axis_name: Hashable | None = None,
        use_running_average: bool = False,
        data_format: DataFormat = "channels_last",
        param_dtype: jnp.dtype = jnp.float32,
        rngs: nnx.Rngs | None = None,
    ):
        if process_group is not None:
            raise ValueError(f"process_group is {process_group!r}; give the mesh axis as axis_name instead")
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
        self.axis_name = axis_name

    def _check(self, input: jax.Array) -> None:
        shape = tuple(input.shape)
        if input.ndim < 2:
            raise ValueError(f"input has shape {shape}, and 2 axes or more were wanted, batch and channels among them")
        axis = channel_axis(self.data_format, input.ndim)
        if shape[axis] != self.num_features or not self.num_features:
            raise ValueError(
                f"input has shape {shape}, so {shape[axis]} channels on axis {axis}, and num_features is "
                f"{self.num_features}, which is to be 1 or more; move the axis, or set data_format"
            )

    def _normalised(
        self,
        input: jax.Array,
        use_running_average: bool | None,
        axis_name: Hashable | None = None,
        *,
        mask: jax.Array | None = None,
    ) -> jax.Array:
        return super()._normalised(input, use_running_average, self.axis_name, mask=mask)

    @classmethod
    def convert_sync_batchnorm(
        cls, module: Node, process_group: None = None, *, axis_name: Hashable | None = None
    ) -> Node:
        """`module` with all its batch norms made synchronous, their variables kept; in place, as PyTorch's.

        Args:
          module: a batch norm, or a model that holds some.
          process_group: PyTorch's; None.
          axis_name: for all of them.
        """
        if process_group is not None:
            raise ValueError(f"process_group is {process_group!r}; give the mesh axis as axis_name instead")
        for _, parent in list(nnx.iter_modules(module)):
            for name, child in list(vars(parent).items()):
                if isinstance(child, BatchNorm) and not isinstance(child, SyncBatchNorm):
                    setattr(parent, name, cls._converted(child, axis_name))
        if isinstance(module, BatchNorm) and not isinstance(module, SyncBatchNorm):
            return cls._converted(module, axis_name)  # type: ignore[return-value]
        return module

    @classmethod
    def _converted(cls, norm: BatchNorm, axis_name: Hashable | None) -> SyncBatchNorm:
        converted = cls(
            norm.num_features,
            norm.eps,
            norm.momentum,
            norm.affine,
            norm.track_running_stats,
            axis_name=axis_name,
            use_running_average=norm.use_running_average,
            data_format=norm.data_format,
        )
        for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
            setattr(converted, name, getattr(norm, name))
        return converted
