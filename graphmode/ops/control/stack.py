"""`Stack`: a last-in, first-out store of fixed capacity, for recursion whose depth is a value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ..arguments import as_capacity
from ..exporting import exportable
from ..indices import DROP
from .branches import as_predicate

T = TypeVar("T")


@exportable
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Stack(Generic[T]):
    """Up to `capacity` entries; a pytree, to be carried by `while_loop`.

    Recursion becomes a loop that pops a task, and pushes those that the recursive call would have made.

    Attributes:
      values: `[capacity, ...]`, or a pytree of such.
      size: 0-d int32, how many entries there are.
      overflow: 0-d bool, whether an entry was ever lost for want of room.
      underflow: 0-d bool, whether an empty stack was ever popped.

    Example:
      >>> import jax.numpy as jnp
      >>> from graphmode.ops import while_loop
      >>> def leaves(n):  # leaves(n) = 1 if n < 2 else leaves(n - 1) + leaves(n - 2)
      ...     def body(state):
      ...         stack, total = state
      ...         stack, n = stack.pop()
      ...         stack = stack.push(n - 2, when=n >= 2).push(n - 1, when=n >= 2)
      ...         return stack, total + (n < 2)
      ...     start = Stack.empty(n, capacity=16).push(n), jnp.int32(0)
      ...     (stack, total), cut_short = while_loop(lambda state: state[0].size > 0, body, start, max_steps=1000)
      ...     return total, stack.overflow | cut_short
      >>> total, incomplete = leaves(jnp.int32(10))
      >>> int(total), bool(incomplete)
      (89, False)

    Stands for a Python function that calls itself by the values that it sees.
    """

    values: T
    size: jax.Array
    overflow: jax.Array
    underflow: jax.Array

    @classmethod
    def empty(cls, like: T, *, capacity: int) -> Stack[T]:
        """No entries, with room for `capacity` of the shapes and dtypes of `like`."""
        capacity = as_capacity(capacity)
        values = jax.tree.map(lambda x: jnp.zeros((capacity, *jnp.shape(x)), jnp.result_type(x)), like)
        return cls(values, jnp.int32(0), jnp.zeros((), bool), jnp.zeros((), bool))

    @property
    def capacity(self) -> int:
        return jax.tree.leaves(self.values)[0].shape[0]

    def push(self, value: T, *, when: ArrayLike = True) -> Stack[T]:
        """With `value` on top where `when`, 0-d bool, holds; without room it is lost, and `overflow` says so."""
        when = as_predicate(when, "when")
        place = jnp.where(when, self.size, self.capacity)

        def put(room: jax.Array, new: ArrayLike) -> jax.Array:
            new = jnp.asarray(new)
            if new.shape != room.shape[1:]:
                raise ValueError(f"value has shape {new.shape}, and the entries of this stack have {room.shape[1:]}")
            return room.at[place].set(new.astype(room.dtype), **DROP)

        fits = when & (self.size < self.capacity)
        values = jax.tree.map(put, self.values, value)
        return replace(self, values=values, size=self.size + fits, overflow=self.overflow | (when & ~fits))

    def pop(self) -> tuple[Stack[T], T]:
        """Without the top entry, and that entry: zeros where there is none, and `underflow` says so."""
        some = self.size > 0
        top: Any = jax.tree.map(
            lambda room: room.at[jnp.where(some, self.size - 1, self.capacity)].get(mode="fill", fill_value=0),
            self.values,
        )
        return replace(self, size=self.size - some, underflow=self.underflow | ~some), top
