"""Cross-entropy of a linear layer's logits, which chunks keep from ever being there all at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp

from ..arguments import as_integer, as_probability, as_word, check_same_dtype
from ..autocast import autocasts
from ..layout import DataFormat, as_layout
from ..linear.linear import Linear
from .cross_entropy import class_axis, cross_entropy, reduced_rows, unreduced
from .reduction import Reduction, WeightedLoss, as_array, as_mask, as_reduction, value_of

ACCUMULATION = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True, slots=True)
class LinearCrossEntropyOptions:
    """How `linear_cross_entropy` cuts the batch into chunks, so that logits exist for one chunk at a time.

    Gradients compute the chunk's logits again. What PyTorch computes whole with a warning (smoothing, probabilities as
    targets, further axes) is cut here too.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LinearCrossEntropyOptions.html

    Attributes:
      allow_retain_graph: PyTorch's; nothing depends on it here.
      batch_chunk_size: rows in a chunk; None leaves it to `chunking_method`, or takes all.
      chunking_method: `"aspect_ratio"` makes a chunk's logits as large as the whole input, `"aspect_ratio:N"` N times
        smaller; `"auto"` is `"aspect_ratio:2"` where there is no `batch_chunk_size`.
      acc_policy: PyTorch's choice among its kernels; nothing depends on it here.
      acc_dtype: in which the gradients of weight and bias are summed over the chunks; None is float32 for half
        precisions.

    Raises:
      ValueError: for another word, size or dtype.
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: Literal["accurate", "balanced", "compact", "auto"] = "auto"
    acc_dtype: Any = None

    def __post_init__(self) -> None:
        as_word("acc_policy", self.acc_policy, ("auto", "accurate", "balanced", "compact"))
        if self.chunking_method not in (None, "auto"):
            name, colon, factor = str(self.chunking_method).partition(":")
            if name != "aspect_ratio" or (colon and not (factor.isdigit() and int(factor) > 0)):
                raise ValueError(
                    f"chunking_method is {self.chunking_method!r}; choose None, 'auto', 'aspect_ratio' or "
                    "'aspect_ratio:N' with a positive N"
                )
        size = self.batch_chunk_size
        if size is not None and not (isinstance(size, int) and size > 0):
            raise ValueError(f"batch_chunk_size is {size!r}; give a positive integer, or None")
        if self.acc_dtype is not None and jnp.dtype(self.acc_dtype).name not in ACCUMULATION:
            raise ValueError(f"acc_dtype is {self.acc_dtype!r}; choose None, {', '.join(ACCUMULATION)}")

    def rows(self, batch: int, in_features: int, num_classes: int) -> int:
        """Rows in a chunk.

        Raises:
          ValueError: where `batch_chunk_size` and `chunking_method` are both given and differ.
        """
        given, method = self.batch_chunk_size, self.chunking_method
        if method == "auto":
            method = "aspect_ratio:2" if given is None else None
        if method is None:
            return max(1, batch if given is None else min(given, batch))
        factor = int(method.partition(":")[2] or 1)
        target = -(-batch // -(-num_classes // max(in_features, 1)))
        rows = min((1 << (target - 1).bit_length()) // factor, batch) if target > 0 else 0
        if given is not None and given != rows:
            raise ValueError(
                f"batch_chunk_size is {given}, and chunking_method {method!r} gives {rows} rows; give one of the two"
            )
        return max(1, rows)


@autocasts
def linear(
    input: jax.Array, weight: jax.Array, bias: jax.Array | None, precision: jax.lax.PrecisionLike = None
) -> jax.Array:
    """`input @ weight + bias`, the weight's further axes following the batch's."""
    check_same_dtype(input=input, linear_weight=weight, linear_bias=bias)
    logits = jnp.dot(input, weight.reshape(weight.shape[0], math.prod(weight.shape[1:])), precision=precision)
    logits = logits.reshape(input.shape[:-1] + weight.shape[1:])
    return logits if bias is None else logits + bias


def linear_cross_entropy(
    input: jax.Array,
    linear_weight: jax.Array,
    target: jax.Array,
    *,
    linear_bias: jax.Array | None = None,
    weight: jax.Array | None = None,
    reduction: Reduction = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: LinearCrossEntropyOptions | None = None,
    data_format: DataFormat = "channels_last",
    mask: jax.Array | None = None,
    precision: jax.lax.PrecisionLike = None,
) -> jax.Array:
    """`cross_entropy` of `input @ linear_weight + linear_bias`, in chunks where `options` ask for them.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.linear_cross_entropy.html

    Args:
      input: `[in_features]` or `[N, in_features]`.
      linear_weight: `[in_features, C]`, or `[in_features, d1, ..., C]` (`[in_features, C, d1, ...]` where channels are
        first), which needs a batch.
      target: class indices `[]`, `[N]` or `[N, d1, ...]`, or probabilities of the logits' shape.
      linear_bias: of `linear_weight`'s shape without `in_features`.
      weight: of each class, `[C]`.
      reduction: none, mean or sum.
      ignore_index: a class index that does not count; None is -100 for class indices.
      label_smoothing: how much of each target is spread evenly over all classes.
      options: how the batch is cut; None computes all logits at once.
      data_format: where the classes are, in `linear_weight` and in a `target` of probabilities.
      mask: True where a target counts; of a shape that broadcasts to the unreduced loss.
      precision: of the product.

    Raises:
      ValueError: for shapes that do not fit, and as `cross_entropy`.
      TypeError: where dtypes differ, and as `cross_entropy`.
    """
    reduction = as_reduction(reduction)
    smoothing = as_probability("label_smoothing", label_smoothing)
    layout = as_layout(data_format)
    input, linear_weight, target = as_array(input), as_array(linear_weight), as_array(target)
    bias = None if linear_bias is None else as_array(linear_bias)
    if input.ndim not in (1, 2):
        raise ValueError(f"input has shape {input.shape}, and [in_features] or [N, in_features] was wanted")
    if linear_weight.ndim < 2:
        raise ValueError(f"linear_weight has shape {linear_weight.shape}, and [in_features, C] was wanted")
    if input.shape[-1] != linear_weight.shape[0]:
        raise ValueError(
            f"input has shape {input.shape} and linear_weight {linear_weight.shape}; input's last axis and "
            "linear_weight's first are both in_features"
        )
    if bias is not None and bias.shape != linear_weight.shape[1:]:
        raise ValueError(f"linear_bias has shape {bias.shape}, and {linear_weight.shape[1:]} was wanted")
    if linear_weight.ndim > 2 and input.ndim == 1:
        raise ValueError(
            f"input has shape {input.shape}, and [N, in_features] was wanted: linear_weight has shape "
            f"{linear_weight.shape}, and one with further axes needs a batch"
        )
    logits = input.shape[:-1] + linear_weight.shape[1:]
    if target.shape == logits and ignore_index is not None:
        raise ValueError(f"ignore_index is {ignore_index}; leave it out where target is probabilities")
    ignore_index = -100 if ignore_index is None else ignore_index
    if options is None or input.ndim == 1:
        return cross_entropy(
            linear(input, linear_weight, bias, precision),
            target,
            weight,
            ignore_index=ignore_index,
            reduction=reduction,
            label_smoothing=smoothing,
            data_format=layout,
            mask=mask,
        )
    return _in_chunks(
        input, linear_weight, target, bias, weight, reduction, ignore_index, smoothing, options, layout, mask, precision
    )


_as_products = autocasts(lambda *arrays: arrays, name="linear")


def _in_chunks(
    input, linear_weight, target, bias, weight, reduction, ignore_index, smoothing, options, layout, mask, precision
) -> jax.Array:
    dtype = input.dtype
    input, linear_weight, bias = _as_products(input, linear_weight, bias)
    check_same_dtype(input=input, linear_weight=linear_weight, linear_bias=bias)
    batch, taken = input.shape[0], input.dtype
    shape = (batch, *linear_weight.shape[1:])
    weight = None if weight is None else as_array(weight)
    axis = class_axis(jax.ShapeDtypeStruct(shape, dtype), weight, layout)  # type: ignore[arg-type]
    kept = shape[:axis] + shape[axis + 1 :]
    if target.shape[:1] != (batch,):
        raise ValueError(f"target has shape {target.shape}, and a first axis of {batch} was wanted, as input's")
    mask = as_mask(mask, kept)
    result = jnp.result_type(dtype, target) if target.shape == shape else dtype
    size = options.rows(batch, input.shape[1], shape[axis])
    summed = options.acc_dtype or (jnp.float32 if jnp.finfo(taken).bits < 32 else taken)
    # Gradients of what the loop closes over are summed in its dtype.
    wide_weight, wide_bias = jax.tree.map(lambda a: a.astype(summed), (linear_weight, bias))

    def rows(chunk: tuple[jax.Array, jax.Array, jax.Array | None]) -> jax.Array:
        inputs, targets, counted = chunk
        narrow_weight, narrow_bias = jax.tree.map(lambda a: a.astype(taken), (wide_weight, wide_bias))
        logits = linear(inputs, narrow_weight, narrow_bias, precision=precision)
        return unreduced(logits, targets, weight, ignore_index, smoothing, axis, counted)

    def cut(array: jax.Array) -> jax.Array:
        count = -(-batch // size)
        padded = jnp.pad(array, [(0, count * size - batch)] + [(0, 0)] * (array.ndim - 1))
        return padded.reshape(count, size, *array.shape[1:])

    whole = None if mask is None else jnp.broadcast_to(mask, kept)
    chunks = jax.lax.map(jax.checkpoint(rows), jax.tree.map(cut, (input, target, whole)))
    loss = chunks.reshape(-1, *kept[1:])[:batch]
    return reduced_rows(loss, shape, target, weight, ignore_index, reduction, result, axis, mask)


class LinearCrossEntropyLoss(WeightedLoss):
    """A linear layer and the cross-entropy of its logits, in chunks where `options` ask for them.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LinearCrossEntropyLoss.html

    Args:
      in_features: length of the last axis of `input`.
      num_classes: C.
      out_features: `(d1, ...)`, further axes of the logits.
      bias: whether the linear layer has one.
      reduction: none, mean or sum.
      weight: of each class, `[C]`.
      ignore_index: a class index that does not count; None is -100 for class indices.
      label_smoothing: how much of each target is spread evenly over all classes.
      options: how the batch is cut; None computes all logits at once.
      data_format: where the classes of a `target` of probabilities are: last (`[N, d1, ..., C]`), or first
        (`[N, C, d1, ...]`). The unreduced loss is `[N, d1, ...]` in both.
      param_dtype: of the linear layer's parameters.
      precision: of the product.
      rngs: `params` is drawn from, as `Linear` draws.

    Attributes:
      linear: a `Linear` of `C * d1 * ...` outputs, the classes slowest as in PyTorch.

    Raises:
      ValueError: where an argument is out of range, or `weight` has another shape; called, as
        `functional.linear_cross_entropy`.

    Example:
      >>> loss = LinearCrossEntropyLoss(3, 5, rngs=nnx.Rngs(0))
      >>> round(float(loss(jnp.zeros((2, 3)), jnp.array([0, 4]))), 4)
      1.6094
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        reduction: Reduction = "mean",
        weight: jax.Array | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: LinearCrossEntropyOptions | None = None,
        data_format: DataFormat = "channels_last",
        param_dtype: jnp.dtype = jnp.float32,
        precision: jax.lax.PrecisionLike = None,
        rngs: Any,
    ):
        super().__init__(weight, reduction=reduction)
        self.num_classes = as_integer("num_classes", num_classes, least=1)
        if weight is not None and jnp.shape(weight) != (num_classes,):
            raise ValueError(f"weight has shape {jnp.shape(weight)}, and {(num_classes,)} was wanted, one a class")
        self.out_features = tuple(as_integer("out_features", size, least=1) for size in out_features)
        self.ignore_index = ignore_index
        self.label_smoothing = as_probability("label_smoothing", label_smoothing)
        self.options = options
        self.data_format = as_layout(data_format)
        self.precision = precision
        outputs = math.prod(self.out_features, start=num_classes)
        self.linear = Linear(in_features, outputs, bias=bias, param_dtype=param_dtype, rngs=rngs)

    def __call__(self, input: jax.Array, target: jax.Array, *, mask: jax.Array | None = None) -> jax.Array:
        shape = (self.num_classes, *self.out_features)
        weight = self.linear.weight[...].reshape(-1, *shape)
        bias = None if self.linear.bias is None else self.linear.bias[...].reshape(shape)
        if self.data_format == "channels_last":
            weight = jnp.moveaxis(weight, 1, -1)
            bias = None if bias is None else jnp.moveaxis(bias, 0, -1)
        return linear_cross_entropy(
            input,
            weight,
            target,
            linear_bias=bias,
            weight=value_of(self.weight),
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
            data_format=self.data_format,
            mask=mask,
            precision=self.precision,
        )
