"""`check`: an error about values, raised once the graph has run."""

from __future__ import annotations

from typing import Any

import jax
from jax.typing import ArrayLike


def check(ok: ArrayLike, message: str, **values: Any) -> None:
    """Raises `ValueError(message)` on the host where `ok` is false.

    Args:
      ok: 0-d bool, or of any shape; each entry must hold.
      message: with a `{name}` for each of `values`.
      values: arrays and numbers to be shown in the message.
    """

    def look(ok: Any, values: Any) -> None:
        if not ok.all():
            raise ValueError(message.format(**values))

    jax.debug.callback(look, ok, values)
