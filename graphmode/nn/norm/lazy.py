"""`torch.nn`'s lazy norms: the number of channels comes from the first input."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from flax import nnx

from ..layout import DataFormat, channel_axis, check_shape
from ..lazy import Lazy
from .batch import BatchNorm1d, BatchNorm2d, BatchNorm3d
from .instance import InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from .running import RunningNorm


class _LazyNorm(Lazy, RunningNorm):
    batched: bool  # whether the batch axis must be there
    flat: bool = False  # whether `[B, C]` is fine

    def _sizes(self, shape: tuple[int, ...]) -> Mapping[str, int]:
        if self.flat and len(shape) == 2:
            return {"num_features": shape[1]}
        like = jax.ShapeDtypeStruct(shape, jnp.float32)
        check_shape(like, self.data_format, self.spatial, batched=self.batched)  # type: ignore[arg-type]
        return {"num_features": shape[channel_axis(self.data_format, len(shape), self.spatial)]}


class _LazyBatchNorm(_LazyNorm):
    batched = True

    def __init__(
        self,
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
        self._defer(
            None,
            {"num_features": 1},
            eps=eps,
            momentum=momentum,
            affine=affine,
            track_running_stats=track_running_stats,
            bias=bias,
            use_running_average=use_running_average,
            data_format=data_format,
            param_dtype=param_dtype,
        )


class _LazyInstanceNorm(_LazyNorm):
    batched = False

    def __init__(
        self,
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
        self._defer(
            None,
            {"num_features": 1},
            eps=eps,
            momentum=momentum,
            affine=affine,
            track_running_stats=track_running_stats,
            bias=bias,
            use_running_average=use_running_average,
            data_format=data_format,
            param_dtype=param_dtype,
        )


class LazyBatchNorm1d(_LazyBatchNorm, BatchNorm1d):
    """`BatchNorm1d`, which it becomes, its number of channels learnt from the first input.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LazyBatchNorm1d.html

    Example:
      >>> norm = LazyBatchNorm1d()
      >>> norm(jnp.ones((2, 4, 3))).shape, type(norm).__name__, norm.weight.shape
      ((2, 4, 3), 'BatchNorm1d', (3,))
    """

    becomes = BatchNorm1d
    flat = True


class LazyBatchNorm2d(_LazyBatchNorm, BatchNorm2d):
    """`BatchNorm2d`, which it becomes, its number of channels learnt from the first input.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LazyBatchNorm2d.html

    Example:
      >>> norm = LazyBatchNorm2d()
      >>> norm(jnp.ones((2, 4, 4, 3))).shape, type(norm).__name__, norm.weight.shape
      ((2, 4, 4, 3), 'BatchNorm2d', (3,))
    """

    becomes = BatchNorm2d


class LazyBatchNorm3d(_LazyBatchNorm, BatchNorm3d):
    """`BatchNorm3d`, which it becomes, its number of channels learnt from the first input.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LazyBatchNorm3d.html

    Example:
      >>> norm = LazyBatchNorm3d()
      >>> norm(jnp.ones((2, 4, 4, 4, 3))).shape, type(norm).__name__, norm.weight.shape
      ((2, 4, 4, 4, 3), 'BatchNorm3d', (3,))
    """

    becomes = BatchNorm3d


class LazyInstanceNorm1d(_LazyInstanceNorm, InstanceNorm1d):
    """`InstanceNorm1d`, which it becomes, its number of channels learnt from the first input.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LazyInstanceNorm1d.html

    Example:
      >>> norm = LazyInstanceNorm1d(affine=True)
      >>> norm(jnp.ones((2, 4, 3))).shape, type(norm).__name__, norm.weight.shape
      ((2, 4, 3), 'InstanceNorm1d', (3,))
    """

    becomes = InstanceNorm1d


class LazyInstanceNorm2d(_LazyInstanceNorm, InstanceNorm2d):
    """`InstanceNorm2d`, which it becomes, its number of channels learnt from the first input.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LazyInstanceNorm2d.html

    Example:
      >>> norm = LazyInstanceNorm2d(affine=True)
      >>> norm(jnp.ones((2, 4, 4, 3))).shape, type(norm).__name__, norm.weight.shape
      ((2, 4, 4, 3), 'InstanceNorm2d', (3,))
    """

    becomes = InstanceNorm2d


class LazyInstanceNorm3d(_LazyInstanceNorm, InstanceNorm3d):
    """`InstanceNorm3d`, which it becomes, its number of channels learnt from the first input.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LazyInstanceNorm3d.html

    Example:
      >>> norm = LazyInstanceNorm3d(affine=True)
      >>> norm(jnp.ones((2, 4, 4, 4, 3))).shape, type(norm).__name__, norm.weight.shape
      ((2, 4, 4, 4, 3), 'InstanceNorm3d', (3,))
    """

    becomes = InstanceNorm3d
