"""`Block`: one fixed-size operation beside what eager PyTorch does and what it can do with static shapes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

SIZES = (1_000, 10_000, 100_000, 1_000_000)


@dataclass(frozen=True)
class Block:
    """What is timed for one operation.

    Attributes:
      name: of the operation, with what sets this use apart.
      make: `(rng, size)` -> arrays, the arguments of the three forms.
      ours: on jax arrays; compiled by the runner.
      eager: on torch tensors, as people write it; a `Padded` of ours is set against it as its valid values.
      static: on torch tensors, the best form whose shapes do not depend on values; None where there is none.
      sizes: numbers of elements, or of boxes.
      bound: on jax arrays, the operation of XLA without which ours cannot be; compiled by the runner.
    """

    name: str
    make: Callable[[np.random.Generator, int], tuple[np.ndarray, ...]]
    ours: Callable[..., Any]
    eager: Callable[..., Any]
    static: Callable[..., Any] | None = None
    sizes: tuple[int, ...] = SIZES
    bound: Callable[..., Any] | None = None
