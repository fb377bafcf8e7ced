"""`torch.nn.RNNCell`, `torch.nn.LSTMCell` and `torch.nn.GRUCell`: one step, for loops of your own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from graphmode.weights import LINEAR, carries

from ..arguments import as_integer, as_word
from ..default_init import uniform
from ..layer import Layer
from .functional import NONLINEARITIES, gru_cell, lstm_cell, rnn_cell

Array = jax.Array


class _Cell(Layer):
    """Parameters that the three have in common."""

    def __init__(
        self,
        gates: int,
        input_size: int,
        hidden_size: int,
        bias: bool,
        precision: jax.lax.PrecisionLike,
        param_dtype: Any,
        rngs: nnx.Rngs,
    ):
        self.input_size = as_integer("input_size", input_size, least=0)
        self.hidden_size = as_integer("hidden_size", hidden_size, least=0)
        if not isinstance(bias, bool) and bias not in (0, 1):
            raise TypeError(f"bias is {bias!r}; give True or False")
        self.precision = precision

        def drawn(*shape: int) -> Array:
            return uniform(rngs, shape, hidden_size, param_dtype)

        self.weight_ih = nnx.Param(drawn(input_size, gates * hidden_size), **carries(LINEAR))
        self.weight_hh = nnx.Param(drawn(hidden_size, gates * hidden_size), **carries(LINEAR))
        self.bias_ih: Any = nnx.data(None)
        self.bias_hh: Any = nnx.data(None)
        if bias:
            self.bias_ih = nnx.Param(drawn(gates * hidden_size))
            self.bias_hh = nnx.Param(drawn(gates * hidden_size))

    def _weights(self) -> tuple[Array, Array, Array | None, Array | None]:
        biases = (None, None) if self.bias_ih is None else (self.bias_ih[...], self.bias_hh[...])
        return self.weight_ih[...], self.weight_hh[...], *biases


class RNNCell(_Cell):
    """One step of `RNN`; arguments, attributes and raised errors as in `LSTMCell`, with one state.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.RNNCell.html

    Example:
      >>> RNNCell(3, 4, nonlinearity="relu", rngs=nnx.Rngs(0))(jnp.ones((2, 3))).shape
      (2, 4)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        *,
        precision: jax.lax.PrecisionLike = None,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ):
        super().__init__(1, input_size, hidden_size, bias, precision, param_dtype, rngs)
        self.nonlinearity = as_word("nonlinearity", nonlinearity, NONLINEARITIES)

    def __call__(self, input: Array, hx: Array | None = None) -> Array:
        """The hidden state after, `[B, hidden_size]`, or `[hidden_size]` for an `input` without batch."""
        return rnn_cell(input, hx, *self._weights(), nonlinearity=self.nonlinearity, precision=self.precision)


class GRUCell(_Cell):
    """One step of `GRU`; arguments, attributes and raised errors as in `LSTMCell`, with one state and gates r, z, n.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.GRUCell.html

    Example:
      >>> GRUCell(3, 4, rngs=nnx.Rngs(0))(jnp.ones((2, 3))).shape
      (2, 4)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        *,
        precision: jax.lax.PrecisionLike = None,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ):
        super().__init__(3, input_size, hidden_size, bias, precision, param_dtype, rngs)

    def __call__(self, input: Array, hx: Array | None = None) -> Array:
        """The hidden state after, `[B, hidden_size]`, or `[hidden_size]` for an `input` without batch."""
        return gru_cell(input, hx, *self._weights(), precision=self.precision)


class LSTMCell(_Cell):
    """One step of `LSTM`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTMCell.html

    Args:
      input_size: length of the last axis of `input`.
      hidden_size: H, of the hidden and the cell state.
      bias: whether there are biases, two as in PyTorch.
      precision: of the products.
      param_dtype: of the parameters.
      rngs: `params` is drawn from, as PyTorch draws: U(-1/sqrt(H), 1/sqrt(H)).

    Attributes:
      weight_ih, weight_hh: `[input_size, 4 H]` and `[H, 4 H]`, PyTorch's transposed, gates i, f, g, o side by side.
      bias_ih, bias_hh: `[4 H]`, or None.

    Raises:
      ValueError: for a negative size, or shapes that do not fit.
      TypeError: for dtypes that differ, or a `bias` that is no bool.

    Example:
      >>> h, c = LSTMCell(3, 4, rngs=nnx.Rngs(0))(jnp.ones((2, 3)))
      >>> h.shape, c.shape
      ((2, 4), (2, 4))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        *,
        precision: jax.lax.PrecisionLike = None,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ):
        super().__init__(4, input_size, hidden_size, bias, precision, param_dtype, rngs)

    def __call__(self, input: Array, hx: tuple[Array, Array] | None = None) -> tuple[Array, Array]:
        """The states after, `h` and `c`.

        Args:
          input: `[B, input_size]`, or `[input_size]`.
          hx: `h` and `c` before, `[B, H]` each, or `[H]`; None for zeros.
        """
        return lstm_cell(input, hx, *self._weights(), precision=self.precision)
