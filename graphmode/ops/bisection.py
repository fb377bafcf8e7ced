"""Binary search, as each platform does it best."""

from __future__ import annotations

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax


def bisected(table: jax.Array, x: jax.Array, *, side: Literal["left", "right"] = "left") -> jax.Array:
    """`jnp.searchsorted` in int32: where in the ascending `table`, `[N]`, each element of `x` belongs.

    A loop of log2(N) steps on a CPU. A GPU's host would launch each of them: there they are unrolled into one kernel.
    """
    return lax.platform_dependent(
        table,
        x,
        cpu=partial(_searched, side=side, method="scan"),
        default=partial(_searched, side=side, method="scan_unrolled"),
    )


def _searched(table: jax.Array, x: jax.Array, *, side: str, method: str) -> jax.Array:
    return jnp.searchsorted(table, x, side=side, method=method).astype(jnp.int32)
