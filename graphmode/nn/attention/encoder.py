"""`torch.nn.TransformerEncoderLayer` and `TransformerEncoder`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from .. import activation as activations
from ..activation.functional import gelu, relu
from ..arguments import as_integer
from ..autocast import autocast_dtype
from ..dropout import Dropout
from ..layer import Layer
from ..linear import Linear
from ..norm import LayerNorm
from .masks import additive
from .multihead import MultiheadAttention
from .stack import Activation, as_activation, clones


class TransformerEncoderLayer(Layer):
    """Self-attention and two linear layers, each added to its input and normalised.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.TransformerEncoderLayer.html

    Args:
      d_model: E, the features of input and output.
      nhead: the heads of the attention; divides E.
      dim_feedforward: the features between the two linear layers.
      dropout: probability, after the attention's weights, the activation and both sums' terms.
      activation: "relu", "gelu", or a function or module.
      layer_norm_eps: of the norms.
      batch_first: whether batches are `[N, S, E]` rather than `[S, N, E]`.
      norm_first: whether the norms come before attention and linear layers rather than after the sums.
      bias: whether linear layers and norms have biases.
      param_dtype: of the parameters.
      rngs: `params` is drawn from; in training `dropout`, of which streams are kept.
      precision: of the products.

    Attributes:
      self_attn, linear1, dropout, linear2, norm1, norm2, dropout1, dropout2: layers, named as PyTorch's.

    Raises:
      ValueError: for sizes, words and probabilities that cannot be.

    Example:
      >>> layer = TransformerEncoderLayer(4, 2, 8, batch_first=True, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((3, 5, 4)), src_key_padding_mask=jnp.zeros((3, 5), bool)).shape
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
        self.linear1 = Linear(d_model, dim_feedforward, bias, precision=precision, **drawn)
        self.dropout = Dropout(dropout, rngs=rngs)
        self.linear2 = Linear(dim_feedforward, d_model, bias, precision=precision, **drawn)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, **drawn)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, **drawn)
        self.dropout1 = Dropout(dropout, rngs=rngs)
        self.dropout2 = Dropout(dropout, rngs=rngs)
        self.activation = as_activation(activation)

    def __call__(
        self,
        src: jax.Array,
        src_mask: jax.Array | None = None,
        src_key_padding_mask: jax.Array | None = None,
        is_causal: bool = False,
    ) -> jax.Array:
        """`src`, `[S, N, E]` (`[N, S, E]` for `batch_first`) or `[S, E]`, encoded.

        Args:
          src: of any of these shapes.
          src_mask: `[S, S]` or `[N * nhead, S, S]`: True where attention is prevented, or floats to add.
          src_key_padding_mask: `[N, S]` or `[S]`: True for positions that are ignored, or floats to add.
          is_causal: says that `src_mask`, which must be there, is causal.
        """

        def attend(x: jax.Array) -> jax.Array:
            attended, _ = self.self_attn(
                x, x, x, key_padding_mask=src_key_padding_mask, need_weights=False, attn_mask=src_mask,
                is_causal=is_causal,
            )  # fmt: skip
            return self.dropout1(attended)

        def feed_forward(x: jax.Array) -> jax.Array:
            return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))

        if self.norm_first:
            src = src + attend(self.norm1(src))
            return src + feed_forward(self.norm2(src))
        src = self.norm1(src + attend(src))
        return self.norm2(src + feed_forward(src))


