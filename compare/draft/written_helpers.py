"""Functions that a draft has a copy of, where it needs them."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx


def taking(kind: Any, rngs: nnx.Rngs) -> Any:
    """What makes a module, given `rngs` where it takes them."""
    makes = kind
    while isinstance(makes, partial):
        makes = makes.func
    is_class = isinstance(makes, type)
    parameters = inspect.signature(makes.__init__ if is_class else makes).parameters
    return partial(kind, rngs=rngs) if "rngs" in parameters else kind


def named_children(module: nnx.Module) -> list[tuple[str, nnx.Module]]:
    """The modules that a module holds, by name, in the order they came in."""
    return [(name, each) for name, each in vars(module).items() if isinstance(each, nnx.Module)]


def children(module: nnx.Module) -> list[nnx.Module]:
    """The modules that a module holds, in the order they came in."""
    return [each for each in vars(module).values() if isinstance(each, nnx.Module)]


def scatter(x: jax.Array, dim: int, index: jax.Array, source: jax.Array | float) -> jax.Array:
    """`x` with the source's elements, or a number, where `index` says along one axis."""
    places = list(jnp.indices(index.shape, sparse=True))
    places[dim] = index
    values = jnp.broadcast_to(source, index.shape) if jnp.ndim(source) == 0 else jnp.asarray(source)
    return x.at[tuple(places)].set(values[tuple(map(slice, index.shape))])


def scatter_add(x: jax.Array, dim: int, index: jax.Array, source: jax.Array) -> jax.Array:
    """`x` plus the source's elements where `index` says along one axis; what comes to one place is added up."""
    places = list(jnp.indices(index.shape, sparse=True))
    places[dim] = index
    return x.at[tuple(places)].add(source[tuple(map(slice, index.shape))])


def index_add(x: jax.Array, dim: int, index: jax.Array, source: jax.Array) -> jax.Array:
    """`x` plus the source's slices at these places of one axis; what comes to one place is added up."""
    return x.at[(slice(None),) * (dim % x.ndim) + (index,)].add(source)


def index_copy(x: jax.Array, dim: int, index: jax.Array, source: jax.Array) -> jax.Array:
    """`x` with the source's slices at these places of one axis."""
    return x.at[(slice(None),) * (dim % x.ndim) + (index,)].set(source)


def unfold(x: jax.Array, dim: int, size: int, step: int) -> jax.Array:
    """`x.unfold(dim, size, step)`: the windows of one axis in its place, and what is in each in a last axis."""
    dim %= x.ndim
    starts = jnp.arange(0, x.shape[dim] - size + 1, step)
    return jnp.moveaxis(jnp.take(x, starts[:, None] + jnp.arange(size), axis=dim), dim + 1, -1)
