"""Arithmetic that rounds where eager arithmetic rounds, whatever the compiler would rather do.

XLA and its backends contract `a * b + c` to one operation that rounds once, and divide by a constant by multiplying
with its rounded reciprocal, so that 21 / 7 exceeds 3. Either is within a unit in the last place, which is enough to
move an IoU over a threshold or the `ceil` of a size. `lax.reduce_precision` at full precision and
`lax.optimization_barrier` stop neither (jaxlib 0.10.2, CPU); what is unknown until the graph runs does: the sign of a
product, or whether a number is NaN.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


@jax.custom_jvp
def rounded(product: jax.Array) -> jax.Array:
    """`product` itself, kept from being contracted with an addition.

    Args:
      product: any shape, real. Integers are given back as they are.

    Returns:
      The same values; a zero is positive.
    """
    if not jnp.issubdtype(product.dtype, jnp.floating):
        return product
    size = jnp.abs(product)
    return jnp.where(product < 0, -size, size)


@rounded.defjvp
def _rounded_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    return rounded(*primals), tangents[0]


def divided(x: jax.Array, divisor: jax.Array | float) -> jax.Array:
    """`x / divisor`, correctly rounded for constant divisors too. Not meant to be differentiated.

    Args:
      x: any shape, floating-point.
      divisor: of a shape that broadcasts.

    Returns:
      The quotient in the dtype of `x`.
    """
    # Not by the sign, as above: that of `maximum(x, 1)` is known, and then the divisor is a constant again.
    return x / jnp.where(jnp.isnan(x), x, jnp.asarray(divisor, x.dtype))
