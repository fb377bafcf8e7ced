"""The recurrent layers and cells as functions, by the names and arguments of `torch.lstm`, `torch.lstm_cell` ..."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from ..arguments import as_word
from ..autocast import autocasts
from ..dropout.masks import Rngs
from .over_time import Way, Weights
from .stack import Stack, one_step
from .steps import Elman, GatedUnit, LongShort

__all__: list[str] = ["gru", "gru_cell", "lstm", "lstm_cell", "rnn", "rnn_cell"]

Array = jax.Array
NONLINEARITIES = ("tanh", "relu")


@autocasts
def rnn(
    input: Array,
    hx: Array | None,
    params: Sequence[Array],
    has_biases: bool = True,
    num_layers: int = 1,
    dropout: float = 0.0,
    train: bool = False,
    bidirectional: bool = False,
    batch_first: bool = False,
    *,
    nonlinearity: str = "tanh",
    lengths: Array | None = None,
    rngs: Rngs | None = None,
    masks: Sequence[Array] | None = None,
    precision: jax.lax.PrecisionLike = None,
) -> tuple[Array, Array]:
    """Elman's recurrent layers over time, as `torch.rnn_tanh` and `torch.rnn_relu`.

    Args and raised errors are those of `lstm`, `hx` being one array and `nonlinearity` `"tanh"` or `"relu"`.

    Returns:
      The output and `h_n`, as `lstm` gives them.
    """
    step = Elman(as_word("nonlinearity", nonlinearity, NONLINEARITIES))
    stack = Stack(step, has_biases, num_layers, bidirectional, batch_first, precision)
    output, states = stack(input, (hx, None), params, lengths, dropout, train, rngs, masks)
    return output, states[0]


@autocasts
def gru(
    input: Array,
    hx: Array | None,
    params: Sequence[Array],
    has_biases: bool = True,
    num_layers: int = 1,
    dropout: float = 0.0,
    train: bool = False,
    bidirectional: bool = False,
    batch_first: bool = False,
    *,
    lengths: Array | None = None,
    rngs: Rngs | None = None,
    masks: Sequence[Array] | None = None,
    precision: jax.lax.PrecisionLike = None,
) -> tuple[Array, Array]:
    """Gated recurrent units over time, as `torch.gru`.

    Args and raised errors are those of `lstm`, `hx` being one array.

    Returns:
      The output and `h_n`, as `lstm` gives them.
    """
    stack = Stack(GatedUnit(), has_biases, num_layers, bidirectional, batch_first, precision)
    output, states = stack(input, (hx, None), params, lengths, dropout, train, rngs, masks)
    return output, states[0]


def lstm(
    input: Array,
    hx: tuple[Array, Array] | None,
    params: Sequence[Array],
    has_biases: bool = True,
    num_layers: int = 1,
    dropout: float = 0.0,
    train: bool = False,
    bidirectional: bool = False,
    batch_first: bool = False,
    *,
    lengths: Array | None = None,
    rngs: Rngs | None = None,
    masks: Sequence[Array] | None = None,
    precision: jax.lax.PrecisionLike = None,
) -> tuple[Array, Array, Array]:
    """Long short-term memory over time, as `torch.lstm`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTM.html

    Args:
      input: `[T, B, I]`, `[B, T, I]` with `batch_first`, or `[T, I]` for one sequence.
      hx: the states before the first step, `h_0 [L * D, B, P]` and `c_0 [L * D, B, H]`, without `B` for one sequence; L
        layers in D directions, P the projected size or H. None for zeros.
      params: of each layer, and in it of each direction: `weight_ih [I, gates * H]`, `weight_hh [P, gates * H]`, with
        `has_biases` `bias_ih` and `bias_hh [gates * H]`, and where hidden states are projected `weight_hr [H, P]`.
      has_biases: whether there are biases among `params`.
      num_layers: L.
      dropout: probability with which an element of the output of each layer but the last becomes 0.
      train: whether dropout takes place.
      bidirectional: whether D is 2.
      batch_first: whether `input` and the output, but not the states, have the batch first.
      lengths: `[B]` integers, how many steps of each sequence are real; what `pad_packed_sequence` gives after
        `pack_padded_sequence(..., enforce_sorted=False)`: the output is 0 behind a sequence's end, the states are those
        at its own end, and the reverse direction starts there. What stands in the padding, NaN too, reaches neither
        outputs nor gradients. A length of 0, which PyTorch refuses, leaves the state as it was.
      rngs: what dropout draws from, as of `dropout`.
      masks: of dropout, one in the shape of the output for each layer but the last, True where it is kept; in place of
        `rngs`. Those of `dropout_masks` have the steps first.
      precision: of the products.

    Returns:
      The output `[T, B, D * P]` in the layout of `input`, `h_n [L * D, B, P]` and `c_n [L * D, B, H]`.

    Raises:
      ValueError: where shapes do not fit, there is no step, or lengths that are known are negative or above T.
      TypeError: where `input`, states and `params` are not of one dtype.
    """
    stack = Stack(LongShort(), has_biases, num_layers, bidirectional, batch_first, precision)
    rest = params, lengths, dropout, train, rngs, masks
    if len(params) > stack.places * (4 if has_biases else 2):
        # PyTorch takes one cell after another, whose hidden state is a product, and the cell state none.
        output, h, c = _lstm_by_cells(input, hx, stack, *rest)
        return *_as_products(output, h), c
    return _lstm(input, hx, stack, *rest)


def _run_lstm(
    input: Array, hx: tuple[Array, Array] | None, stack: Stack, params: Sequence[Array], *rest: Any
) -> tuple[Array, Array, Array]:
    output, (h, c) = stack(input, _pair(hx), params, *rest)
    return output, h, c  # type: ignore[return-value]  # an LSTM's states have a cell


_lstm = autocasts(_run_lstm, name="lstm")
_lstm_by_cells = autocasts(_run_lstm, name="lstm_cell")
_as_products = autocasts(lambda *arrays: arrays, name="linear")


@autocasts
def rnn_cell(
    input: Array,
    hx: Array | None,
    w_ih: Array,
    w_hh: Array,
    b_ih: Array | None = None,
    b_hh: Array | None = None,
    *,
    nonlinearity: str = "tanh",
    precision: jax.lax.PrecisionLike = None,
) -> Array:
    """One step of `rnn`, as `torch.rnn_tanh_cell` and `torch.rnn_relu_cell`; arguments as in `lstm_cell`."""
    step = Elman(as_word("nonlinearity", nonlinearity, NONLINEARITIES))
    return one_step(Way(step, precision=precision), input, (hx, None), Weights(w_ih, w_hh, b_ih, b_hh)).hidden


@autocasts
def gru_cell(
    input: Array,
    hx: Array | None,
    w_ih: Array,
    w_hh: Array,
    b_ih: Array | None = None,
    b_hh: Array | None = None,
    *,
    precision: jax.lax.PrecisionLike = None,
) -> Array:
    """One step of `gru`, as `torch.gru_cell`; arguments as in `lstm_cell`."""
    return one_step(Way(GatedUnit(), precision=precision), input, (hx, None), Weights(w_ih, w_hh, b_ih, b_hh)).hidden


@autocasts
def lstm_cell(
    input: Array,
    hx: tuple[Array, Array] | None,
    w_ih: Array,
    w_hh: Array,
    b_ih: Array | None = None,
    b_hh: Array | None = None,
    *,
    precision: jax.lax.PrecisionLike = None,
) -> tuple[Array, Array]:
    """One step of `lstm`, as `torch.lstm_cell`.

    Args:
      input: `[B, I]`, or `[I]`.
      hx: the state before, `h [B, H]` and `c [B, H]`, without `B` where `input` has none; None for zeros.
      w_ih, w_hh: `[I, gates * H]` and `[H, gates * H]`.
      b_ih, b_hh: `[gates * H]`, or None.
      precision: of the products.

    Returns:
      The state after, `h` and `c`.

    Raises:
      ValueError: where shapes do not fit.
      TypeError: where not all are of one dtype.
    """
    weights = Weights(w_ih, w_hh, b_ih, b_hh)
    h, c = one_step(Way(LongShort(), precision=precision), input, _pair(hx), weights)
    return h, c  # type: ignore[return-value]


def _pair(hx: tuple[Array, Array] | None) -> tuple[Array | None, Array | None]:
    if hx is None:
        return None, None
    if not isinstance(hx, tuple | list) or len(hx) != 2:
        raise TypeError(f"hx is {type(hx).__name__}; give the pair (h, c), or None for zeros")
    return hx[0], hx[1]
