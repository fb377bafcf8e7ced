"""`torch.matmul`, `bmm`, `baddbmm` and `einsum`, which follow `autocast`; `@` and `jnp`'s do not."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..arguments import check_same_dtype
from ..autocast import autocasts


@autocasts
def matmul(input: jax.Array, other: jax.Array, *, precision: jax.lax.PrecisionLike = None) -> jax.Array:
    """The product of matrices, vectors or batches of matrices that broadcast.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.matmul.html

    Args:
      input: `[n]` or `[..., n, m]`.
      other: `[m]` or `[..., m, p]`.
      precision: of the product.

    Raises:
      ValueError: where the shapes do not fit, or one is a number.
      TypeError: where the dtypes differ.
    """
    check_same_dtype(input=input, other=other)
    for name, array in (("input", input), ("other", other)):
        if array.ndim == 0:
            raise ValueError(f"{name} has no axes, and a vector or matrices were wanted; multiply with *")
    shapes = f"input has shape {tuple(input.shape)} and other {tuple(other.shape)}"
    if input.shape[-1] != other.shape[-2 if other.ndim > 1 else 0]:
        raise ValueError(f"{shapes}; the last axis of input must be as long as the one of other that it meets")
    try:
        jnp.broadcast_shapes(input.shape[:-2], other.shape[:-2])
    except ValueError:
        raise ValueError(f"{shapes}; the axes before the matrices do not broadcast") from None
    return jnp.matmul(input, other, precision=precision)


@autocasts
def bmm(input: jax.Array, mat2: jax.Array, *, precision: jax.lax.PrecisionLike = None) -> jax.Array:
    """`input[b] @ mat2[b]` for each `b`; nothing broadcasts.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.bmm.html

    Args:
      input: `[B, n, m]`.
      mat2: `[B, m, p]`.
      precision: of the product.

    Raises:
      ValueError: where the shapes do not fit.
      TypeError: where the dtypes differ.
    """
    check_same_dtype(input=input, mat2=mat2)
    _check_batches(input=input, mat2=mat2)
    return jnp.matmul(input, mat2, precision=precision)


@autocasts
def baddbmm(
    input: jax.Array,
    batch1: jax.Array,
    batch2: jax.Array,
    *,
    beta: float = 1,
    alpha: float = 1,
    precision: jax.lax.PrecisionLike = None,
) -> jax.Array:
    """`beta * input + alpha * (batch1 @ batch2)`; where `beta` is 0, `input` and its NaNs are left out.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.baddbmm.html

    Args:
      input: broadcasts to `[B, n, p]`.
      batch1: `[B, n, m]`.
      batch2: `[B, m, p]`.
      beta, alpha: Python numbers; integers where the arrays are.
      precision: of the product.

    Raises:
      ValueError: where the shapes do not fit.
      TypeError: where the dtypes differ, or a fraction scales integers.
    """
    check_same_dtype(input=input, batch1=batch1, batch2=batch2)
    _check_batches(batch1=batch1, batch2=batch2)
    shape = (batch1.shape[0], batch1.shape[1], batch2.shape[2])
    if jnp.issubdtype(input.dtype, jnp.integer):
        for name, number in (("beta", beta), ("alpha", alpha)):
            if not isinstance(number, int):
                raise TypeError(f"{name} is {number!r} and the arrays are {input.dtype}; give an integer")
    try:
        input = jnp.broadcast_to(input, shape)
    except ValueError:
        raise ValueError(f"input has shape {tuple(input.shape)}, which does not broadcast to {shape}") from None
    product = jnp.matmul(batch1, batch2, precision=precision)
    product = product if alpha == 1 else alpha * product
    if beta == 0:
        return product
    return (input if beta == 1 else beta * input) + product


def einsum(equation: str, *operands: Any, precision: jax.lax.PrecisionLike = None) -> jax.Array:
    """The sum of products that `equation` tells.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.einsum.html

    Args:
      equation: such as `"bij,bjk->bik"`; upper case, spaces, `...` and repeated letters as in PyTorch.
      operands: arrays, or one list of them. PyTorch's other form, arrays and lists of axes by turns, is not taken.
      precision: of the products.

    Raises:
      ValueError: where the equation or the shapes do not fit.
      TypeError: where the dtypes differ, or `equation` is no string.
    """
    if not isinstance(equation, str):
        raise TypeError(f"equation is {type(equation).__name__}; give a string such as 'ij,jk->ik'")
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = tuple(operands[0])
    if not operands:
        raise ValueError("operands is empty; give at least one array")
    return (_sum_of_products if _contracts(equation) else _product)(equation, *operands, precision=precision)


def _sum(equation: str, *operands: jax.Array, precision: jax.lax.PrecisionLike) -> jax.Array:
    check_same_dtype(**{f"operands[{i}]": operand for i, operand in enumerate(operands)})
    return jnp.einsum(equation, *operands, precision=precision)


# PyTorch's rules for a CPU are those of the products inside: an elementwise one, and one array alone, have none.
_sum_of_products = autocasts(_sum, name="einsum")
_product = autocasts(_sum, name="einsum without products")


def _contracts(equation: str) -> bool:
    """Whether the operands share an axis that is summed over."""
    inputs, _, output = equation.replace(" ", "").partition("->")
    terms = [set(term) for term in inputs.split(",")]
    shared = {label for label in inputs if label.isalpha() and sum(label in term for term in terms) > 1}
    return bool(shared - set(output))


def _check_batches(**pair: jax.Array) -> None:
    (one, first), (two, second) = pair.items()
    for name, array in pair.items():
        if array.ndim != 3:
            raise ValueError(f"{name} has shape {tuple(array.shape)}, and 3 axes were wanted; matmul takes any")
    if first.shape[0] != second.shape[0] or first.shape[2] != second.shape[1]:
        raise ValueError(
            f"{one} has shape {tuple(first.shape)} and {two} {tuple(second.shape)}, and [B, n, m] and [B, m, p] were "
            "wanted"
        )
