"""Modules whose inner values are computed again in the backward pass instead of being kept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flax import nnx


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
    paths = {".".join(map(str, path)): module for path, module in nnx.iter_modules(model)}
    chosen = [module for path, module in paths.items() if re.fullmatch(pattern, path) and callable(module)]
    if not chosen:
        known = ", ".join(repr(path) for path in list(paths)[:8])
        raise ValueError(f"remat is {pattern!r}, which matches the path of no module that is called; there are {known}")
    owners = {next(c for c in type(module).__mro__ if "__call__" in vars(c)) for module in chosen}
    usual = {owner: vars(owner)["__call__"] for owner in owners}
    wanted = {id(module) for module in chosen}
    running: list[int] = []

    def wrapped(original: Any) -> Any:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if id(self) not in wanted or id(self) in running:
                return original(self, *args, **kwargs)

            def run(module: Any) -> Any:
                running.append(id(module))
                try:
                    return original(module, *args, **kwargs)
                finally:
                    running.pop()

            return nnx.remat(run)(self)

        return call

    for owner, original in usual.items():
        owner.__call__ = wrapped(original)
    try:
        yield
    finally:
        for owner, original in usual.items():
            owner.__call__ = original
