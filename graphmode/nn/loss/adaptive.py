"""Adaptive softmax: rare classes in clusters of their own, with smaller projections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from ..layer import Layer
from ..linear.linear import Linear
from .reduction import as_array, as_indices, check_within, in_float32, poisoned


class AdaptiveLogSoftmaxOutput(NamedTuple):
    """What `AdaptiveLogSoftmaxWithLoss` gives.

    Attributes:
      output: log-probability of each target, `[N]` or `[]`.
      loss: the mean of their negatives.
    """

    output: jax.Array
    loss: jax.Array


class AdaptiveLogSoftmaxWithLoss(Layer):
    """Log-probabilities over many classes: frequent ones in a head, the rest in clusters that the head chooses from.

    Every cluster is computed for every row: which rows need which is not known while a graph is built. It saves
    parameters, as in PyTorch, but not the products of rows that no cluster needs.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AdaptiveLogSoftmaxWithLoss.html

    Args:
      in_features: length of the last axis of `input`.
      n_classes: number of classes, the most frequent first.
      cutoffs: where clusters begin: rising integers from 1 to n_classes - 1.
      div_value: by which each cluster's projection is smaller than the one before.
      head_bias: whether the head has a bias.
      param_dtype: of the parameters.
      precision: of the products.
      rngs: `params` is drawn from, as `Linear` draws.

    Attributes:
      head: a `Linear` of the frequent classes, then one output a cluster.
      tail: for each cluster two `Linear`s without bias, down to its projection and up to its classes.

    Raises:
      ValueError: for cutoffs that do not fit; called, for shapes that do not fit, or (outside a graph, where it gives
        NaN) a target out of range.

    Example:
      >>> softmax = AdaptiveLogSoftmaxWithLoss(4, 10, [3, 6], rngs=nnx.Rngs(0))
      >>> output, loss = softmax(jnp.zeros((2, 4)), jnp.array([0, 9]))
      >>> softmax.log_prob(jnp.zeros((2, 4))).shape
      (2, 10)
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        *,
        param_dtype: jnp.dtype = jnp.float32,
        precision: jax.lax.PrecisionLike = None,
        rngs: nnx.Rngs,
    ):
        given = list(cutoffs)
        rising = all(a < b for a, b in zip([0, *given], [*given, n_classes], strict=True))
        if not given or not rising or any(int(c) != c for c in given):
            raise ValueError(
                f"cutoffs is {given} and n_classes {n_classes}; give at least one integer, each above the one before, "
                "from 1 to n_classes - 1"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = (*(int(c) for c in given), n_classes)
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.precision = precision

        def linear(inputs: int, outputs: int, bias: bool = False) -> Linear:
            return Linear(inputs, outputs, bias=bias, precision=precision, param_dtype=param_dtype, rngs=rngs)

        self.head = linear(in_features, self.head_size, head_bias)
        clusters = []
        for i in range(self.n_clusters):
            projected = int(in_features // div_value ** (i + 1))
            size = self.cutoffs[i + 1] - self.cutoffs[i]
            clusters.append(nnx.List([linear(in_features, projected), linear(projected, size)]))
        self.tail = nnx.List(clusters)

    def __call__(self, input: jax.Array, target: jax.Array) -> AdaptiveLogSoftmaxOutput:
        input, target = as_array(input), as_indices("target", as_array(target))
        if target.ndim > 1 or input.ndim != target.ndim + 1 or input.shape[:-1] != target.shape:
            raise ValueError(
                f"input has shape {input.shape} and target {target.shape}; [N, in_features] and [N], or [in_features] "
                "and [] were wanted"
            )
        valid = (target >= 0) & (target < self.n_classes)
        check_within("target", target, valid, f"a class from 0 to {self.n_classes - 1}")
        head = self._head(input)
        output = _at(head, jnp.clip(target, 0, self.shortlist_size - 1))
        for i, (low, high) in enumerate(self._ranges()):
            cluster = self._cluster(i, input)
            inside = _at(cluster, jnp.clip(target - low, 0, high - low - 1)) + head[..., self.shortlist_size + i]
            output = jnp.where(target >= low, inside, output)
        output = poisoned(output, valid)
        return AdaptiveLogSoftmaxOutput(output.astype(input.dtype), (-output).mean().astype(input.dtype))

    def log_prob(self, input: jax.Array) -> jax.Array:
        """Log-probabilities of all classes: `[N, in_features]` gives `[N, n_classes]`."""
        return self._all(input)[1].astype(input.dtype)

    def predict(self, input: jax.Array) -> jax.Array:
        """The likeliest class: `[N, in_features]` gives `[N]`."""
        head, every = self._all(input)
        best = head.argmax(-1)
        return jnp.where(best < self.shortlist_size, best, every.argmax(-1))

    def _all(self, input: jax.Array) -> tuple[jax.Array, jax.Array]:
        if input.ndim != 2:
            raise ValueError(f"input has shape {input.shape}, and [N, in_features] was wanted")
        head = self._head(input)
        clusters = [self._cluster(i, input) + head[:, self.shortlist_size + i, None] for i in range(self.n_clusters)]
        return head, jnp.concatenate([head[:, : self.shortlist_size], *clusters], -1)

    def _ranges(self) -> list[tuple[int, int]]:
        return list(zip(self.cutoffs[:-1], self.cutoffs[1:], strict=True))

    def _head(self, input: jax.Array) -> jax.Array:
        (logits,) = in_float32(self.head(input))
        return jax.nn.log_softmax(logits)

    def _cluster(self, i: int, input: jax.Array) -> jax.Array:
        down, up = self.tail[i]
        (logits,) = in_float32(up(down(input)))
        return jax.nn.log_softmax(logits)


def _at(log_probs: jax.Array, index: jax.Array) -> jax.Array:
    return jnp.take_along_axis(log_probs, index[..., None], -1)[..., 0]
