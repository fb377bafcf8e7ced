"""`PReLU`, whose slopes are learnt, and `RReLU`, whose slopes are drawn."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from ..arguments import as_integer
from ..dropout.masks import Rngs, stream_from
from ..layer import Layer
from ..layout import DataFormat, as_layout
from .slopes import prelu, rrelu


class PReLU(Layer):
    """`input` above 0, elsewhere `weight * input`; derivative `weight` at 0.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.PReLU.html

    Args:
      num_parameters: 1 slope for all, or one for each channel.
      init: value of the slopes.
      data_format: `"channels_last"` for `[B, ..., C]`, or `"channels_first"` for `[B, C, ...]`.
      param_dtype: of the slopes.

    Attributes:
      weight: `[num_parameters]`.

    Raises:
      ValueError: where `input` has another number of channels.

    Example:
      >>> PReLU(2)(jnp.array([[-4.0, 4.0]])).tolist()
      [[-1.0, 4.0]]
    """

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        *,
        data_format: DataFormat = "channels_last",
        param_dtype: jnp.dtype = jnp.float32,
    ):
        self.num_parameters = as_integer("num_parameters", num_parameters, least=0)
        self.init = init
        self.data_format = as_layout(data_format)
        self.weight = nnx.Param(jnp.full((self.num_parameters,), init, param_dtype))

    def __call__(self, input: jax.Array) -> jax.Array:
        return prelu(input, self.weight[...], data_format=self.data_format)


class RReLU(Layer):
    """`input` above 0, elsewhere `input` times a slope: in training one drawn for each element, else their mean.

    `module.train()` and `module.eval()` switch the mode, and so does `nnx.view(module, deterministic=...)`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.RReLU.html

    Args:
      lower, upper: slopes are drawn uniformly from between them.
      inplace: means nothing.
      deterministic: True for the slope `(lower + upper) / 2`.
      rngs: `dropout` is drawn from; without it the layer works in evaluation and with slopes given.

    Raises:
      ValueError: where `lower > upper`; on a call that would have to draw and has nothing to draw from.

    Example:
      >>> rrelu = RReLU(rngs=nnx.Rngs(0))
      >>> rrelu(jnp.array([-2.0, 2.0]), slope=jnp.array([0.25, 0.3])).tolist()
      [-0.5, 2.0]
    """

    def __init__(
        self,
        lower: float = 1.0 / 8,
        upper: float = 1.0 / 3,
        inplace: bool = False,
        *,
        deterministic: bool = False,
        rngs: nnx.Rngs | nnx.RngStream | None = None,
    ):
        if not lower <= upper:
            raise ValueError(f"lower is {lower!r}, which is above upper, {upper!r}; swap them")
        self.lower = lower
        self.upper = upper
        self.inplace = inplace
        self.deterministic = deterministic
        self.rngs = stream_from(rngs)

    def __call__(
        self,
        input: jax.Array,
        slope: jax.Array | None = None,
        deterministic: bool | None = None,
        rngs: Rngs | None = None,
    ) -> jax.Array:
        """`input` rectified; each argument overrides the attribute for this call."""
        training = not (self.deterministic if deterministic is None else deterministic)
        rngs = self.rngs if rngs is None else rngs
        return rrelu(input, self.lower, self.upper, training, slope=slope, rngs=rngs)

    def set_view(self, deterministic: bool | None = None) -> None:
        """Called by `nnx.view`.

        Args:
          deterministic: True for evaluation.
        """
        if deterministic is not None:
            self.deterministic = deterministic
