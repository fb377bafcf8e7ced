"""`Padded`: a collection of fixed capacity that carries its mask and the count that it should have held.

Its methods compute what eager PyTorch computes of the dynamic `x[mask]`; each works along the first axis, on every
array where the values are a pytree, and keeps what stands in the padding out of values and gradients.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ..arguments import OnOverflow, as_array, as_capacity, as_on_overflow, as_ordered, as_row_mask, as_rows
from ..host.checks import check
from . import masked
from .padded_host import described, listed
from .scattered import check_alike, places, scattered
from .valid_rows import (
    along_rows,
    filled,
    joined_rows,
    mapped_in_chunks,
    mapped_in_sizes,
    mapped_rows,
    sorted_columns,
    sorting_slots,
)

T = TypeVar("T")
U = TypeVar("U")


def _of_one_collection(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that refuses a `Padded` with leading axes, which `jax.vmap` leaves behind."""

    @functools.wraps(method)
    def checked(self: Padded[Any], *args: Any, **kwargs: Any) -> Any:
        if np.ndim(self.valid) != 1:
            name = method.__name__
            raise ValueError(
                f"this Padded is a batch of them: valid has shape {np.shape(self.valid)}, and {name} is of one, with "
                f"valid [capacity]; map it, as in jax.vmap(lambda padded: padded.{name}(...))(batch)"
            )
        return method(self, *args, **kwargs)

    return checked


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True, repr=False)
class Padded(Generic[T]):
    """Up to `capacity` entries, at a size that does not depend on their number.

    A pytree: it goes through `jit`, `vmap` (each leaf with a leading axis then), `scan`, `grad` and `jax.export`.

    Attributes:
      values: `[capacity, ...]`, or a pytree of such; what stands where `valid` is false means nothing.
      valid: `[capacity]` bool, true where an entry is.
      count: 0-d int32, how many entries there were to hold. More than `valid` marks if some found no room.

    Raises:
      ValueError: where values, valid and count do not fit together in shape or dtype.

    Example:
      >>> import jax.numpy as jnp
      >>> scores = Padded(jnp.array([3.0, 5.0, 0.0]), jnp.array([True, True, False]), jnp.array(2))
      >>> scores.mean().item(), scores.map(jnp.log).max().item() == jnp.log(5.0).item()
      (4.0, True)
    """

    values: T
    valid: jax.Array
    count: jax.Array

    def __post_init__(self) -> None:
        values, rows = as_rows(self.values, name="values")
        shape = np.shape(jax.tree.leaves(values)[0])
        valid = as_row_mask(self.valid, rows, of="values", shape=shape, name="valid")
        count = as_array(self.count, name="count")
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

    @_of_one_collection
    def sum(self) -> T:
        """`x[mask].sum(0)`: 0 where nothing is valid; integers and bool in the default integer. See `masked_sum`."""
        return self._reduced(masked.masked_sum)

    @_of_one_collection
    def mean(self) -> T:
        """`x[mask].mean(0)` over the entries held: NaN where there is none; integers refused. See `masked_mean`."""
        return self._reduced(masked.masked_mean)

    @_of_one_collection
    def var(self, *, correction: float = 1) -> T:
        """`x[mask].var(0, correction=correction)`: NaN for too few, with a gradient of 0. See `masked_var`."""
        return self._reduced(masked.masked_var, correction=correction)

    @_of_one_collection
    def max(self, *, empty: float | None = None) -> T:
        """`x[mask].amax(0)`: NaN where there is one; `empty`, or `-inf`, where nothing is valid. See `masked_max`."""
        return self._reduced(masked.masked_max, empty=empty)

    @_of_one_collection
    def min(self, *, empty: float | None = None) -> T:
        """`x[mask].amin(0)`: NaN where there is one; `empty`, or `inf`, where nothing is valid. See `masked_min`."""
        return self._reduced(masked.masked_min, empty=empty)

    @_of_one_collection
    def argmax(self) -> T:
        """`x[mask].argmax(0)`, int32: the slot in `values`, of equals the first, NaN the largest; `capacity` for none.

        The slot is PyTorch's index wherever valid entries stand at the front, as `compact` leaves them.
        """
        return self._reduced(masked.masked_argmax)

    @_of_one_collection
    def softmax(self) -> Padded[T]:
        """`x[mask].softmax(0)`; 0 in the padding. See `masked_softmax`."""
        return Padded(self._reduced(masked.masked_softmax), self.valid, self.count)

    @_of_one_collection
    def sort(self, *, by: ArrayLike | None = None, descending: bool = False, fill_value: float = 0) -> Padded[T]:
        """`x[mask].sort(dim=0, stable=True, descending=...).values`: in order, NaN as the greatest, at the front.

        Args:
          by: `[capacity]`, real, keys by which whole rows are ordered; without it each column is sorted for itself, as
            PyTorch does.
          descending: largest first; equal entries keep their order either way.
          fill_value: stands in the rows beyond the entries.

        Example:
          >>> import jax.numpy as jnp
          >>> boxes = Padded({"id": jnp.arange(3), "score": jnp.array([.2, .9, .5])}, jnp.array([1, 1, 0], bool), 2)
          >>> boxes.sort(by=boxes.values["score"], descending=True).values["id"].tolist()
          [1, 0, 0]
        """
        if by is None:
            ordered = jax.tree.map(
                lambda leaf: sorted_columns(as_ordered(leaf, "sort"), self.valid, descending), self.values
            )
        else:
            slots = sorting_slots(self._keys(by), self.valid, descending)
            ordered = jax.tree.map(lambda leaf: leaf[slots], self.values)
        front = self._front()
        return Padded(filled(ordered, front, fill_value), front, self.count)

    @_of_one_collection
    def argsort(self, *, by: ArrayLike | None = None, descending: bool = False) -> Padded[T]:
        """`x[mask].sort(dim=0, stable=True).indices`, int32 slots in `values`; `capacity`, out of range, for none."""
        keys = self.values if by is None else self._keys(by)
        slots = jax.tree.map(lambda leaf: sorting_slots(as_ordered(leaf, "sort"), self.valid, descending), keys)
        front = self._front()
        return Padded(filled(slots, front, self.capacity), front, self.count)

    @_of_one_collection
    def map(
        self,
        fn: Callable[[Any], U],
        *,
        batched: bool = False,
        fill_value: float = 0,
        chunk: int | None = None,
        sizes: Sequence[int] | None = None,
    ) -> Padded[U]:
        """`torch.stack([fn(row) for row in x[mask]])`: `fn` of each valid row, all at once.

        It is given one row, under `jax.vmap`; or with `batched` as many as there are at once, `[n, ...]`, as a network
        wants them that takes a batch, which it must treat one by one.

        With `chunk`, so many at a time, in a loop that ends with the last valid row: the time follows how many entries
        there are, and no longer how many there is room for. Give it where `fn` is costly and the capacity is seldom
        filled. A loop's steps wait for each other, so let one keep the device busy. Under `vmap` a lane waits for the
        fullest one: flatten the batch into the first axis instead.

        With `sizes`, all at once again, but as many as the first of these sizes that holds them: a graph for each size
        in one, of which one runs. Give a few where `fn` is slow on few rows at a time, such as a recurrent network, and
        where there are gradients, which a loop computes twice for. Each size is compiled. Under `vmap` all of them run.

        `fn` never sees padding, so that no NaN made from it reaches the gradient of weights that `fn` closes over:
        copies of a valid row stand in for it, and where nothing is valid `fn` does not run. It may close over NNX
        modules, which it must not change.

        Args:
          fn: takes a row, without the first axis (a pytree where values are one), or with `batched` rows; gives an
            array, or a pytree of such.
          batched: whether `fn` takes and gives rows instead of one of them.
          fill_value: stands in the padding of the result.
          chunk: how many rows `fn` is given at a time, at least 1; None for all.
          sizes: growing numbers of rows; the capacity comes after them, in place of those above it. Not with `chunk`.

        Raises:
          ValueError: where chunk is not positive, sizes do not grow from at least 1, or both are given; where `fn`,
            batched, gives another number of rows than it took.

        Example:
          >>> import jax, jax.numpy as jnp
          >>> x = Padded(jnp.array([4.0, 0.0]), jnp.array([True, False]), 1)
          >>> jax.grad(lambda w: x.map(lambda v: jnp.sqrt(v * w)).sum())(1.0).item()
          1.0
        """
        every = _of_each(fn) if batched else jax.vmap(fn)
        if chunk is not None and sizes is not None:
            raise ValueError(f"chunk is {chunk} and sizes are {sizes}; give one of the two")
        if chunk is not None and as_capacity(chunk, name="chunk") < self.capacity:
            mapped = mapped_in_chunks(every, self.values, self.valid, fill_value, chunk)
        elif smaller := self._smaller(() if sizes is None else sizes):
            mapped = mapped_in_sizes(every, self.values, self.valid, fill_value, smaller)
        else:
            mapped = mapped_rows(every, self.values, self.valid, fill_value)
        return Padded(mapped, self.valid, self.count)

    def _smaller(self, sizes: Sequence[int]) -> list[int]:
        """Those below the capacity."""
        whole = [as_capacity(size, name=f"sizes[{i}]") for i, size in enumerate(sizes)]
        if not all(a < b for a, b in itertools.pairwise(whole)):
            raise ValueError(f"sizes are {whole}; give growing ones")
        return [size for size in whole if size < self.capacity]

    @_of_one_collection
    def compact(
        self,
        mask: ArrayLike,
        *,
        capacity: int | None = None,
        fill_value: float = 0,
        on_overflow: OnOverflow = "flag",
    ) -> Padded[T]:
        """The valid rows where `mask` holds too, in their order: `x[mask][further]`.

        Args:
          mask: `[capacity]`, bool.
          capacity: of the result; without it, as here.
          fill_value: stands in the rows beyond the count.
          on_overflow: as for `compact`.

        Returns:
          `Padded`. Rows that were lost before count as if the mask had picked them, so that overflow stays seen; the
          count is an upper bound then.
        """
        from ..selection.compact import compact

        mask = as_row_mask(mask, self.capacity, of="values", shape=self.valid.shape)
        lost = jnp.maximum(self.count - jnp.sum(self.valid, dtype=self.count.dtype), 0)
        capacity = max(self.capacity, 1) if capacity is None else capacity
        picked = compact(self.values, self.valid & mask, capacity=capacity, fill_value=fill_value)
        counted = Padded(picked.values, picked.valid, _total(picked.count, lost))
        return settled(counted, on_overflow, "compact")

    @_of_one_collection
    def concat(
        self,
        *others: Padded[T],
        capacity: int | None = None,
        fill_value: float = 0,
        on_overflow: OnOverflow = "flag",
    ) -> Padded[T]:
        """`torch.cat([x[mask], y[other], ...])`: the valid rows of all, in order.

        Args:
          others: of the same structure and trailing shapes; dtypes are promoted.
          capacity: of the result; without it, the sum of the capacities.
          fill_value: stands in the rows beyond the count.
          on_overflow: as for `compact`.

        Returns:
          `Padded`, its count the sum of the counts, so that rows lost before are still counted.
        """
        parts = (self, *others)
        for i, other in enumerate(others):
            self._check_fits(other, f"others[{i}]")
        total = functools.reduce(_total, (part.count for part in parts))
        room = max(sum(part.capacity for part in parts), 1) if capacity is None else as_capacity(capacity)

        def joined(*leaves: jax.Array) -> jax.Array:
            return joined_rows([(leaf, part.valid) for leaf, part in zip(leaves, parts, strict=True)], room, fill_value)

        held = sum(jnp.sum(part.valid, dtype=jnp.int32) for part in parts)
        values = jax.tree.map(joined, *(part.values for part in parts))
        valid = jnp.arange(room, dtype=jnp.int32) < held
        return settled(Padded(values, valid, total), on_overflow, "concat")

    @_of_one_collection
    def scatter(self, where: ArrayLike | Padded[Any], into: T, *, strict: bool = False) -> T:
        """Back to the dense form: `x[mask] = rows`, or `x[indices] = rows`, with the valid rows.

        `compact(x, mask, capacity=n).map(f).scatter(mask, into=x)` replaces `x[mask] = f(x[mask])`. Rows of `into` for
        which there is none, as those lost to overflow, stay as they were.

        Args:
          where: `[N]` bool, whose k-th true entry takes the k-th valid row; or `[capacity]` integer, the place of each
            row, where equal places leave open which row wins, as in PyTorch. Or a `Padded` of such indices.
          into: `[N, ...]`, structure, trailing shapes and dtypes as the values have them.
          strict: raises `ValueError` once the graph has run where `where` marks other than `count` rows, or a valid row
            has no place. Without it, a row that has no place is left out, -1 and other negative indices included.

        Returns:
          `[N, ...]` in the dtype of `into`.

        Raises:
          ValueError: where shapes, dtypes or structures do not fit.

        Example:
          >>> import jax.numpy as jnp
          >>> x = Padded(jnp.array([7, 8, 0]), jnp.array([True, True, False]), 2)
          >>> x.scatter(jnp.array([False, True, False, True]), into=jnp.zeros(4, int)).tolist()
          [0, 7, 0, 8]
        """
        if isinstance(where, Padded):
            where = places(where.values, where.valid)
        return scattered(self.values, self.valid, self.count, where, into, strict)

    @_of_one_collection
    def to_list(self) -> list[Any]:
        """`x[mask].tolist()`, on the host: one Python number, or nested list, for each valid row.

        Returns:
          A list as long as the count; where values are a pytree, of pytrees.

        Raises:
          ValueError: where entries were lost, rather than giving a list cut short; `values[valid]` are those held.
          TypeError: while a graph is traced, where nothing has a value yet.
        """
        return listed(self.values, self.valid, self.count)

    def __repr__(self) -> str:
        return described(self.values, self.valid, self.count)

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

    def _reduced(self, reduce: Callable[..., jax.Array], **options: Any) -> Any:
        return jax.tree.map(lambda leaf: reduce(leaf, along_rows(self.valid, leaf), 0, **options), self.values)

    def _front(self) -> jax.Array:
        held = jnp.sum(self.valid, dtype=jnp.int32)
        return jnp.arange(self.capacity, dtype=jnp.int32) < held

    def _keys(self, by: ArrayLike) -> jax.Array:
        keys = as_ordered(by, "sort", name="by")
        if keys.shape != self.valid.shape:
            raise ValueError(f"by has shape {keys.shape}, and {self.valid.shape} was wanted, one key for each row")
        return keys

    def _check_fits(self, other: Any, name: str) -> None:
        if not isinstance(other, Padded):
            raise TypeError(f"{name} is a {type(other).__name__}, and a Padded was wanted")
        if np.ndim(other.valid) != 1:
            raise ValueError(
                f"{name} is a batch of Padded, valid has shape {other.valid.shape}; map concat by jax.vmap"
            )
        check_alike(self.values, other.values, name)


jax.export.register_pytree_node_serialization(
    Padded,
    serialized_name="graphmode.Padded",
    serialize_auxdata=lambda _: b"",
    deserialize_auxdata=lambda _: None,
)


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
        return as_array(x, name=name), None, None
    if not isinstance(x.values, jax.Array):
        raise TypeError(f"{name} is a Padded of {type(x.values).__name__}, and a Padded of one array was wanted")
    return x.values, x.valid, x.count - jnp.sum(x.valid, dtype=x.count.dtype)


def _total(count: jax.Array, more: jax.Array) -> jax.Array:
    """The sum of two counts; at the largest integer it stays, since wrapping around would hide an overflow."""
    total = count + more
    return jnp.where(total < count, jnp.iinfo(total.dtype).max, total)


def _of_each(fn: Callable[[Any], U]) -> Callable[[Any], U]:
    """`fn` of rows, which has to give as many."""

    def checked(rows: Any) -> U:
        wanted = len(jax.tree.leaves(rows)[0])
        given = fn(rows)
        for leaf in jax.tree.leaves(given):
            if jnp.shape(leaf)[:1] != (wanted,):
                raise ValueError(f"fn gives shape {jnp.shape(leaf)} for {wanted} rows; give one for each row")
        return given

    return checked
