"""`scan_until`: a scan that can `break`, with the outputs of the steps that it took."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ..arguments import as_rows
from ..masking.padded import Padded
from .branches import as_predicate
from .carried import carried
from .early_exit import early_exit_scan
from .lanes import zeros_of
from .loops import as_steps

C = TypeVar("C")


def scan_until(
    f: Callable[[C, Any], tuple[C, Any, ArrayLike]],
    init: C,
    xs: Any,
    *,
    length: int | None = None,
    keep_last: bool = True,
) -> tuple[C, Padded[Any], jax.Array]:
    """`for x in xs:` with a `break`: carry, outputs of the steps taken, and whether it broke off.

    Steps after the end are not run, and reach no gradient. State, modules, gradients and cost as in `while_loop`.
    `continue` is a `cond` or `jnp.where` inside `f`.

    Args:
      f: `(carry, x) -> (carry, y, stop)`; with `stop`, 0-d bool, the step is the last one. Its carry counts.
      init: the initial carry, a pytree of arrays, NNX modules and variables.
      xs: `[T, ...]`, or a pytree of such, or None with `length`.
      length: the number of steps where `xs` is None.
      keep_last: whether the `y` of the step that stops counts, as where `ys.append(y)` stands before `break`; false
        where it stands after.

    Returns:
      The carry; `Padded` of the `y` of each step, `[T, ...]`, its count the number of steps whose `y` counts;
      and whether a step stopped the loop, 0-d bool (false is where the `else` of Python's `for` runs).

    Raises:
      ValueError: where lengths differ, `stop` is no 0-d bool, or there is no `y`.
      TypeError: where `f` does not return three things, or changes the form of the carry, naming the leaf.

    Example:
      >>> import jax.numpy as jnp
      >>> step = lambda total, x: (total + x, total + x, total + x > 4)
      >>> total, ys, stopped = scan_until(step, 0.0, jnp.array([1.0, 2.0, 3.0, 4.0]))
      >>> float(total), ys.values.tolist(), int(ys.count), bool(stopped)
      (6.0, [1.0, 3.0, 6.0, 0.0], 3, True)

    Stands for a loop with `break` in eager PyTorch: a scripted RNN, decoding until the end token.
    """
    if xs is None:
        if length is None:
            raise ValueError("xs and length are None; give one of them, to say how many steps there can be")
        steps = as_steps(length, "length")
    else:
        xs, steps = as_rows(xs, name="xs")
        if length is not None and length != steps:
            raise ValueError(f"length is {length}, and xs has {steps} rows; leave length out")

    def body(carry: C, x: Any) -> tuple[C, Any]:
        out = f(carry, x)
        if not isinstance(out, tuple) or len(out) != 3:
            raise TypeError(f"f returns {type(out).__name__}, and (carry, y, stop) was wanted")
        carry, y, stop = out
        return carry, (y, as_predicate(stop, "stop"))

    slices = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), xs)
    loop = carried(body, init, "f", slices)
    y_avals = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in loop.extra_avals()[:-1]]
    if not y_avals:
        raise ValueError("f returns no y, and an array, or a pytree of such, was wanted; use while_loop without one")

    def step(read: Any, state: Any, x: Any) -> tuple[list[Any], list[Any], jax.Array]:
        new, (*y, stop) = loop.step(read, state[1:], x)
        if not keep_last:
            y = [jnp.where(stop, zeros_of(aval), one) for one, aval in zip(y, y_avals, strict=True)]
        return [state[0] + 1, *new], y, ~stop

    start = [jnp.int32(0), *loop.state]
    going = jnp.ones((), bool)
    (taken, *state), ys, going = early_exit_scan(step, loop.read, start, going, jax.tree.leaves(xs), steps, y_avals)
    count = taken if keep_last else taken - (~going).astype(jnp.int32)
    y_tree = loop.body.layout.tree.children()[1].children()[0]
    valid = jnp.arange(steps, dtype=jnp.int32) < count
    return loop.settled(state), Padded(jax.tree.unflatten(y_tree, ys), valid, count), ~going
