"""`torch.nn.EmbeddingBag`, and the function behind it: sums, means or maxima over bags of rows."""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from ..arguments import as_integer, as_word, check_floating, check_same_dtype
from ..layer import Layer
from .embedding import first_table
from .lookup import DROP, as_indices, as_padding_idx, as_table, check_range, renormalised, rows_at

Mode = Literal["sum", "mean", "max"]


def embedding_bag(
    input: jax.Array,
    weight: jax.Array | nnx.Variable,
    offsets: jax.Array | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: Mode = "mean",
    sparse: bool = False,
    per_sample_weights: jax.Array | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> jax.Array:
    """Sums, means or maxima over bags of rows of `weight`; zeros for a bag without rows.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.embedding_bag.html

    Args:
      input: `[B, N]` for bags of N indices each, or `[N]`, all bags one after the other.
      weight: `[V, D]`, floating.
      offsets: `[B]`, where in `[N]` each bag begins: 0 first, none less than the one before. None for `[B, N]`.
      max_norm: rows that are looked up and longer are scaled down to it first. They are written into `weight` where
        that is an `nnx.Variable`; an array stays as it is, and the rows are scaled for the result.
      norm_type: the p of that norm.
      scale_grad_by_freq: whether the gradient of a row is divided by how often `input` holds it; not for `"max"`.
        (PyTorch divides by another row's number on a CPU.)
      mode: `"sum"`, `"mean"` or `"max"`, whose gradient goes to the first of rows that tie.
      sparse: taken for PyTorch's sake, not for `"max"`; the gradient has the same values and is a whole table.
      per_sample_weights: in the shape of `input`, factors of the rows; for `"sum"` only.
      include_last_offset: whether `offsets` is `[B + 1]`, its last the end of the last bag; entries after it are in
        no bag.
      padding_idx: a row that counts in no bag; from -V to V - 1.

    Returns:
      `[B, D]`; inside a graph, NaN for a bag with an index out of range.

    Raises:
      IndexError: outside of `jit`, for an index out of range.
      ValueError: where shapes or options do not fit each other; outside of `jit`, for offsets out of order.
      TypeError: where `input` or `offsets` hold no integers, or the dtypes of the weights differ.
    """
    table = as_table(weight)
    check_floating("weight", table)
    as_word("mode", mode, ("sum", "mean", "max"))
    input = as_indices("input", input)
    check_same_dtype(weight=table, per_sample_weights=per_sample_weights)
    _check_options(input, mode, scale_grad_by_freq, sparse, per_sample_weights)
    padding_idx = as_padding_idx(padding_idx, len(table))
    offsets, count = _as_offsets(input, offsets, include_last_offset)
    check_range("input", input, len(table))
    if max_norm is not None:
        table = renormalised(weight, input, max_norm, norm_type)
    there = jnp.ones(input.shape, bool) if padding_idx is None else input != padding_idx
    rows = rows_at(table, input, None, scale_grad_by_freq)
    bags = None if offsets is None else _bags(offsets, len(input))
    if mode == "max":
        known = (input >= 0) & (input < len(table))
        return _largest(rows, there, known, bags, count)
    wide = rows.astype(jnp.promote_types(rows.dtype, jnp.float32))
    if per_sample_weights is not None:
        wide = wide * per_sample_weights.astype(wide.dtype)[..., None]
    wide = jnp.where(there[..., None], wide, 0)
    total = _total(wide, bags, count)
    if mode == "mean":
        total = total / jnp.maximum(_total(there.astype(wide.dtype), bags, count), 1)[:, None]
    return total.astype(rows.dtype)


class EmbeddingBag(Layer):
    """Sums, means or maxima over bags of rows of a table; zeros for a bag without rows.

    With `max_norm`, calls write into `weight`: inside `jax.jit` and under `jax.grad`, hand the module's state out along
    with the result, as for running statistics.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.EmbeddingBag.html

    Args:
      num_embeddings: number of rows, V.
      embedding_dim: length of each, D.
      max_norm: rows that are looked up and longer are scaled down to it, in `weight` itself.
      norm_type: the p of that norm.
      scale_grad_by_freq: whether the gradient of a row is divided by how often `input` holds it; not for `"max"`.
      mode: `"sum"`, `"mean"` or `"max"`.
      sparse: taken for PyTorch's sake, not for `"max"`; the gradient has the same values and is a whole table.
      _weight: `[V, D]` to begin with, in place of what would be drawn; see `from_pretrained`.
      include_last_offset: whether `offsets` holds the end of the last bag too.
      padding_idx: a row that is zero at first and counts in no bag; negative ones count from the end.
      param_dtype: of `weight`.
      rngs: `params` is drawn from, as PyTorch draws: N(0, 1). Not needed with `_weight`.

    Attributes:
      weight: `[V, D]`, an `nnx.Param`, or a plain `nnx.Variable` where frozen.

    Raises:
      IndexError: outside of `jit`, for an index out of range. Inside of it, the bag's result is NaN.
      ValueError: where a size or `padding_idx` is out of range, or the arguments of a call do not fit each other.

    Example:
      >>> bags = EmbeddingBag(10, 3, mode="sum", rngs=nnx.Rngs(0))
      >>> bags(jnp.asarray([1, 2, 4, 5, 4]), jnp.asarray([0, 3])).shape
      (2, 3)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: Mode = "mean",
        sparse: bool = False,
        _weight: jax.Array | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        *,
        param_dtype: jnp.dtype = jnp.float32,
        rngs: nnx.Rngs | None = None,
    ):
        self.num_embeddings = as_integer("num_embeddings", num_embeddings, least=0)
        self.embedding_dim = as_integer("embedding_dim", embedding_dim, least=0)
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.mode: Mode = as_word("mode", mode, ("sum", "mean", "max"))
        self.sparse = sparse
        self.include_last_offset = include_last_offset
        self.padding_idx = as_padding_idx(padding_idx, num_embeddings)
        value = first_table(num_embeddings, embedding_dim, self.padding_idx, _weight, param_dtype, rngs)
        self.weight: nnx.Variable = nnx.Param(value)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: jax.Array,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: Mode = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """Bags of these rows, in their dtype.

        Args:
          embeddings: `[V, D]`.
          freeze: whether `weight` is a plain `nnx.Variable` and no `nnx.Param`, so that no optimizer moves it.
          max_norm, norm_type, scale_grad_by_freq, mode, sparse, include_last_offset, padding_idx: as the class has
            them; no row is made zero.

        Raises:
          ValueError: where `embeddings` has not 2 axes.
        """
        rows, features = as_table(embeddings).shape
        bags = cls(
            rows,
            features,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            mode,
            sparse,
            embeddings,
            include_last_offset,
            padding_idx,
        )
        if freeze:
            bags.weight = nnx.Variable(bags.weight.get_value())
        return bags

    def __call__(
        self, input: jax.Array, offsets: jax.Array | None = None, per_sample_weights: jax.Array | None = None
    ) -> jax.Array:
        return embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )


def _check_options(input: jax.Array, mode: str, scale_grad_by_freq: bool, sparse: bool, factors: Any) -> None:
    if input.ndim not in (1, 2):
        raise ValueError(f"input has shape {tuple(input.shape)}, and [B, N], or [N] with offsets, was wanted")
    if input.ndim == 2 and input.shape[1] == 0:
        raise ValueError(f"input has shape {tuple(input.shape)}, so bags without entries; give [N] with offsets")
    if mode == "max" and (scale_grad_by_freq or sparse):
        raise ValueError(f"{'scale_grad_by_freq' if scale_grad_by_freq else 'sparse'} is not for mode='max'")
    if factors is None:
        return
    if mode != "sum":
        raise ValueError(f"per_sample_weights is for mode='sum' only, and mode is {mode!r}")
    if factors.shape != input.shape:
        raise ValueError(f"per_sample_weights has shape {tuple(factors.shape)}, and input has {tuple(input.shape)}")


def _as_offsets(input: jax.Array, offsets: Any, include_last_offset: bool) -> tuple[jax.Array | None, int]:
    """The offsets, checked where they are known, and the number of bags."""
    if input.ndim == 2:
        if offsets is not None:
            raise ValueError("offsets is given, and input has 2 axes, each row a bag; give one of shape [N], or None")
        return None, len(input)
    if offsets is None:
        raise ValueError("offsets is None, and input has 1 axis; say where each bag begins")
    offsets = as_indices("offsets", offsets)
    if offsets.ndim != 1:
        raise ValueError(f"offsets has shape {tuple(offsets.shape)}, and [B] was wanted")
    if include_last_offset and not offsets.size:
        raise ValueError("offsets is empty, and with include_last_offset it holds at least the end")
    if not isinstance(offsets, jax.core.Tracer) and offsets.size:
        known = np.asarray(offsets)
        if known[0] != 0 or known[-1] > len(input) or np.any(np.diff(known) < 0):
            raise ValueError(
                f"offsets is {known.tolist() if known.size < 20 else known}; it begins with 0, does not fall, and ends "
                f"at most at the length of input, {len(input)}"
            )
    return offsets, len(offsets) - include_last_offset


def _bags(offsets: jax.Array, length: int) -> jax.Array:
    """Which bag each entry is in, `[N]`: as many as begin at or before it, less one."""
    begins = jnp.zeros(length + 1, jnp.int32).at[offsets].add(1, **DROP)
    return jnp.cumsum(begins)[:length] - 1


def _total(values: jax.Array, bags: jax.Array | None, count: int) -> jax.Array:
    """Sums over each bag, of `[B, N, ...]`, or of `[N, ...]` by its number."""
    if bags is None:
        return jnp.sum(values, 1)
    return jnp.zeros((count, *values.shape[1:]), values.dtype).at[bags].add(values, **DROP)


def _largest(rows: jax.Array, there: jax.Array, known: jax.Array, bags: jax.Array | None, count: int) -> jax.Array:
    """Maxima over each bag: of those that tie the first, and NaN where the first row of a bag has it, as in PyTorch.

    Args:
      rows: `[B, N, D]`, or `[N, D]` with `bags`.
      there: which of them count, `[B, N]` or `[N]`.
      known: whose indices are in range; NaN comes of the others.
      bags: the number of each row's bag, `[N]`.
      count: B.
    """
    if not rows.size or not count:
        return jnp.zeros((count, rows.shape[-1]), rows.dtype)
    length = rows.shape[-2]

    def over_bags(values: jax.Array, kind: Literal["max", "min"]) -> jax.Array:
        if bags is None:
            return getattr(jnp, kind)(values.reshape(count, length, -1), 1)
        least = -jnp.inf if kind == "max" else len(flat)
        start = jnp.full((count, values.shape[-1]), least, values.dtype)
        return getattr(start.at[bags], kind)(values, **DROP)

    def of_bags(values: jax.Array) -> jax.Array:
        return jnp.repeat(values, length, 0) if bags is None else values.at[bags].get(mode="clip")

    flat, there, known = rows.reshape(-1, rows.shape[-1]), there.reshape(-1, 1), known.reshape(-1, 1)
    fixed = jnp.where(there, lax.stop_gradient(flat), -jnp.inf)
    top = over_bags(jnp.where(jnp.isnan(fixed), -jnp.inf, fixed), "max")
    places = jnp.arange(len(flat))[:, None]
    winner = over_bags(jnp.where((fixed == of_bags(top)) & there, places, len(flat)), "min")
    first = over_bags(jnp.where(there, places, len(flat)), "min")
    first_value = fixed.at[first[:, 0]].get(mode="clip")
    winner = jnp.where(jnp.isnan(first_value), first, winner)
    found = jnp.take_along_axis(flat, jnp.minimum(winner, len(flat) - 1), 0)
    unknown = over_bags(jnp.where(known, len(flat), 0), "min") == 0
    return jnp.where(unknown, jnp.nan, jnp.where(winner < len(flat), found, 0))
