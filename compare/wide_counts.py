"""In a run in float64 the optimizer of a port counts in int64.

JAX divides an int32 in float32, in x64 too, and so every schedule of optax that divides its count by a number of steps.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import jax.tree_util as jtu
import optax

NARROW = ("int8", "int16", "int32")


def with_wide_counts(transformation: Any) -> optax.GradientTransformationExtraArgs:
    """The same transformation, whose counts are int64 while it makes a step in x64; between steps they are its own.

    What it casts to float32 itself stays float32.

    Args:
      transformation: with `init` and `update`, as optax has them.
    """

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        usual = transformation.update
        if jnp.result_type(int) != jnp.int64:
            return usual(updates, state, params, **extra)
        try:
            made, after = usual(updates, jtu.tree_map(_wide, state), params, **extra)
            return made, jtu.tree_map(_as_it_was, after, state)
        except (TypeError, ValueError):  # its branches or loops want the dtype that it began with, or it changes shape
            return usual(updates, state, params, **extra)

    return optax.GradientTransformationExtraArgs(transformation.init, update)


def _is_count(x: Any) -> bool:
    return hasattr(x, "dtype") and jnp.ndim(x) == 0 and x.dtype in NARROW


def _wide(x: Any) -> Any:
    return jnp.asarray(x, jnp.int64) if _is_count(x) else x


def _as_it_was(after: Any, before: Any) -> Any:
    return jnp.asarray(after, before.dtype) if _is_count(before) else after
