"""`Padded`: a collection of fixed capacity that carries its mask and the count that it should have held."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from .arguments import OnOverflow, as_on_overflow, as_row_mask, as_rows
from .checks import check

T = TypeVar("T")


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True)
class Padded(Generic[T]):
    """Up to `capacity` entries, at a size that does not depend on their number.

    A pytree: it goes through `jit`, `vmap` (each leaf with a leading axis then), `scan`, `grad` and `jax.export`.

    Attributes:
      values: `[capacity, ...]`, or a pytree of such; what stands where `valid` is false means nothing.
      valid: `[capacity]` bool, true where an entry is.
      count: 0-d int32, how many entries there were to hold. More than `valid` marks if some found no room.

    Raises:
      ValueError: where values, valid and count do not fit together in shape or dtype.
    """

    values: T
    valid: jax.Array
    count: jax.Array

    def __post_init__(self) -> None:
        values, rows = as_rows(self.values, name="values")
        shape = np.shape(jax.tree.leaves(values)[0])
        valid = as_row_mask(self.valid, rows, of="values", shape=shape, name="valid")
        count = jnp.asarray(self.count)
        if count.shape or not jnp.issubdtype(count.dtype, jnp.integer):
            raise ValueError(f"count is {count.dtype}{list(count.shape)}, and one integer was wanted")
        for name, value in (("values", values), ("valid", valid), ("count", count)):
            object.__setattr__(self, name, value)

    @property
    def capacity(self) -> int:
        """The most entries that there is room for."""
        return self.valid.shape[-1]

    @property
    def overflow(self) -> jax.Array:
        """0-d bool: whether entries were lost for want of room, here or in what this was made from."""
        return self.count > jnp.sum(self.valid, axis=-1, dtype=self.count.dtype)

    def tree_flatten_with_keys(self) -> tuple[tuple[tuple[Any, Any], ...], None]:
        fields = ("values", "valid", "count")
        return tuple((jax.tree_util.GetAttrKey(name), getattr(self, name)) for name in fields), None

    @classmethod
    def tree_unflatten(cls, _: None, children: tuple[Any, ...]) -> Padded[Any]:
        # Leaves may be anything while JAX transforms a tree, so nothing is checked here.
        self = object.__new__(cls)
        for name, child in zip(("values", "valid", "count"), children, strict=True):
            object.__setattr__(self, name, child)
        return self


def settled(padded: Padded[T], on_overflow: OnOverflow, operation: str) -> Padded[T]:
    """`padded` with the overflow policy applied; `operation` names the culprit in the error."""
    as_on_overflow(on_overflow, *(leaf.dtype for leaf in jax.tree.leaves(padded.values)))
    if on_overflow == "raise":
        check(
            ~padded.overflow,
            operation + " found {count} entries, and its capacity is {capacity}; give a larger capacity",
            count=padded.count,
            capacity=padded.capacity,
        )
    if on_overflow == "nan":
        spoilt = jax.tree.map(lambda leaf: jnp.where(padded.overflow, jnp.nan, leaf).astype(leaf.dtype), padded.values)
        return Padded(spoilt, padded.valid, padded.count)
    return padded


def opened(x: ArrayLike | Padded[Any], *, name: str = "x") -> tuple[jax.Array, jax.Array | None, jax.Array | None]:
    """An array as it is, with None; or a `Padded`'s values, where they are valid, and how many found no room there."""
    if not isinstance(x, Padded):
        return jnp.asarray(x), None, None
    if not isinstance(x.values, jax.Array):
        raise TypeError(f"{name} is a Padded of {type(x.values).__name__}, and a Padded of one array was wanted")
    return x.values, x.valid, x.count - jnp.sum(x.valid, dtype=x.count.dtype)
