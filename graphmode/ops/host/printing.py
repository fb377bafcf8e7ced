"""`debug_print`: printing from a graph, for those lanes alone that ask for it."""

from __future__ import annotations

import string
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from .callback import Told, tell


def debug_print(fmt: str, *args: Any, when: ArrayLike = True, ordered: bool = False, **kwargs: Any) -> None:
    """Prints `fmt.format(*args, **kwargs)` from the graph, where `when` holds: `if when: print(...)` in eager code.

    `jax.debug.print` under a `lax.cond` does the same until it is `vmap`ped: the cond becomes a select, and all lanes
    print. Here the predicate goes along: a line for each lane where it holds, in the order of the lanes. Where it holds
    for none, the graph does not call the host. Inside the branch of a `cond`, give the branch's predicate as `when`.

    Args:
      fmt: as in `str.format`.
      args: arrays, numbers, strings or pytrees; arrays print as numpy's, 0-d ones as numbers do.
      when: 0-d bool.
      ordered: lines of all ordered prints come in program order; without, lines of different prints may come in
        another. Needs a single device.
      kwargs: as `args`, by name.

    Raises:
      ValueError: where `fmt` does not fit the arguments, or `when` is no 0-d array.
      TypeError: where `when` is not bool.

    Example:
      >>> import graphmode as gm, jax, jax.numpy as jnp
      >>> def step(total, i):
      ...     total = total + i
      ...     gm.debug_print("step {i}: {total}", i=i, total=total, when=i % 2 == 1)
      ...     return total, None
      >>> total, _ = jax.jit(lambda: jax.lax.scan(step, 0, jnp.arange(4)))()
      step 1: 1
      step 3: 6
    """
    when = jnp.asarray(when)
    if when.dtype != jnp.bool_:
        raise TypeError(f"when has dtype {when.dtype}, and bool was wanted; compare it, as in when != 0")
    if when.ndim:
        raise ValueError(
            f"when has shape {when.shape}, and one bool was wanted; reduce it with .any(), or use jax.vmap"
        )
    for key in unnamed(fmt, kwargs, *args, name="fmt"):
        raise ValueError(f"fmt {fmt!r} does not show {key}, which was given; add {{{key}}}, or leave the value out")

    def show(lanes: list[Told], sizes: tuple[int, ...]) -> None:
        for _, _, (args, kwargs) in lanes:
            print(filled(fmt, args, kwargs))

    tell(show, when, (args, kwargs), ordered=ordered)


def unnamed(fmt: str, values: dict[str, Any], *args: Any, name: str) -> list[str]:
    """Keys of `values` that the format string does not show.

    Tried on zeros of the values' shapes, since the host would say too late what does not fit.
    """
    if not isinstance(fmt, str):
        raise TypeError(f"{name} is {fmt!r}, and a format string was wanted")
    try:
        filled(fmt, *jax.tree.map(_zeros_like, (args, values)), short=True)
        shown = {str(field).split(".")[0].split("[")[0] for _, field, _, _ in string.Formatter().parse(fmt)}
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        given = [*[f"{len(args)} by position"][: len(args)], *values]
        raise ValueError(
            f"{name} {fmt!r} does not fit the values given ({', '.join(given) or 'none'}): {type(error).__name__} "
            f"{error}; give a value for every {{field}}, double literal braces, and format arrays without a spec"
        ) from None
    return [key for key in values if key not in shown]


def filled(fmt: str, args: tuple[Any, ...], kwargs: dict[str, Any], *, short: bool = False) -> str:
    """`fmt` with arrays as numpy shows them, 0-d ones as numbers; `short` for long arrays."""
    args, kwargs = jax.tree.map(_number, (args, kwargs))
    with np.printoptions(threshold=12 if short else 1000, edgeitems=3):
        return fmt.format(*args, **kwargs)


def _zeros_like(leaf: Any) -> Any:
    if isinstance(leaf, jax.Array | np.ndarray | np.generic):
        key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return np.zeros((), np.uint32) if key else np.broadcast_to(np.zeros((), leaf.dtype), np.shape(leaf))
    return leaf


def _number(leaf: Any) -> Any:
    """A 0-d array as a number that takes a format spec; those of ml_dtypes take none."""
    if isinstance(leaf, np.ndarray | np.generic) and np.ndim(leaf) == 0:
        number = np.asarray(leaf)[()]
        return number if number.dtype.kind in "biufc" and type(number).__module__ == "numpy" else float(number)
    return leaf
