"""`torch.nn.MultiheadAttention`."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from graphmode.weights import LINEAR, carries

from ..arguments import as_integer, as_probability
from ..layer import Layer
from ..linear import Linear
from ..linear.functional import linear
from .multi_head import multi_head_attention_forward
from .scaled_dot_product import scaled_dot_product_attention


class MultiheadAttention(Layer):
    """Attention of several heads, each over its own projections of queries, keys and values.

    In masks True means: do not attend, the opposite of `scaled_dot_product_attention`'s. A query that may attend to
    nothing gives NaN with `need_weights`, and without it what an attention of zeros gives, as in PyTorch (whose
    inference path, under `torch.no_grad` in evaluation, gives NaN for both).

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html

    Args:
      embed_dim: E, the features of queries and outputs.
      num_heads: divides E.
      dropout: probability that a weight is zeroed in training.
      bias: whether the projections have biases.
      add_bias_kv: whether a learnt key and value is appended to every sequence.
      add_zero_attn: whether a key and value of zeros is appended.
      kdim, vdim: features of keys and values; E where they are None.
      batch_first: whether batches are `[N, L, E]` rather than `[L, N, E]`.
      param_dtype: of the parameters.
      rngs: `params` is drawn from; in training `dropout`, of which a stream is kept.
      precision: of all products.

    Attributes:
      in_proj_weight: `[E, 3E]`, PyTorch's transposed; None where `kdim` or `vdim` is another than E, and then
      q_proj_weight, k_proj_weight, v_proj_weight: `[E, E]`, `[kdim, E]`, `[vdim, E]`; else None.
      in_proj_bias: `[3E]`, or None.
      out_proj: a `Linear`.
      bias_k, bias_v: `[1, 1, E]`, or None.
      deterministic: True in evaluation.

    Raises:
      ValueError: for sizes that do not fit.

    Example:
      >>> attention = MultiheadAttention(4, 2, batch_first=True, rngs=nnx.Rngs(0))
      >>> x = jnp.ones((3, 5, 4))
      >>> output, weights = attention(x, x, x)
      >>> output.shape, weights.shape
      ((3, 5, 4), (3, 5, 5))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        *,
        param_dtype: jnp.dtype = jnp.float32,
        rngs: nnx.Rngs,
        precision: jax.lax.PrecisionLike = None,
    ):
        self.embed_dim = as_integer("embed_dim", embed_dim, least=1)
        self.num_heads = as_integer("num_heads", num_heads, least=1)
        if embed_dim % num_heads:
            raise ValueError(f"embed_dim is {embed_dim}, which num_heads = {num_heads} does not divide")
        self.kdim = embed_dim if kdim is None else as_integer("kdim", kdim, least=1)
        self.vdim = embed_dim if vdim is None else as_integer("vdim", vdim, least=1)
        self.dropout = as_probability("dropout", dropout)
        self.add_zero_attn = add_zero_attn
        self.batch_first = batch_first
        self.precision = precision
        self.deterministic = False
        self.head_dim = embed_dim // num_heads

        self.in_proj_weight: Any = nnx.data(None)
        self.q_proj_weight: Any = nnx.data(None)
        self.k_proj_weight: Any = nnx.data(None)
        self.v_proj_weight: Any = nnx.data(None)
        self.in_proj_bias: Any = nnx.data(None)
        self.bias_k: Any = nnx.data(None)
        self.bias_v: Any = nnx.data(None)
        self.rngs: Any = nnx.data(None)
        if self.is_packed:
            self.in_proj_weight = _xavier(rngs, embed_dim, 3 * embed_dim, param_dtype)
        else:
            self.q_proj_weight = _xavier(rngs, embed_dim, embed_dim, param_dtype)
            self.k_proj_weight = _xavier(rngs, self.kdim, embed_dim, param_dtype)
            self.v_proj_weight = _xavier(rngs, self.vdim, embed_dim, param_dtype)
        self.out_proj = Linear(embed_dim, embed_dim, bias, precision=precision, param_dtype=param_dtype, rngs=rngs)
        if bias:
            self.in_proj_bias = nnx.Param(jnp.zeros(3 * embed_dim, param_dtype))
            self.out_proj.bias.set_value(jnp.zeros(embed_dim, param_dtype))
        if add_bias_kv:
            self.bias_k, self.bias_v = (
                nnx.Param(jax.random.normal(rngs.params(), (1, 1, embed_dim), param_dtype) / math.sqrt(embed_dim))
                for _ in "kv"
            )
        if dropout:
            self.rngs = rngs.dropout.fork()

    @property
    def is_packed(self) -> bool:
        """Whether one matrix projects queries, keys and values."""
        return self.kdim == self.vdim == self.embed_dim

    def __call__(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        key_padding_mask: jax.Array | None = None,
        need_weights: bool = True,
        attn_mask: jax.Array | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
        *,
        deterministic: bool | None = None,
        dropout_mask: jax.Array | None = None,
        rngs: nnx.Rngs | nnx.RngStream | None = None,
    ) -> tuple[jax.Array, jax.Array | None]:
        """The output, and the weights or None; as `nn.functional.multi_head_attention_forward`.

        Args:
          query: `[L, N, E]`, `[N, L, E]` for `batch_first`, or `[L, E]`.
          key, value: alike, with length S and features `kdim` and `vdim`. The same object as `query` where it is
            self-attention: all three are then projected in one product.
          key_padding_mask: `[N, S]` or `[S]`: True for keys to ignore, or floats to add to the scores.
          need_weights: False is faster.
          attn_mask: `[L, S]` or `[N * num_heads, L, S]`: True where attention is prevented, or floats to add.
          average_attn_weights: whether the weights are averaged over the heads.
          is_causal: says that `attn_mask`, which must be there, is causal.
          deterministic: overrides the attribute for this call.
          dropout_mask: broadcasts to `[N, num_heads, L, S]`, True where a weight is kept.
          rngs: what dropout is drawn from in place of the module's own stream.

        Returns:
          The output, shaped as `query`; None, or weights `[N, L, S]` (`[N, num_heads, L, S]` without averaging).
        """
        output, weights = multi_head_attention_forward(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            _value(self.in_proj_weight),
            _value(self.in_proj_bias),
            _value(self.bias_k),
            _value(self.bias_v),
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight[...],
            _value(self.out_proj.bias),
            not (self.deterministic if deterministic is None else deterministic),
            key_padding_mask,
            need_weights,
            attn_mask,
            not self.is_packed,
            _value(self.q_proj_weight),
            _value(self.k_proj_weight),
            _value(self.v_proj_weight),
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
            batch_first=self.batch_first,
            dropout_mask=dropout_mask,
            rngs=self.rngs if rngs is None else rngs,
            precision=self.precision,
        )
        return output, weights

    def project_query(self, query: jax.Array) -> jax.Array:
        """Ours: what `attend` takes for queries, `[N, num_heads, L, E / num_heads]`; `query` as in a call, batched.

        With `project_key_value` and `attend` a call in three parts, for keys and values that are kept: of a text that
        grows in a `gm.KVCache`, of a memory that is projected once and attended to by every token.

        Raises:
          ValueError: where `query` has no batch, or keys are appended (`add_bias_kv`, `add_zero_attn`).

        Example:
          >>> attention = MultiheadAttention(4, 2, batch_first=True, rngs=nnx.Rngs(0))
          >>> x, memory = jnp.ones((3, 1, 4)), jnp.ones((3, 5, 4))
          >>> keys, values = attention.project_key_value(memory)
          >>> output = attention.attend(attention.project_query(x), keys, values)
          >>> bool(jnp.allclose(output, attention(x, memory, memory)[0], atol=1e-6))
          True
        """
        return self._projected("query", query, 0)

    def project_key_value(self, key: jax.Array, value: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
        """Ours: what `attend` takes for keys and values, `[N, num_heads, S, E / num_heads]` each.

        Args:
          key: as in a call, batched.
          value: likewise; `key` where it is None, and both are then projected in one product.

        Raises:
          ValueError: as `project_query`.
        """
        if self.is_packed and (value is None or value is key):
            both = self._projected("key", key, 1, 2)
            keys, values = jnp.split(both, 2, axis=1)
            return keys, values
        return self._projected("key", key, 1), self._projected("value", key if value is None else value, 2)

    def attend(self, query: jax.Array, key: jax.Array, value: jax.Array, mask: jax.Array | None = None) -> jax.Array:
        """Ours: the output of projected queries over projected keys and values, without dropout.

        Args:
          query, key, value: as `project_query` and `project_key_value` give them.
          mask: broadcasts to `[N, num_heads, L, S]`; that of `nn.functional.scaled_dot_product_attention`, as
            `gm.KVCache.mask` gives it: True where a query attends.

        Returns:
          `[L, N, E]`, `[N, L, E]` for `batch_first`; of zero attention where a query may attend to nothing.
        """
        attended = scaled_dot_product_attention(query, key, value, mask, precision=self.precision)
        attended = jnp.moveaxis(attended, 1, 2)  # [N, L, num_heads, E / num_heads]
        output = self.out_proj(attended.reshape(*attended.shape[:2], self.embed_dim))
        return output if self.batch_first else jnp.swapaxes(output, 0, 1)

    def _projected(self, name: str, x: jax.Array, first: int, last: int | None = None) -> jax.Array:
        """`[N, heads, L, E / heads]` by these parts of the in-projection: 0 query, 1 key, 2 value."""
        if x.ndim != 3:
            raise ValueError(f"{name} has shape {x.shape}, and 3 axes were wanted, of which one is the batch")
        if self.bias_k is not None or self.add_zero_attn:
            raise ValueError(
                "add_bias_kv or add_zero_attn is set, which append to the keys; call the module as a whole"
            )
        part = slice(first * self.embed_dim, ((first if last is None else last) + 1) * self.embed_dim)
        separate = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)[first]
        weight = self.in_proj_weight[:, part] if self.is_packed else separate[...]
        bias = None if self.in_proj_bias is None else self.in_proj_bias[part]
        projected = linear(x if self.batch_first else jnp.swapaxes(x, 0, 1), weight, bias, precision=self.precision)
        return jnp.moveaxis(projected.reshape(*projected.shape[:2], -1, self.head_dim), 2, 1)

    def set_view(self, deterministic: bool | None = None) -> None:
        """Called by `nnx.view`.

        Args:
          deterministic: True for evaluation.
        """
        if deterministic is not None:
            self.deterministic = deterministic


def xavier_uniform(rngs: nnx.Rngs, shape: tuple[int, ...], fans: int, dtype: jnp.dtype) -> jax.Array:
    """U(-sqrt(6 / fans), sqrt(6 / fans)), `fans` being fan in and fan out together."""
    bound = math.sqrt(6 / fans)
    return jax.random.uniform(rngs.params(), shape, dtype, -bound, bound)


def _xavier(rngs: nnx.Rngs, fan_in: int, fan_out: int, dtype: jnp.dtype) -> nnx.Param:
    return nnx.Param(xavier_uniform(rngs, (fan_in, fan_out), fan_in + fan_out, dtype), **carries(LINEAR))


def _value(variable: Any) -> jax.Array | None:
    return None if variable is None else variable[...]
