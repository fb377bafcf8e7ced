"""Modules whose inner values are computed again in the backward pass instead of being kept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flax import nnx

from .intercept import intercepted


@contextmanager
def rematerialised(model: nnx.Module, pattern: str | None) -> Iterator[None]:
    """Within it, the modules whose dotted path matches run under `nnx.remat`, buffers and dropout keys included.

    Args:
      model: whose modules are meant.
      pattern: a regular expression, matched from the start of a path to its end: `r"encoder\\.layers\\.\\d+"`. `""` is
        the model itself; None changes nothing.

    Raises:
      ValueError: where no module matches.
    """
    if pattern is None:
        yield
        return

    def through(path: str, module: nnx.Module, run: Any, args: Any, kwargs: Any) -> Any:
        if re.fullmatch(pattern, path) is None:
            return run(module, *args, **kwargs)
        return nnx.remat(lambda module: run(module, *args, **kwargs))(module)

    with intercepted(model, through) as modules:
        if not any(re.fullmatch(pattern, path) and callable(module) for path, module in modules.items()):
            known = ", ".join(repr(path) for path in list(modules)[:8])
            raise ValueError(f"remat is {pattern!r}, which matches no module that is called; there are {known}")
        yield
