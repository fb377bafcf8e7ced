"""The guard before a compiled step: each further shape of batches would be another compilation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.tree_util as jtu

if TYPE_CHECKING:
    from .sharding import Placement


class BatchShapes:
    """Admits batches of at most so many different structures, shapes and dtypes.

    Args:
      most: how many.
      lead: steps per launch; above 1 it is the length of each array's first axis.
      parts: that a batch is cut into.
    """

    def __init__(self, most: int, *, lead: int, parts: int):
        self._most, self._lead, self._parts = most, lead, parts
        self._known: dict[Any, Any] = {}

    def admit(self, batch: Any, placement: Placement | None) -> Any:
        """What `keep` takes once the step has run; raises `ValueError` or `TypeError` for what it should not see."""
        leaves, treedef = jtu.tree_flatten(batch)
        key = (treedef, *((getattr(x, "shape", None), getattr(x, "dtype", None)) for x in leaves))
        if key in self._known:
            return None
        described = arrays_of(batch)
        self._check(described, placement)
        canonical = (treedef, *described.values())
        if canonical not in self._known.values() and len(set(self._known.values())) >= self._most:
            raise ValueError(self._message(described))
        return key, canonical

    def keep(self, admitted: Any) -> None:
        """Counts what `admit` gave: a batch that the model refuses counts for nothing."""
        if admitted is not None:
            key, canonical = admitted
            self._known[key] = canonical

    def _check(self, described: dict[str, tuple[tuple[int, ...], str]], placement: Placement | None) -> None:
        several = self._lead > 1
        sizes: dict[str, int] = {}
        for name, (shape, _) in described.items():
            if len(shape) < 1 + several:
                wanted = "[steps_per_launch, batch, ...]" if several else "[batch, ...]"
                told = f"{name} has shape {list(shape)}, and {wanted} was wanted"
                raise ValueError(f"{told}: give what all rows share once for each row, as np.full(rows, value) does")
            if several and shape[0] != self._lead:
                raise ValueError(f"{name} has shape {list(shape)}, and the first axis is {self._lead} steps per launch")
            sizes[name] = shape[several]
        if not any(sizes.values()):
            raise ValueError("the batch has no rows, and the mean over none is no number; leave it out")
        if self._parts == 1 and placement is None:
            return  # nothing is cut, so that arrays may have axes of their own, as edges beside nodes
        size, *others = set(sizes.values())
        if others:
            raise ValueError(
                f"the batch axis differs: {', '.join(f'{name} has {n}' for name, n in sizes.items())}; what "
                "accumulate and placement cut has as many rows in each array: pad what is ragged"
            )
        if size % self._parts:
            raise ValueError(f"the batch has {size} rows, which accumulate={self._parts} does not divide")
        if placement is not None:
            placement.check_batch(size, self._parts)

    def _message(self, described: dict[str, tuple[tuple[int, ...], str]]) -> str:
        _, *last = list(self._known.values())[-1]
        came = ", ".join(f"{name}: {dtype}{list(shape)}" for name, (shape, dtype) in described.items())
        known = ", ".join(f"{dtype}{list(shape)}" for shape, dtype in last)
        return (
            f"the batch has another shape than before ({came}; it was {known}), which would be another compilation: "
            f"drop or pad the last batch, put ragged ones into buckets, or say shapes={self._most + 1} if it is meant"
        )


def arrays_of(batch: Any) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of each array of a batch, by name.

    Raises:
      TypeError: for anything else in it.
      ValueError: where there is none.
    """
    described = {}
    for path, leaf in jtu.tree_leaves_with_path(batch):
        name = f"batch{jtu.keystr(path)}"
        if not hasattr(leaf, "shape") or type(leaf).__module__.split(".")[0] == "torch":
            raise TypeError(
                f"{name} is a {type(leaf).__name__}, and an array was wanted; take strings out of the batch, and "
                "tensors through gm.training.from_torch"
            )
        if getattr(leaf.dtype, "kind", "") in tuple("OSUMm"):
            raise TypeError(f"{name} is an array of {leaf.dtype}, and numbers were wanted; take it out of the batch")
        dtype = jax.dtypes.canonicalize_dtype(leaf.dtype, allow_extended_dtype=True)
        described[name] = (tuple(leaf.shape), str(dtype))
    if not described:
        raise ValueError("batch holds no arrays")
    return described
