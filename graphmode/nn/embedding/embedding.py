"""`torch.nn.Embedding`, and the function behind it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from ..arguments import as_integer
from ..layer import Layer
from .lookup import as_indices, as_padding_idx, as_table, check_range, renormalised, rows_at


def embedding(
    input: jax.Array,
    weight: jax.Array | nnx.Variable,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> jax.Array:
    """The rows of `weight` at `input`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.embedding.html

    Args:
      input: `[...]`, integers from 0 to V - 1.
      weight: `[V, D]`.
      padding_idx: a row that no gradient reaches; from -V to V - 1.
      max_norm: rows that are looked up and longer are scaled down to it first. They are written into `weight` where
        that is an `nnx.Variable`; an array stays as it is, and the rows of the result are scaled.
      norm_type: the p of that norm.
      scale_grad_by_freq: whether the gradient of a row is divided by how often `input` holds it.
      sparse: taken for PyTorch's sake; the gradient has the same values and is a whole table.

    Returns:
      `[..., D]`; inside a graph, NaN for an index out of range.

    Raises:
      IndexError: outside of `jit`, for an index out of range; `gm.check` the indices where a graph shall raise.
      ValueError: where `weight` has not 2 axes, or `padding_idx` is no row.
      TypeError: where `input` holds no integers.
    """
    table = as_table(weight)
    input = as_indices("input", input)
    padding_idx = as_padding_idx(padding_idx, len(table))
    check_range("input", input, len(table))
    if max_norm is not None:
        table = renormalised(weight, input, max_norm, norm_type)
    return rows_at(table, input, padding_idx, scale_grad_by_freq)


class Embedding(Layer):
    """A table of rows to look up.

    With `max_norm`, calls write into `weight`: inside `jax.jit` and under `jax.grad`, hand the module's state out along
    with the result, as for running statistics.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html

    Args:
      num_embeddings: number of rows, V.
      embedding_dim: length of each, D.
      padding_idx: a row that is zero at first and that no gradient reaches; negative ones count from the end.
      max_norm: rows that are looked up and longer are scaled down to it, in `weight` itself.
      norm_type: the p of that norm.
      scale_grad_by_freq: whether the gradient of a row is divided by how often `input` holds it.
      sparse: taken for PyTorch's sake; the gradient has the same values and is a whole table.
      _weight: `[V, D]` to begin with, in place of what would be drawn; see `from_pretrained`.
      _freeze: whether `weight` is no `nnx.Param`, so that no optimizer moves it.
      param_dtype: of `weight`.
      rngs: `params` is drawn from, as PyTorch draws: N(0, 1). Not needed with `_weight`.

    Attributes:
      weight: `[V, D]`, an `nnx.Param`, or a plain `nnx.Variable` where frozen.

    Raises:
      IndexError: outside of `jit`, for an index out of range. Inside of it, its row of the result is NaN.
      ValueError: where a size or `padding_idx` is out of range, or `_weight` has another shape.
      TypeError: where `input` holds no integers.

    Example:
      >>> embedding = Embedding(10, 3, padding_idx=0, rngs=nnx.Rngs(0))
      >>> embedding(jnp.asarray([[0, 2, 0, 5]])).shape
      (1, 4, 3)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: jax.Array | None = None,
        _freeze: bool = False,
        *,
        param_dtype: jnp.dtype = jnp.float32,
        rngs: nnx.Rngs | None = None,
    ):
        self.num_embeddings = as_integer("num_embeddings", num_embeddings, least=0)
        self.embedding_dim = as_integer("embedding_dim", embedding_dim, least=0)
        self.padding_idx = as_padding_idx(padding_idx, num_embeddings)
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        value = first_table(num_embeddings, embedding_dim, self.padding_idx, _weight, param_dtype, rngs)
        self.weight: nnx.Variable = nnx.Variable(value) if _freeze else nnx.Param(value)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: jax.Array,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """An embedding with these rows, in their dtype.

        Args:
          embeddings: `[V, D]`.
          freeze: whether `weight` is a plain `nnx.Variable` and no `nnx.Param`, so that no optimizer moves it.
          padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse: as the class has them; no row is made zero.

        Raises:
          ValueError: where `embeddings` has not 2 axes.
        """
        rows, columns = as_table(embeddings).shape
        return cls(
            rows, columns, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, embeddings, _freeze=freeze
        )

    def __call__(self, input: jax.Array) -> jax.Array:
        return embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )


def first_table(
    rows: int,
    columns: int,
    padding_idx: int | None,
    given: Any,
    param_dtype: jnp.dtype,
    rngs: nnx.Rngs | None,
) -> jax.Array:
    """`given`, in its own dtype, or drawn from N(0, 1) with zeros at `padding_idx`."""
    if given is not None:
        given = jnp.asarray(given)
        if given.shape != (rows, columns):
            raise ValueError(f"_weight has shape {tuple(given.shape)}, and ({rows}, {columns}) was wanted")
        return given
    if rngs is None:
        raise TypeError("rngs is None; give an nnx.Rngs to draw the rows from, or the rows as _weight")
    drawn = jax.random.normal(rngs.params(), (rows, columns), param_dtype)
    return drawn if padding_idx is None else drawn.at[padding_idx].set(0)
