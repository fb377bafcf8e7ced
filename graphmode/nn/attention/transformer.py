"""`torch.nn.Transformer`."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from graphmode.weights import leaves

from ..activation.functional import relu
from ..layer import Layer
from ..norm import LayerNorm
from .decoder import TransformerDecoder, TransformerDecoderLayer
from .encoder import TransformerEncoder, TransformerEncoderLayer
from .masks import generate_square_subsequent_mask
from .multihead import xavier_uniform
from .stack import Activation


class Transformer(Layer):
    """An encoder and a decoder that attends to what it gives.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Transformer.html

    Args:
      d_model: E, the features of inputs and output.
      nhead: the heads of the attentions; divides E.
      num_encoder_layers, num_decoder_layers: how many of each.
      dim_feedforward: the features between the two linear layers of each.
      dropout: probability.
      activation: "relu", "gelu", or a function or module.
      custom_encoder, custom_decoder: modules to use in place of ours; all their parameters of two axes or more are
        drawn anew, as PyTorch does.
      layer_norm_eps: of the norms.
      batch_first: whether batches are `[N, S, E]` rather than `[S, N, E]`.
      norm_first: whether the norms come first in every layer.
      bias: whether linear layers and norms have biases.
      param_dtype: of the parameters.
      rngs: `params` is drawn from; in training `dropout`, of which streams are kept.
      precision: of the products.

    Attributes:
      encoder: a `TransformerEncoder`, with a norm.
      decoder: a `TransformerDecoder`, with a norm.

    Raises:
      ValueError: for sizes, words and probabilities that cannot be.

    Example:
      >>> transformer = Transformer(4, 2, 1, 1, 8, batch_first=True, rngs=nnx.Rngs(0))
      >>> mask = Transformer.generate_square_subsequent_mask(7)
      >>> transformer(jnp.ones((3, 5, 4)), jnp.ones((3, 7, 4)), tgt_mask=mask, tgt_is_causal=True).shape
      (3, 7, 4)
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = relu,
        custom_encoder: nnx.Module | None = None,
        custom_decoder: nnx.Module | None = None,
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
        same = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        if custom_encoder is None:
            encoder_layer = TransformerEncoderLayer(*same, precision=precision, **drawn)
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias, **drawn)
            custom_encoder = TransformerEncoder(encoder_layer, num_encoder_layers, norm)
        if custom_decoder is None:
            decoder_layer = TransformerDecoderLayer(*same, precision=precision, **drawn)
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias, **drawn)
            custom_decoder = TransformerDecoder(decoder_layer, num_decoder_layers, norm)
        self.encoder: Any = custom_encoder
        self.decoder: Any = custom_decoder
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first
        self._draw(rngs)

    def __call__(
        self,
        src: jax.Array,
        tgt: jax.Array,
        src_mask: jax.Array | None = None,
        tgt_mask: jax.Array | None = None,
        memory_mask: jax.Array | None = None,
        src_key_padding_mask: jax.Array | None = None,
        tgt_key_padding_mask: jax.Array | None = None,
        memory_key_padding_mask: jax.Array | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> jax.Array:
        """`tgt` decoded with `src` encoded; shaped as `tgt`.

        Args:
          src: `[S, N, E]`, `[N, S, E]` for `batch_first`, or `[S, E]`.
          tgt: likewise, with length T.
          src_mask, tgt_mask, memory_mask: `[S, S]`, `[T, T]` and `[T, S]`, or with `N * nhead` before that: True where
            attention is prevented, or floats to add.
          src_key_padding_mask, tgt_key_padding_mask, memory_key_padding_mask: `[N, S]`, `[N, T]` and `[N, S]`, without
            N where there is no batch: True for positions that are ignored, or floats to add.
          src_is_causal, tgt_is_causal, memory_is_causal: say that the masks, which must be there, are causal.

        Raises:
          ValueError: where shapes do not fit.
        """
        shapes = f"src has shape {tuple(src.shape)} and tgt {tuple(tgt.shape)}"
        if src.ndim != tgt.ndim or src.ndim not in (2, 3):
            raise ValueError(f"{shapes}; give both 3 axes, or both 2 without a batch")
        batch = 0 if self.batch_first else 1
        if src.ndim == 3 and src.shape[batch] != tgt.shape[batch]:
            raise ValueError(f"{shapes}; their batches, axis {batch}, differ")
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise ValueError(f"{shapes}; d_model = {self.d_model} features were wanted in both")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(sz: int, dtype: jnp.dtype = jnp.float32) -> jax.Array:
        """`[sz, sz]`: -inf above the diagonal (True where `dtype` is bool), 0 elsewhere."""
        return generate_square_subsequent_mask(sz, dtype)

    def _draw(self, rngs: nnx.Rngs) -> None:
        """Every parameter of two axes or more from Xavier's uniform distribution, as PyTorch does here."""
        for leaf in leaves(self):
            value = leaf.variable.get_value()
            if isinstance(leaf.variable, nnx.Param) and value.ndim > 1:
                (like,) = leaf.transform.to_reference(np.empty(value.shape, np.bool_))
                fans = (like.shape[0] + like.shape[1]) * math.prod(like.shape[2:])
                leaf.variable.set_value(xavier_uniform(rngs, value.shape, fans, value.dtype))
