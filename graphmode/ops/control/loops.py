"""`while_loop` and `fori`: loops whose number of steps is a value, differentiable, and honest about being cut short."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import linear_call
from jax.typing import ArrayLike

from .branches import as_predicate
from .carried import Carried, carried
from .early_exit import early_exit_scan
from .nnx_operands import Traced, described, trace

T = TypeVar("T")


def while_loop(
    cond: Callable[[T], ArrayLike], body: Callable[[T], T], init: T, *, max_steps: int | None = None
) -> tuple[T, jax.Array]:
    """`while cond(state): state = body(state)`, at most `max_steps` times, with gradients.

    The state is a pytree of arrays, NNX modules and variables; `body` may change modules in the state in place, and
    read those that it closes over. Gradients of both modes reach the initial state, modules and what is closed over,
    and are those of the steps taken: nothing that would come after the end can make them NaN, under `vmap` either,
    where a lane that is done is frozen and has its own flag. Reverse mode keeps about `32 * log32(max_steps)` states
    and what the body needs for one step, and runs the body once more for each factor of 32 in `max_steps`.
    Without differentiation it is a `lax.while_loop`: a large `max_steps` costs nothing.

    A body with a `jax.custom_vjp` in it (recurrent layers, grouped convolutions, `roi_align`, `ctc_loss`, hooks,
    `opaque`) has reverse mode alone. Under `vmap` that wants the loop right inside the `vmap`: where it stands in a
    `jit`, `checkpoint`, `cond` or other loop that is mapped, JAX raises a `TypeError`.

    Args:
      cond: of the state, gives a 0-d bool, and changes nothing.
      body: of the state, gives the next one, of the same structure, shapes and dtypes.
      init: the initial state; Python numbers take the dtype that the body gives them.
      max_steps: the most steps, a static integer; None for no bound, and no reverse mode.

    Returns:
      The final state, with modules of `init` themselves in it, and `cut_short`, 0-d bool: whether `cond` still holds,
      so that `max_steps` ended the loop.

    Raises:
      ValueError: where `cond` gives no 0-d bool, or max_steps is negative; in reverse mode without max_steps.
      TypeError: where the body changes the form of the state, naming the leaf; where max_steps is traced or no integer.

    Example:
      >>> import jax
      >>> halved = lambda x: while_loop(lambda x: x > 1, lambda x: x / 2, x, max_steps=10)
      >>> x, cut_short = halved(12.0)
      >>> float(x), bool(cut_short), float(jax.grad(lambda x: halved(x)[0])(12.0))
      (0.75, False, 0.0625)

    Stands for `while t > eps:` in eager PyTorch, trained through; checkpoints as in Griewank and Walther, 2000.
    """
    steps = None if max_steps is None else as_steps(max_steps)
    loop = carried(lambda state: (body(state), ()), init, "body")
    test = trace(lambda state: cond(state), loop.given, "cond")
    _check_condition(test, loop)

    def holds(read: Any, state: Any) -> jax.Array:
        consts = len(loop.read)
        return test(read[consts:], *loop.whole(read[:consts], state))[0]

    def step(read: Any, state: Any, x: Any) -> tuple[list[Any], list[Any], jax.Array]:
        new, _ = loop.step(read[: len(loop.read)], state)
        return new, [], holds(read, new)

    read = [*loop.read, *test.consts]
    if steps is None:
        final = _unbounded(holds, lambda state: step(read, state, ())[0], read, loop.state)
        return loop.settled(final), jnp.zeros((), bool)
    final, _, going = early_exit_scan(step, read, loop.state, holds(read, loop.state), (), steps, ())
    return loop.settled(final), going


def fori(
    lower: ArrayLike, upper: ArrayLike, body: Callable[[Any, T], T], init: T, *, max_steps: int | None = None
) -> tuple[T, jax.Array]:
    """`for i in range(lower, upper): state = body(i, state)` with bounds that are values, and gradients.

    As `while_loop` in all else.

    Args:
      lower, upper: 0-d integers; no step where `upper <= lower`.
      body: of the index, 0-d int32, and the state; gives the next state.
      init: the initial state.
      max_steps: the most steps, a static integer; None where both bounds are Python integers, or for no bound and no
        reverse mode.

    Returns:
      The final state, and `cut_short`, 0-d bool: whether `max_steps` ended the loop before `upper`.

    Raises:
      ValueError: where a bound is no 0-d integer; as `while_loop`.
      TypeError: as `while_loop`.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> power = lambda x, n: fori(0, n, lambda i, y: y * x, 1.0, max_steps=8)[0]
      >>> float(power(2.0, jnp.int32(3))), float(jax.grad(power)(2.0, jnp.int32(3)))
      (8.0, 12.0)

    Stands for `for i in range(int(n)):` in eager PyTorch.
    """
    if max_steps is None and not isinstance(lower, jax.Array) and not isinstance(upper, jax.Array):
        known = [np.asarray(bound) for bound in (lower, upper)]
        if all(bound.dtype.kind in "iu" and not bound.shape for bound in known):
            max_steps = max(0, int(known[1]) - int(known[0]))
    bounds = [_as_bound(bound, name) for bound, name in ((lower, "lower"), (upper, "upper"))]
    first, end = bounds

    def one(state: tuple[jax.Array, T]) -> tuple[jax.Array, T]:
        i, inner = state
        return i + 1, body(i, inner)

    (_, final), cut_short = while_loop(lambda state: state[0] < end, one, (first, init), max_steps=max_steps)
    return final, cut_short


def as_steps(max_steps: int, name: str = "max_steps") -> int:
    """A static number of steps, none allowed."""
    if isinstance(max_steps, jax.core.Tracer):
        raise TypeError(
            f"{name} is traced ({max_steps.aval.str_short()}), and a Python integer was wanted: it sets the size of "
            f"what a gradient keeps; give an upper bound, or mark the argument with static_argnames"
        )
    try:
        steps = operator.index(max_steps)
    except TypeError:
        steps = None
    if steps is None or isinstance(max_steps, bool | np.bool_):
        raise TypeError(f"{name} is {max_steps!r}, and an integer was wanted, the most steps that there can be")
    if not 0 <= steps < 2**31 - 1:
        raise ValueError(f"{name} is {steps}; give an integer from 0 to {2**31 - 2}, the most steps that there can be")
    return steps


def _as_bound(bound: ArrayLike, name: str) -> jax.Array:
    array = jnp.asarray(bound)
    if array.shape or not jnp.issubdtype(array.dtype, jnp.integer):
        raise ValueError(
            f"{name} is {described(array)}, and one integer was wanted; cast it as int(t) does, with .astype(jnp.int32)"
        )
    return array.astype(jnp.int32)


def _check_condition(test: Traced, loop: Carried) -> None:
    if test.layout.kinds != ("array",):
        raise ValueError(f"cond returns {test.layout.tree}, and a 0-d bool was wanted")
    as_predicate(jax.ShapeDtypeStruct(test.avals[0].shape, test.avals[0].dtype), "what cond returns")
    plain = loop.given.layout.kinds.count("array")
    if not all(test.passes(1 + i, plain + i) for i in range(len(loop.given.arrays) - plain)):
        raise TypeError("cond changes a module; change it in body")


def _unbounded(holds: Any, step: Any, read: Any, state: Any) -> list[Any]:
    final = lax.while_loop(lambda state: holds(read, state), lambda state: step(state), state)
    return [_forward_only(x) for x in final]


@jax.custom_jvp
def _forward_only(x: jax.Array) -> jax.Array:
    return x


@_forward_only.defjvp
def _forward_only_jvp(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    def refuse(_: Any, cotangent: Any) -> Any:
        raise ValueError("a loop without a bound has no gradient in reverse mode; give max_steps")

    return _forward_only(*primals), linear_call(lambda _, t: t, refuse, (), tangents[0])
