"""`check`: an error about values, raised by the graph that found them, and `checked`, which raises it as it is."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ..arguments import as_array
from .callback import Told, tell
from .printing import filled, unnamed

P = ParamSpec("P")
R = TypeVar("R")

LANES_NAMED = 8
# JAX hands on the text of what a callback raised, in an exception of its own: the text says which of these it was.
_raised: deque[str] = deque(maxlen=256)


class CheckError(ValueError):
    """A `check` that did not hold; the message says which, with the values that it named."""


def check(ok: ArrayLike, message: str, **values: Any) -> None:
    """Raises an error on the host where `ok` is false: what `assert ok, message` and `raise` are in eager code.

    A check that holds costs a `lax.cond`: no value is copied and no Python runs. No gradient goes through, and no
    output has to be used for it to be made. Which exception comes, and where:

    ==================================  ================================================================================
    outside `jit`                       `CheckError`, a `ValueError`, from `check` itself, also under `grad` and `vmap`
    in a compiled graph                 `jax.errors.JaxRuntimeError` with the same message, from the call on a CPU, from
                                        `block_until_ready` or `jax.effects_barrier()` where calls return early
    in a graph called by `checked`      `CheckError`, from that call, on any device
    under `vmap`                        one error for all lanes, which names those that failed
    in `scan`, `while_loop`             at the first iteration that fails
    in `grad`, `remat`                  as without; a rematerialised check may be made twice
    in a graph on several devices       as without; but where the others wait for the one that failed, as in a sum over
                                        all, they may wait for good (XLA on a CPU ends the process after a minute):
                                        return the predicate as an output there
    in `checkify`                       as without: it is no part of its error tree
    in `jax.export`                     refused there ("host_callbacks"): trace with `no_callbacks`, and return the
                                        predicate, or `Padded.count`, as an output
    ==================================  ================================================================================

    A `vmap` turns `lax.cond` into a select and runs the body of a `while_loop` for finished lanes too, so a check in
    there is made for lanes that do not take part: say so, `check(ok | ~takes_part, ...)`.

    Args:
      ok: bool of any shape; each entry must hold.
      message: with a `{name}` where one of `values` goes, as in `str.format`; those that it does not name follow it.
        Long arrays are shortened.
      values: arrays, numbers, strings or pytrees to be shown in the message.

    Raises:
      CheckError: where `ok` does not hold and is known.
      ValueError: where the message does not fit the values.
      TypeError: where `ok` is not bool.

    Example:
      >>> import graphmode as gm, jax, jax.numpy as jnp
      >>> @gm.checked
      ... @jax.jit
      ... def root(x):
      ...     gm.check(x >= 0, "root of {x}", x=x)
      ...     return jnp.sqrt(x)
      >>> float(root(4.0))
      2.0
      >>> root(-4.0)
      Traceback (most recent call last):
      graphmode.ops.host.checks.CheckError: root of -4.0
    """
    ok = as_array(ok, name="ok")
    if ok.dtype != jnp.bool_:
        raise TypeError(f"ok has dtype {ok.dtype}, and bool was wanted; compare it, as in ok != 0")
    for name in unnamed(message, values, name="message"):
        message += f"; {name} is {{{name}}}"

    def look(lanes: list[Told], sizes: tuple[int, ...]) -> None:
        text = _text(message, lanes, sizes)
        _raised.append(text)
        raise CheckError(text)

    tell(look, ~ok, values)


def checked(fn: Callable[P, R]) -> Callable[P, R]:
    """`fn`, whose failing `check`s raise `CheckError` from the call itself.

    For the outermost function, around `jax.jit` and not inside it. Waits until the graph and its effects are done, so
    that the error belongs to this call and none is left for a later one. In a loop that should run ahead of the
    device, call the jitted function itself, and `jax.effects_barrier()` now and then.

    Args:
      fn: a jitted function, or one that calls jitted ones.

    Returns:
      A function with the arguments and the result of `fn`; `fn` stays at `__wrapped__`.

    Raises:
      CheckError: from the call, where a `check` did not hold. Other errors pass as they are.
    """

    @functools.wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            result = jax.block_until_ready(fn(*args, **kwargs))
            jax.effects_barrier()
        except CheckError:
            raise
        except (jax.errors.JaxRuntimeError, ValueError) as error:
            text = str(error)
            message = next((known for known in reversed(_raised) if known in text), None)
            if message is None or CheckError.__name__ not in text:
                raise
            _forget_failed_effects()
            raise CheckError(message) from None
        return result

    return call


def _forget_failed_effects() -> None:
    """Leaves no token of a failed graph for the next barrier to raise again, where effects are waited for."""
    try:
        jax.effects_barrier()
    except (jax.errors.JaxRuntimeError, ValueError):
        for device in jax.local_devices():
            jax.block_until_ready(_effect_alone(jax.device_put(np.int32(0), device)))
        jax.effects_barrier()


@jax.jit
def _effect_alone(x: jax.Array) -> jax.Array:
    jax.debug.callback(lambda x: None, x)
    return x


def _text(message: str, lanes: list[Told], sizes: tuple[int, ...]) -> str:
    first = lanes[0]
    text = filled(message, (), first.values, short=True)
    if first.where.ndim:
        at = tuple(int(i) for i in np.argwhere(first.where)[0])
        text += f" ({int(first.where.sum())} of {first.where.size} entries do not hold, the first at {list(at)}"
        there = [
            f"{name} is {filled('{}', (array[at],), {}, short=True)}"
            for name, array in first.values.items()
            if isinstance(array, np.ndarray) and array.shape == first.where.shape
        ]
        text += (f", where {' and '.join(there)}" if there else "") + ")"
    if sizes:
        named = ", ".join(str(lane[0] if len(lane) == 1 else lane) for lane, *_ in lanes[:LANES_NAMED])
        more = f" and {len(lanes) - LANES_NAMED} more" if len(lanes) > LANES_NAMED else ""
        of = " x ".join(map(str, sizes))
        whose = "; the values are those of the first" if len(lanes) > 1 and first.values else ""
        text += f" (in lane{'s' if len(lanes) > 1 else ''} {named}{more} of {of} under vmap{whose})"
    return text
