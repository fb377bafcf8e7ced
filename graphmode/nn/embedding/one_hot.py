"""`torch.nn.functional.one_hot`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ..arguments import as_integer
from .lookup import as_indices


def one_hot(input: jax.Array, num_classes: int = -1) -> jax.Array:
    """1 at the class and 0 elsewhere, on a new last axis.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.one_hot.html

    Args:
      input: `[...]`, integers from 0 to `num_classes - 1`.
      num_classes: length of the new axis; -1 for the largest class and one, which must be known: not in a graph.

    Returns:
      `[..., num_classes]`, int64 (int32 without x64); inside a graph, zeros for a class out of range.

    Raises:
      ValueError: outside of `jit`, for a class out of range; for -1 where `input` is empty or traced.
      TypeError: where `input` holds no integers.
    """
    input = as_indices("input", input)
    num_classes = as_integer("num_classes", num_classes, least=-1)
    traced = isinstance(input, jax.core.Tracer)
    if num_classes == -1 and traced:
        raise ValueError("num_classes is -1, and the classes are not known in a graph; give their number")
    if num_classes <= 0 and not input.size:
        raise ValueError(f"num_classes is {num_classes} and input is empty; give the number of classes")
    if not traced and input.size:
        known = np.asarray(input)
        if known.min() < 0:
            raise ValueError(f"input holds the class {known.min()}, and classes begin with 0")
        if num_classes == -1:
            num_classes = int(known.max()) + 1
        if known.max() >= num_classes:
            raise ValueError(f"input holds the class {known.max()}, and num_classes is {num_classes}")
    return (input[..., None] == jnp.arange(num_classes, dtype=input.dtype)).astype(
        jax.dtypes.canonicalize_dtype("int64")
    )
