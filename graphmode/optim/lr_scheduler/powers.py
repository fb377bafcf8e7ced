"""gamma**n for a traced n, to a few units in the last place whatever n is."""

from __future__ import annotations

from types import ModuleType

import jax.numpy as jnp
import numpy as np

from .schedule import Count, Real, as_scalar


def power(xp: ModuleType, gamma: float, n: Count) -> Real:
    """gamma**n, `n` an integer of at least 0.

    exp(n * log(gamma)) in float32 is off by n * log(gamma) units, and gamma itself, rounded to float32, by n / 2. Here
    the powers gamma**(digit * 256**place) are made on the host in float64, rounded once each, and those of
    the digits that are not 0 are multiplied: 3.5 units for 31 bits, 1.5 where n < 65536.
    """
    if xp is np:
        return float(np.power(np.float64(gamma), n))
    count, result = jnp.asarray(n), as_scalar(1.0)
    for place in range(count.dtype.itemsize):
        with np.errstate(all="ignore"):
            table = np.power(np.float64(gamma), np.arange(256, dtype=np.float64) * 256.0**place)
            table = table.astype(jnp.result_type(float))
        digit = (count >> (8 * place)) & 255
        result = result * jnp.asarray(table)[digit]  # a digit of 0 is a factor of 1
    return result
