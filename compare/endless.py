"""A `while_loop` of the port that does not end: it is broken off after very many turns, and a check says where it is.

XLA cannot be interrupted: without this a port whose condition never turns false would keep a check waiting for ever.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from .errors import OURS, is_of_a_library

MOST_TURNS = 1_000_000
MOST_STEPS = 20_000  # operation by operation

# of one thread, and a part of every key that a traced function is kept under
_IS_BROKEN_OFF = jax.make_user_context(False)
_told: list[str] = []


class EndlessLoop(RuntimeError):
    """A loop that was broken off."""

    def __init__(self, where: str, turns: int):
        super().__init__(
            f"the while_loop at {where} has not ended after {turns:,} turns, and was broken off: see that its body "
            "changes what its condition looks at, and that the condition turns false in this dtype"
        )


@contextlib.contextmanager
def broken_off() -> Iterator[None]:
    """Loops that are traced in it, or run operation by operation, end after very many turns; not in other threads."""
    _install()
    with _IS_BROKEN_OFF(True):
        yield


@contextlib.contextmanager
def no_endless_loop() -> Iterator[None]:
    """For the run of what was traced so.

    Raises:
      EndlessLoop: at its end, where a loop was broken off.
    """
    _told.clear()
    yield
    jax.effects_barrier()
    if _told:
        raise EndlessLoop(_told[0], MOST_TURNS)


@functools.cache
def _install() -> None:
    usual = lax.while_loop

    @functools.wraps(usual)
    def while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any) -> Any:
        where = _line() if _IS_BROKEN_OFF.value else ""
        if not where:
            return usual(cond_fun, body_fun, init_val)
        with contextlib.suppress(TypeError):  # which without this has the names of what the port's author wrote
            turns, result = usual(_and_few(cond_fun), _counted(body_fun, where), (jnp.int32(0), init_val))
            if isinstance(turns, jax.core.Tracer):
                jax.debug.callback(functools.partial(_tell, where), turns)
            elif turns >= MOST_TURNS:
                raise EndlessLoop(where, MOST_TURNS)
            return result
        return usual(cond_fun, body_fun, init_val)

    lax.while_loop = while_loop


def _line() -> str:
    """`model.py:31`, where a loop was asked for; empty where a library did, whose loops end."""
    frame = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if not is_of_a_library(file):
            return f"{Path(file).name}:{frame.f_lineno}"
        if file.startswith(OURS):
            return ""
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def _and_few(cond_fun: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def goes_on(state: tuple[jax.Array, Any]) -> Any:
        turns, value = state
        wanted = cond_fun(value)
        is_bool = getattr(wanted, "dtype", None) == jnp.bool_ and jnp.ndim(wanted) == 0
        return wanted & (turns < MOST_TURNS) if is_bool else wanted

    return goes_on


def _counted(body_fun: Callable[[Any], Any], where: str) -> Callable[[Any], Any]:
    def step(state: tuple[jax.Array, Any]) -> tuple[jax.Array, Any]:
        turns, value = state
        if not isinstance(turns, jax.core.Tracer) and turns >= MOST_STEPS:
            raise EndlessLoop(where, MOST_STEPS)
        return turns + 1, body_fun(value)

    return step


def _tell(where: str, turns: Any) -> None:
    if turns.max() >= MOST_TURNS:
        _told.append(where)
