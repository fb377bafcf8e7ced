"""`fixed_point`: where an iteration comes to rest, with the gradient of the resting point and not of the way there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from ...extremes import largest
from .loops import while_loop
from .nnx_operands import described

T = TypeVar("T")


def fixed_point(f: Callable[[T], T], x0: T, *, tol: float = 1e-6, max_steps: int) -> tuple[T, jax.Array]:
    """The `x` with `x = f(x)`, by iteration from `x0`, with implicit gradients in constant memory.

    The gradient with respect to what `f` closes over (arrays, NNX parameters) follows from the equation at the
    solution: it does not depend on the number of steps, nor on `x0`, whose gradient is zero. It is itself found by
    iteration, `u = v + J^T u`, which converges where `f` contracts, to the same `tol` and within as many steps.

    Args:
      f: of a pytree of floating arrays, gives one of the same structure, shapes and dtypes.
      x0: where to start.
      tol: the iteration ends where no entry moves by more than this.
      max_steps: the most steps, a static integer.

    Returns:
      The solution, and `cut_short`, 0-d bool: whether `max_steps` ended the iteration before `tol` was reached, or the
      last step was not finite. The gradient is NaN where the iteration that finds it does not converge.

    Raises:
      TypeError: where `f` changes the form of `x`, or a leaf of `x0` is not floating.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> root = lambda a: fixed_point(lambda x: (x + a / x) / 2, jnp.float32(1), max_steps=50)[0]
      >>> round(float(root(9.0)), 4), round(float(jax.grad(root)(9.0)), 4)
      (3.0, 0.1667)

    Stands for `while (f(x) - x).abs().max() > tol: x = f(x)` with a custom backward; `jax.lax.custom_root`;
    https://implicit-layers-tutorial.org.
    """
    x0 = jax.tree.map(jnp.asarray, x0)
    for path, leaf in jax.tree_util.tree_leaves_with_path(x0):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise TypeError(f"x0{jax.tree_util.keystr(path)} is {leaf.dtype}, and a floating dtype was wanted")

    wanted, given = (jax.tree.map(described, avals) for avals in (x0, jax.eval_shape(f, x0)))
    if given != wanted:
        raise TypeError(
            f"f gives {given} for an x0 of {wanted}; a fixed point has the structure, shapes and dtypes of x0"
        )

    def solve(_: Callable[[T], T], start: T) -> tuple[T, jax.Array]:
        found, cut_short = _settle(f, start, tol, max_steps)
        # custom_root takes floating results alone.
        return found, cut_short.astype(jnp.float32)

    def tangent_solve(linear: Callable[[T], T], right: T) -> T:
        # linear(u) = J u - u; the root u of linear(u) = right solves u = J u - right
        def iterate(matvec: Callable[[T], T], b: T) -> T:
            found, cut_short = _settle(
                lambda u: jax.tree.map(lambda m, u, b: m + u - b, matvec(u), u, b), b, tol, max_steps
            )
            return jax.tree.map(lambda leaf: jnp.where(cut_short, jnp.nan, leaf).astype(leaf.dtype), found)

        return lax.custom_linear_solve(linear, right, iterate, iterate)

    def residual(x: T) -> T:
        return jax.tree.map(jnp.subtract, f(x), x)

    found, cut_short = lax.custom_root(residual, lax.stop_gradient(x0), solve, tangent_solve, has_aux=True)
    return found, cut_short > 0


def _settle(f: Callable[[T], T], start: T, tol: float, max_steps: int) -> tuple[T, jax.Array]:
    def moved(state: tuple[T, T]) -> jax.Array:
        new, old = state
        gaps = [largest(jnp.abs(a - b), initial=0) for a, b in zip(*map(jax.tree.leaves, (new, old)), strict=True)]
        # A gap that is NaN counts as one that will not close.
        return ~jnp.all(jnp.stack([gap <= tol for gap in gaps]))

    first = f(start)
    (new, old), cut_short = while_loop(
        lambda state: moved(state) & _finite(state[0]),
        lambda state: (f(state[0]), state[0]),
        (first, start),
        max_steps=max(0, max_steps - 1),
    )
    return new, cut_short | moved((new, old))


def _finite(tree: Any) -> jax.Array:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))
