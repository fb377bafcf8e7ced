"""What all losses share: how they are reduced, what is counted, and in which dtype they are summed."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal, overload

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from ..arguments import Word, as_word
from ..folded_sum import folded_sum
from ..layer import Layer

Reduction = Literal["none", "mean", "sum"]
REDUCTIONS: tuple[Reduction, ...] = ("none", "mean", "sum")


@overload
def as_reduction(reduction: str, size_average: bool | None = None, reduce: bool | None = None) -> Reduction: ...
@overload
def as_reduction(
    reduction: str, size_average: bool | None = None, reduce: bool | None = None, *, also: Sequence[Word]
) -> Reduction | Word: ...
def as_reduction(
    reduction: str, size_average: bool | None = None, reduce: bool | None = None, *, also: Sequence[str] = ()
) -> str:
    """The reduction that the arguments of a loss ask for, the two deprecated ones going before `reduction`.

    Args:
      reduction: none, mean or sum.
      size_average, reduce: PyTorch's deprecated arguments, which count as True where the other one is given.
      also: further words that the loss knows.

    Raises:
      ValueError: for another word.
    """
    if size_average is None and reduce is None:
        if reduction == "elementwise_mean":
            warnings.warn("reduction='elementwise_mean' is deprecated; use reduction='mean'", stacklevel=3)
            return "mean"
        return as_word("reduction", reduction, (*REDUCTIONS, *also))
    average = size_average is None or size_average
    resolved = "none" if reduce is not None and not reduce else "mean" if average else "sum"
    warnings.warn(f"size_average and reduce are deprecated; use reduction={resolved!r}", stacklevel=3)
    return resolved


def in_float32(*arrays: jax.Array) -> tuple[jax.Array, ...]:
    """The arrays, those of half precision in float32: losses are summed in it, as PyTorch sums them."""
    return tuple(a.astype(jnp.float32) if _is_half(a) else a for a in arrays)


def _is_half(array: jax.Array) -> bool:
    return jnp.issubdtype(array.dtype, jnp.floating) and jnp.finfo(array.dtype).bits < 32


def as_mask(mask: Any, shape: tuple[int, ...]) -> jax.Array | None:
    """`mask` as an array that is known to broadcast to the unreduced loss of this shape.

    Raises:
      TypeError: unless it is boolean.
      ValueError: where it does not broadcast.
    """
    if mask is None:
        return None
    mask = jnp.asarray(mask)
    if mask.dtype != jnp.bool_:
        raise TypeError(f"mask is {mask.dtype}; give a boolean array, True where an element counts")
    try:
        fits = jnp.broadcast_shapes(mask.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"mask has shape {mask.shape}; give one that broadcasts to the unreduced loss, {shape}")
    return mask


def where_counted(mask: jax.Array | None, *arrays: jax.Array, trailing: int = 0) -> tuple[jax.Array, ...]:
    """The arrays with a harmless value where they do not count, so that neither value nor gradient comes from there.

    Args:
      mask: of `as_mask`; None leaves the arrays as they are.
      arrays: floating ones and integers (class indices).
      trailing: number of axes that each element of the mask stands for.
    """
    if mask is None:
        return arrays
    wide = mask.reshape(mask.shape + (1,) * trailing)
    return tuple(
        jnp.where(wide, a, jnp.asarray(0.5 if jnp.issubdtype(a.dtype, jnp.floating) else 0, a.dtype)) for a in arrays
    )


def reduced(
    loss: jax.Array,
    reduction: str,
    dtype: Any,
    mask: jax.Array | None = None,
    *,
    weight: jax.Array | None = None,
) -> jax.Array:
    """The loss in its reduction; a mean over nothing is NaN.

    Args:
      loss: unreduced, weighted already.
      reduction: none, mean or sum.
      dtype: of the result.
      mask: of `as_mask`; what is not counted gives 0.
      weight: what a mean is divided by the sum of, instead of the number of elements.
    """
    if mask is not None:
        loss = jnp.where(mask, loss, 0)
    if reduction == "sum":
        loss = loss.sum()
    elif reduction == "mean":
        loss = _mean(loss, mask, weight)
    return loss.astype(dtype)


def reduced_each(
    function: Callable[..., jax.Array],
    arrays: Sequence[jax.Array],
    reduction: str,
    dtype: Any,
    mask: jax.Array | None = None,
    **static: Hashable,
) -> jax.Array:
    """`reduced` of `function(*arrays, **static)`, summed as it is computed.

    Args:
      function: of a few operations and of each element by itself; one of a module, not made anew at every call.
      arrays: of shapes that broadcast.
      reduction, dtype, mask: as of `reduced`; what is not counted does not reach `function`.
      static: hashable arguments of `function`.
    """
    shape = jnp.broadcast_shapes(*(array.shape for array in arrays))
    count = jnp.asarray(math.prod(shape)) if mask is None else jnp.broadcast_to(mask, shape).sum()
    if mask is not None:
        function, arrays, static = _where_counted, (mask, *arrays), {"counted": function, **static}
    if reduction == "none":
        return function(*arrays, **static).astype(dtype)
    total = folded_sum(function, *arrays, **static)
    return (total / count.astype(total.dtype) if reduction == "mean" else total).astype(dtype)


def _where_counted(mask: jax.Array, *arrays: jax.Array, counted: Any, **static: Hashable) -> jax.Array:
    return jnp.where(mask, counted(*where_counted(mask, *arrays), **static), 0)


def _mean(loss: jax.Array, mask: jax.Array | None, weight: jax.Array | None) -> jax.Array:
    if weight is not None:
        return loss.sum() / (weight if mask is None else jnp.where(mask, weight, 0)).sum()
    if mask is not None:
        return loss.sum() / jnp.broadcast_to(mask, loss.shape).sum().astype(loss.dtype)
    return loss.mean()


def broadcast_shape(**arrays: jax.Array) -> tuple[int, ...]:
    """The shape that the arrays have together.

    Raises:
      ValueError: where they do not broadcast.
    """
    try:
        return jnp.broadcast_shapes(*(array.shape for array in arrays.values()))
    except ValueError:
        told = ", ".join(f"{name} has {array.shape}" for name, array in arrays.items())
        raise ValueError(f"shapes do not broadcast: {told}") from None


def is_known(*arrays: Any) -> bool:
    """Whether the values can be looked at: outside of `jax.jit`, `jax.vmap` and the like."""
    return not any(isinstance(array, jax.core.Tracer) for array in arrays)


def as_array(value: Any) -> jax.Array:
    """A variable's value, or an array of numpy's or JAX's."""
    return value[...] if isinstance(value, nnx.Variable) else jnp.asarray(value)


