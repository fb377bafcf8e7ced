"""`torch.nn.TransformerDecoderLayer` and `TransformerDecoder`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from ..activation.functional import relu
from ..arguments import as_integer
from ..dropout import Dropout
from ..layer import Layer
from ..linear import Linear
from ..norm import LayerNorm
from .multihead import MultiheadAttention
from .stack import Activation, as_activation, clones


class TransformerDecoderLayer(Layer):
    """Self-attention, attention to a memory, and two linear layers, each added to its input and normalised.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.TransformerDecoderLayer.html

    Args:
      d_model: E, the features of inputs and output.
      nhead: the heads of both attentions; divides E.
      dim_feedforward: the features between the two linear layers.
      dropout: probability, after the attentions' weights, the activation and all sums' terms.
      activation: "relu", "gelu", or a function or module.
      layer_norm_eps: of the norms.
      batch_first: whether batches are `[N, T, E]` rather than `[T, N, E]`.
      norm_first: whether the norms come before attentions and linear layers rather than after the sums.
      bias: whether linear layers and norms have biases.
      param_dtype: of the parameters.
      rngs: `params` is drawn from; in training `dropout`, of which streams are kept.
      precision: of the products.

    Attributes:
      self_attn, multihead_attn, linear1, dropout, linear2, norm1, norm2, norm3, dropout1, dropout2, dropout3: layers,
        named as PyTorch's.

    Raises:
      ValueError: for sizes, words and probabilities that cannot be.

    Example:
      >>> layer = TransformerDecoderLayer(4, 2, 8, batch_first=True, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((3, 5, 4)), memory=jnp.ones((3, 7, 4))).shape
      (3, 5, 4)
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        *,
        param_dtype: jnp.dtype = jnp.float32,
        rngs: nnx.Rngs,
        precision: jax.lax.PrecisionLike = None,
    ):
        drawn: dict[str, Any] = {"param_dtype": param_dtype, "rngs": rngs}
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first, precision=precision, **drawn
        )
        self.multihead_attn = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first, precision=precision, **drawn
        )
        self.linear1 = Linear(d_model, dim_feedforward, bias, precision=precision, **drawn)
        self.dropout = Dropout(dropout, rngs=rngs)
        self.linear2 = Linear(dim_feedforward, d_model, bias, precision=precision, **drawn)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, **drawn)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, **drawn)
        self.norm3 = LayerNorm(d_model, layer_norm_eps, bias=bias, **drawn)
        self.dropout1 = Dropout(dropout, rngs=rngs)
        self.dropout2 = Dropout(dropout, rngs=rngs)
        self.dropout3 = Dropout(dropout, rngs=rngs)
        self.activation = as_activation(activation)

    def __call__(
        self,
        tgt: jax.Array,
        memory: jax.Array,
        tgt_mask: jax.Array | None = None,
        memory_mask: jax.Array | None = None,
        tgt_key_padding_mask: jax.Array | None = None,
        memory_key_padding_mask: jax.Array | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> jax.Array:
        """`tgt`, `[T, N, E]` (`[N, T, E]` for `batch_first`) or `[T, E]`, decoded.

        Args:
          tgt: of any of these shapes.
          memory: what comes out of the encoder: as `tgt`, with length S.
          tgt_mask: `[T, T]` or `[N * nhead, T, T]`: True where attention is prevented, or floats to add.
          memory_mask: `[T, S]` or `[N * nhead, T, S]`, likewise.
          tgt_key_padding_mask: `[N, T]` or `[T]`: True for positions that are ignored, or floats to add.
          memory_key_padding_mask: `[N, S]` or `[S]`, likewise.
          tgt_is_causal, memory_is_causal: say that `tgt_mask` or `memory_mask`, which must be there, is causal.
        """

        def attend(x: jax.Array) -> jax.Array:
            attended, _ = self.self_attn(
                x, x, x, key_padding_mask=tgt_key_padding_mask, need_weights=False, attn_mask=tgt_mask,
                is_causal=tgt_is_causal,
            )  # fmt: skip
            return self.dropout1(attended)

        def attend_to_memory(x: jax.Array) -> jax.Array:
            attended, _ = self.multihead_attn(
                x, memory, memory, key_padding_mask=memory_key_padding_mask, need_weights=False, attn_mask=memory_mask,
                is_causal=memory_is_causal,
            )  # fmt: skip
            return self.dropout2(attended)

        def feed_forward(x: jax.Array) -> jax.Array:
            return self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(x)))))

        if self.norm_first:
            tgt = tgt + attend(self.norm1(tgt))
            tgt = tgt + attend_to_memory(self.norm2(tgt))
            return tgt + feed_forward(self.norm3(tgt))
        tgt = self.norm1(tgt + attend(tgt))
        tgt = self.norm2(tgt + attend_to_memory(tgt))
        return self.norm3(tgt + feed_forward(tgt))


class TransformerDecoder(Layer):
    """Copies of one layer, one after the other, all attending to one memory.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.TransformerDecoder.html

    Args:
      decoder_layer: is copied; all copies begin with its parameters.
      num_layers: how many copies.
      norm: applied at the end, or None.

    Attributes:
      layers: `nnx.List` of the copies.

    Raises:
      ValueError: where `num_layers` is below 1.

    Example:
      >>> layer = TransformerDecoderLayer(4, 2, 8, batch_first=True, rngs=nnx.Rngs(0))
      >>> TransformerDecoder(layer, 2)(jnp.ones((3, 5, 4)), jnp.ones((3, 7, 4))).shape
      (3, 5, 4)
    """

    def __init__(
        self, decoder_layer: nnx.Module, num_layers: int, norm: Callable[[jax.Array], jax.Array] | None = None
    ):
        self.num_layers = as_integer("num_layers", num_layers, least=1)
        self.layers = clones(decoder_layer, num_layers)
        self.norm: Any = nnx.data(None) if norm is None else norm

    def __call__(
        self,
        tgt: jax.Array,
        memory: jax.Array,
        tgt_mask: jax.Array | None = None,
        memory_mask: jax.Array | None = None,
        tgt_key_padding_mask: jax.Array | None = None,
        memory_key_padding_mask: jax.Array | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> jax.Array:
        """`tgt` through all layers; the arguments are those of the layers."""
        # PyTorch looks at the mask's values to find that it is causal; what comes of it is the same.
        for layer in self.layers:
            tgt = layer(
                tgt,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=bool(tgt_is_causal),
                memory_is_causal=memory_is_causal,
            )
        return tgt if self.norm is None else self.norm(tgt)
