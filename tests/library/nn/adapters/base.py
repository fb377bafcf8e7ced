"""What an adapter may change: the way from PyTorch's call of a sample to ours, and our outputs on the way back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp

LAST, FIRST = "channels_last", "channels_first"


def as_given(args: tuple, kwargs: dict, layout: str | None) -> tuple[tuple, dict]:
    return args, kwargs


def as_they_are(outputs: Any, args: tuple, kwargs: dict, layout: str | None) -> Any:
    return outputs


@dataclass(frozen=True)
class Adapter:
    """Differences between a call here and PyTorch's.

    Attributes:
      layouts: values of `data_format` that every sample is judged in; empty where there is no such argument.
      build: `(builder of the torch module, args, kwargs, extras)` -> our layer, for its constructor arguments (tensors
        as jax arrays already) and the `extras` that our constructor takes beyond them (`rngs`, `param_dtype`,
        `data_format`); None for `getattr(graphmode.nn, name)(*args, **kwargs, **extras)`.
      inputs: `(args, kwargs, layout)` -> what our layer or function is called with; traced, so that gradients come
        back in PyTorch's layout by themselves.
      outputs: `(outputs, args, kwargs, layout)` -> our outputs in PyTorch's layout and structure; traced; `args` and
        `kwargs` are PyTorch's.
      given: `(module or None, args, kwargs, outputs)` -> further keyword arguments for our call, from a run of PyTorch:
        the mask of a dropout. All of them torch's; `inputs` moves them with the rest.
      flatten: torch's args and kwargs, or outputs -> the same with every object that is no container as tensors (a
        `PackedSequence`).
      eager: whether to judge operation by operation, for what takes numbers of the host from its arrays.
      scale: `(outputs of the float64 reference, args, kwargs)` by name of a tensor -> size of what enters its last
        reduction, where that is far larger than the tensor.
      skip: reason why a sample is not ours to judge, or None: `(args, kwargs)` -> str | None. It is counted.
    """

    layouts: tuple[str, ...] = ()
    build: Callable[..., Any] | None = None
    inputs: Callable[..., tuple[tuple, dict]] = as_given
    outputs: Callable[..., Any] = as_they_are
    given: Callable[..., Mapping[str, Any]] | None = None
    flatten: Callable[[Any], Any] | None = None
    eager: bool = False
    scale: Callable[..., Mapping[str, float]] | None = None
    skip: Callable[..., str | None] | None = None
    notes: str = field(default="")


PLAIN = Adapter()


def spatial(rank: int, *, arrays: int = 1, outputs: bool = True) -> Adapter:
    """For layers over `rank` spatial axes: the first `arrays` positional arguments and all outputs are images."""

    def moved_in(args, kwargs, layout):
        if layout == LAST:
            args = tuple(to_last(a, rank) if i < arrays else a for i, a in enumerate(args))
        return args, kwargs

    def moved_out(out, args, kwargs, layout):
        if layout != LAST or not outputs:
            return out
        return tuple(to_first(o, rank) for o in out) if isinstance(out, tuple) else to_first(out, rank)

    return Adapter(layouts=(LAST, FIRST), inputs=moved_in, outputs=moved_out)


def to_last(array: Any, rank: int | None) -> Any:
    """From PyTorch's layout; `rank` None for the second axis of any number of them."""
    return jnp.moveaxis(array, 1 if rank is None else -rank - 1, -1)


def to_first(array: Any, rank: int | None) -> Any:
    return jnp.moveaxis(array, -1, 1 if rank is None else -rank - 1)
