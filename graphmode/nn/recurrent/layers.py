"""`torch.nn.RNN`, `torch.nn.LSTM` and `torch.nn.GRU`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from graphmode.weights import LINEAR, carries

from ..arguments import as_integer, as_word, warn
from ..default_init import uniform
from ..dropout.masks import Rngs, stream_from
from ..layer import Layer
from .functional import NONLINEARITIES, gru, lstm, rnn
from .packed import takes_packed

Array = jax.Array


class _Recurrent(Layer):
    """Parameters and checks that the three have in common."""

    def __init__(
        self,
        gates: int,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        bias: bool,
        batch_first: bool,
        dropout: float,
        bidirectional: bool,
        proj_size: int,
        deterministic: bool,
        precision: jax.lax.PrecisionLike,
        param_dtype: Any,
        rngs: nnx.Rngs,
    ):
        self.input_size = as_integer("input_size", input_size, least=1)
        self.hidden_size = as_integer("hidden_size", hidden_size, least=1)
        self.num_layers = as_integer("num_layers", num_layers, least=1)
        self.bias = _as_bool("bias", bias)
        self.batch_first = _as_bool("batch_first", batch_first)
        self.bidirectional = bool(bidirectional)
        self.proj_size = as_integer("proj_size", proj_size, least=0)
        if self.proj_size >= self.hidden_size:
            raise ValueError(f"proj_size is {proj_size}; give less than hidden_size = {hidden_size}, or 0 for none")
        if isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0 <= dropout <= 1:
            raise ValueError(f"dropout is {dropout!r}; give a probability from 0 to 1")
        self.dropout = float(dropout)
        if dropout and self.num_layers == 1:
            warn(f"dropout is {dropout} and num_layers is 1; dropout takes place between layers, so here nowhere")
        self.deterministic = deterministic
        self.precision = precision
        self.rngs = stream_from(rngs if dropout and self.num_layers > 1 else None)

        def drawn(*shape: int) -> Array:
            return uniform(rngs, shape, hidden_size, param_dtype)

        hidden = self.proj_size or hidden_size
        width = input_size
        for layer in range(num_layers):
            for suffix in self._suffixes(layer):
                setattr(self, f"weight_ih_{suffix}", nnx.Param(drawn(width, gates * hidden_size), **carries(LINEAR)))
                setattr(self, f"weight_hh_{suffix}", nnx.Param(drawn(hidden, gates * hidden_size), **carries(LINEAR)))
                if bias:
                    setattr(self, f"bias_ih_{suffix}", nnx.Param(drawn(gates * hidden_size)))
                    setattr(self, f"bias_hh_{suffix}", nnx.Param(drawn(gates * hidden_size)))
                if proj_size:
                    setattr(self, f"weight_hr_{suffix}", nnx.Param(drawn(hidden_size, proj_size), **carries(LINEAR)))
            width = hidden * (2 if bidirectional else 1)

    def set_view(self, deterministic: bool | None = None) -> None:
        """Called by `nnx.view`.

        Args:
          deterministic: True for no dropout.
        """
        if deterministic is not None:
            self.deterministic = deterministic

    def flatten_parameters(self) -> None:
        """Does nothing: a graph has no memory to lay out for cuDNN. Here so that PyTorch's calls of it can stay."""

    def _suffixes(self, layer: int) -> list[str]:
        return [f"l{layer}", f"l{layer}_reverse"] if self.bidirectional else [f"l{layer}"]

    def _params(self) -> tuple[Array, ...]:
        names = ["weight_ih", "weight_hh"]
        names += ["bias_ih", "bias_hh"] if self.bias else []
        names += ["weight_hr"] if self.proj_size else []
        suffixes = [suffix for layer in range(self.num_layers) for suffix in self._suffixes(layer)]
        return tuple(getattr(self, f"{name}_{suffix}")[...] for suffix in suffixes for name in names)

    def _settings(self, rngs: Rngs | None, masks: Sequence[Array] | None) -> dict[str, Any]:
        return {
            "params": self._params(),
            "has_biases": self.bias,
            "num_layers": self.num_layers,
            "dropout": self.dropout,
            "train": not self.deterministic,
            "bidirectional": self.bidirectional,
            "batch_first": self.batch_first,
            "rngs": self.rngs if rngs is None else rngs,
            "masks": masks,
            "precision": self.precision,
        }