def as_indices(name: str, target: jax.Array) -> jax.Array:
    """Class indices of any integer dtype, signed and at least 32 bits wide.

    Raises:
      TypeError: for another dtype.
    """
    if not jnp.issubdtype(target.dtype, jnp.integer):
        raise TypeError(f"{name} is {target.dtype}, and class indices (int32 or int64) were wanted; cast it")
    return target if target.dtype in (jnp.int32, jnp.int64) else target.astype(jnp.int32)


def check_within(name: str, target: jax.Array, valid: jax.Array, wanted: str) -> None:
    """Raises `ValueError` where values are known and some are not valid."""
    if is_known(target, valid) and not bool(np.all(np.asarray(valid))):
        values = np.broadcast_to(np.asarray(target), np.shape(valid))[~np.asarray(valid)]
        raise ValueError(f"{name} holds {values.flat[0]}, and {wanted} was wanted")


def poisoned(loss: jax.Array, valid: jax.Array) -> jax.Array:
    """The loss, NaN with its gradient where its target was not valid: a graph cannot raise."""
    return loss * jnp.where(valid, 1, jnp.nan).astype(loss.dtype)


class Loss(Layer):
    """A loss that keeps its reduction.

    Attributes:
      reduction: none, mean or sum.
    """

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"):
        self.reduction = as_reduction(reduction, size_average, reduce)


class WeightedLoss(Loss):
    """A loss with a weight that is a buffer of the `state_dict` and no parameter.

    Attributes:
      weight: an `nnx.Variable`, or None.
    """

    def __init__(
        self,
        weight: Any = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ):
        super().__init__(size_average, reduce, reduction)
        self.weight = as_buffer(weight)


def as_buffer(value: Any) -> Any:
    """An `nnx.Variable` that no optimizer takes, or the place of one."""
    return nnx.data(None) if value is None else nnx.Variable(jnp.asarray(value))


def value_of(buffer: nnx.Variable | None) -> jax.Array | None:
    return None if buffer is None else buffer[...]