class TransformerEncoder(Layer):
    """Copies of one layer, one after the other.

    In evaluation under `torch.no_grad()` PyTorch takes another way where it can: a stack of its own layers with
    `batch_first`, biases, an even number of heads, relu or gelu and not `norm_first`, for a batch with
    `src_key_padding_mask` and no `mask`. All positions that are padded then come out as zeros (before `norm`), and a
    floating `src_key_padding_mask` counts as True wherever it is not 0. With `no_grad` this does the same; all else
    agrees with PyTorch with and without gradients, but for a query that may attend to nothing, for whose sequence
    PyTorch without gradients gives NaN where it does not give zeros.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.TransformerEncoder.html

    Args:
      encoder_layer: is copied; all copies begin with its parameters.
      num_layers: how many copies.
      norm: applied at the end, or None.
      enable_nested_tensor: False for no zeros with `no_grad`; without effect else.
      mask_check: with `no_grad`, whether masks that pad elsewhere than at the end give no zeros; False takes the number
        of positions that are not padded for their place, at the beginning.
      no_grad: ours, set by `nnx.view` too: whether to give, in evaluation, what PyTorch gives under `torch.no_grad()`.

    Attributes:
      layers: `nnx.List` of the copies.

    Raises:
      ValueError: where `num_layers` is below 1.

    Example:
      >>> layer = TransformerEncoderLayer(4, 2, 8, batch_first=True, rngs=nnx.Rngs(0))
      >>> TransformerEncoder(layer, 2)(jnp.ones((3, 5, 4))).shape
      (3, 5, 4)
    """

    def __init__(
        self,
        encoder_layer: nnx.Module,
        num_layers: int,
        norm: Callable[[jax.Array], jax.Array] | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
        *,
        no_grad: bool = False,
    ):
        self.num_layers = as_integer("num_layers", num_layers, least=1)
        self.layers = clones(encoder_layer, num_layers)
        self.norm: Any = nnx.data(None) if norm is None else norm
        self.enable_nested_tensor = enable_nested_tensor
        self.mask_check = mask_check
        self.no_grad = no_grad

    def __call__(
        self,
        src: jax.Array,
        mask: jax.Array | None = None,
        src_key_padding_mask: jax.Array | None = None,
        is_causal: bool | None = None,
    ) -> jax.Array:
        """`src` through all layers; the arguments are those of the layers, `mask` being their `src_mask`."""
        src_key_padding_mask = additive("src_key_padding_mask", src_key_padding_mask, src.dtype)
        zeroed = None
        if src_key_padding_mask is not None and mask is None and self._gives_zeros(src):
            src_key_padding_mask, zeroed = _padded_at_the_end(src_key_padding_mask, self.mask_check)
        mask = additive("mask", mask, src.dtype)
        # PyTorch looks at the mask's values to find that it is causal; what comes of it is the same.
        for layer in self.layers:
            src = layer(src, src_mask=mask, is_causal=bool(is_causal), src_key_padding_mask=src_key_padding_mask)
        if zeroed is not None:
            src = jnp.where(zeroed[..., None], 0, src)
        return src if self.norm is None else self.norm(src)

    def set_view(self, no_grad: bool | None = None) -> None:
        """Called by `nnx.view`.

        Args:
          no_grad: True for what PyTorch gives under `torch.no_grad()`.
        """
        if no_grad is not None:
            self.no_grad = no_grad

    def _gives_zeros(self, src: jax.Array) -> bool:
        """Whether PyTorch would run this on nested tensors, given a padding mask alone."""
        if not (self.no_grad and self.enable_nested_tensor and src.ndim == 3 and autocast_dtype() is None):
            return False
        layer = self.layers[0]
        return (
            isinstance(layer, TransformerEncoderLayer)
            and layer.self_attn.deterministic
            and layer.self_attn.batch_first
            and layer.self_attn.in_proj_bias is not None
            and layer.self_attn.num_heads % 2 == 0
            and not layer.norm_first
            and layer.norm1.eps == layer.norm2.eps
            and _is_relu_or_gelu(layer.activation)
        )


def _is_relu_or_gelu(activation: Any) -> bool:
    modules = tuple(getattr(activations, name) for name in ("ReLU", "GELU") if hasattr(activations, name))
    return activation in (relu, gelu) or isinstance(activation, modules)


def _padded_at_the_end(mask: jax.Array, only_there: bool) -> tuple[jax.Array, jax.Array]:
    """The additive padding mask `[N, S]` as nested tensors have it, and where they come back as zeros."""
    kept = mask == 0
    at_the_end = jnp.arange(mask.shape[1]) >= jnp.sum(kept, 1, keepdims=True)
    nested = jnp.all(kept != at_the_end) if only_there else jnp.array(True)
    new = additive("src_key_padding_mask", at_the_end, mask.dtype)
    return jnp.where(nested, new, mask), nested & at_the_end