class RNN(_Recurrent):
    """Elman's recurrent layers: `h' = tanh(W_ih x + b_ih + W_hh h + b_hh)`, or relu.

    Arguments, attributes, calls and raised errors are those of `LSTM`, with one state, `h`, and with `nonlinearity`,
    `"tanh"` or `"relu"`; there is no `proj_size`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.RNN.html

    Example:
      >>> rnn = RNN(3, 4, num_layers=2, rngs=nnx.Rngs(0))
      >>> output, h_n = rnn(jnp.ones((5, 2, 3)))
      >>> output.shape, h_n.shape
      ((5, 2, 4), (2, 2, 4))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        deterministic: bool = False,
        precision: jax.lax.PrecisionLike = None,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ):
        super().__init__(
            1, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0,
            deterministic, precision, param_dtype, rngs,
        )  # fmt: skip
        self.nonlinearity = as_word("nonlinearity", nonlinearity, NONLINEARITIES)

    @takes_packed
    def __call__(
        self,
        input: Array,
        hx: Array | None = None,
        *,
        lengths: Array | None = None,
        rngs: Rngs | None = None,
        masks: Sequence[Array] | None = None,
    ) -> tuple[Array, Array]:
        """The output and `h_n`; arguments as in `LSTM`."""
        return rnn(input, hx, nonlinearity=self.nonlinearity, lengths=lengths, **self._settings(rngs, masks))


class GRU(_Recurrent):
    """Gated recurrent units: `h' = (1 - z) n + z h` with `n = tanh(W_in x + b_in + r (W_hn h + b_hn))`.

    Arguments, attributes, calls and raised errors are those of `LSTM`, with one state, `h`, and the gates r, z, n side
    by side in the parameters; there is no `proj_size`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.GRU.html

    Example:
      >>> gru = GRU(3, 4, bidirectional=True, rngs=nnx.Rngs(0))
      >>> output, h_n = gru(jnp.ones((5, 2, 3)))
      >>> output.shape, h_n.shape
      ((5, 2, 8), (2, 2, 4))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        deterministic: bool = False,
        precision: jax.lax.PrecisionLike = None,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ):
        super().__init__(
            3, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0,
            deterministic, precision, param_dtype, rngs,
        )  # fmt: skip

    @takes_packed
    def __call__(
        self,
        input: Array,
        hx: Array | None = None,
        *,
        lengths: Array | None = None,
        rngs: Rngs | None = None,
        masks: Sequence[Array] | None = None,
    ) -> tuple[Array, Array]:
        """The output and `h_n`; arguments as in `LSTM`."""
        return gru(input, hx, lengths=lengths, **self._settings(rngs, masks))


class LSTM(_Recurrent):
    """Long short-term memory over time, layer on layer; its backward pass is written out, and it differentiates again.

    Forward-mode differentiation (`jax.jvp`, `jax.jacfwd`) of the layer itself is refused by JAX; of its gradient it
    works, so `jax.hessian` does. On a GPU each step launches its own kernels.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTM.html

    Args:
      input_size: length of the last axis of `input`.
      hidden_size: H, of the cell state, and of the hidden state where it is not projected.
      num_layers: layers, each of which reads the output of the one before.
      bias: whether there are biases: two, as in PyTorch; under Adam or SGD the two move twice as far as one would.
      batch_first: whether `input` and the output are `[B, T, ...]`; states never are.
      dropout: probability of an element of the output of every layer but the last to become 0, in training.
      bidirectional: whether each layer has a second direction, from the end; outputs stand side by side.
      proj_size: length that the hidden state is projected to, less than `hidden_size`; 0 for none.
      deterministic: True for no dropout; `module.train()` and `module.eval()` switch it, and `nnx.view` does.
      precision: of the products.
      param_dtype: of the parameters.
      rngs: `params` is drawn from, as PyTorch draws, U(-1/sqrt(H), 1/sqrt(H)), and for `dropout`, `dropout`.

    Attributes:
      weight_ih_l0: `[input_size, 4 H]`, PyTorch's transposed, gates i, f, g, o side by side; of layer k `_lk`, its rows
        the output of the layer before; of the second direction `_lk_reverse`, and so with those below.
      weight_hh_l0: `[H, 4 H]`, or `[proj_size, 4 H]`.
      bias_ih_l0, bias_hh_l0: `[4 H]`; absent without `bias`.
      weight_hr_l0: `[H, proj_size]`; absent without `proj_size`.

    Raises:
      ValueError, TypeError: for arguments out of range or of another type, in the constructor; for shapes and dtypes
        that do not fit, in the call.

    Example:
      >>> lstm = LSTM(3, 4, batch_first=True, rngs=nnx.Rngs(0))
      >>> output, (h_n, c_n) = lstm(jnp.ones((2, 5, 3)), lengths=jnp.array([5, 2]))
      >>> output.shape, h_n.shape, bool(jnp.all(output[1, 2:] == 0))
      ((2, 5, 4), (1, 2, 4), True)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        *,
        deterministic: bool = False,
        precision: jax.lax.PrecisionLike = None,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ):
        super().__init__(
            4, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size,
            deterministic, precision, param_dtype, rngs,
        )  # fmt: skip

    @takes_packed
    def __call__(
        self,
        input: Array,
        hx: tuple[Array, Array] | None = None,
        *,
        lengths: Array | None = None,
        rngs: Rngs | None = None,
        masks: Sequence[Array] | None = None,
    ) -> tuple[Array, tuple[Array, Array]]:
        """The output and `(h_n, c_n)`; D is 2 if `bidirectional`, else 1, and P `proj_size` or H.

        Args:
          input: `[T, B, I]`, with `batch_first` `[B, T, I]`, or `[T, I]` for one sequence; or what
            `nn.utils.rnn.pack_padded_sequence` gives of several lengths, and the output is such a one, too.
          hx: `h_0 [num_layers * D, B, P]` and `c_0 [num_layers * D, B, H]`, without `B` for one sequence; None for 0.
          lengths: `[B]` integers, how many steps of each sequence are real; see `functional.lstm`.
          rngs: what dropout draws from, in place of the layer's own.
          masks: of dropout, one in the shape of the output for each layer but the last, True where it is kept.

        Returns:
          `[T, B, D * P]` in the layout of `input`, and the states in the shapes of `hx`.
        """
        output, h, c = lstm(input, hx, lengths=lengths, **self._settings(rngs, masks))
        return output, (h, c)


def _as_bool(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}; give True or False")
    return value
