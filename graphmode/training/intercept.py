"""Calls of a model's modules, intercepted while Python runs through it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from flax import nnx

Hook = Callable[[str, nnx.Module, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


@contextmanager
def intercepted(model: nnx.Module, hook: Hook) -> Iterator[dict[str, nnx.Module]]:
    """Within it, each call of a module of `model` goes through `hook(path, module, run, args, kwargs)`, which gives the
    output; `run(module, *args, **kwargs)` is the call itself.

    Other models are left alone, and so is a module's call of itself (`super().__call__`). Yields the modules by dotted
    path, that of `model` being empty.
    """
    modules = {".".join(map(str, path)): module for path, module in nnx.iter_modules(model, graph=True)}
    paths = {id(module): path for path, module in reversed(modules.items())}
    owners: set[Any] = {
        next(c for c in type(module).__mro__ if "__call__" in vars(c))
        for module in modules.values()
        if callable(module)
    }
    usual = {owner: vars(owner)["__call__"] for owner in owners}
    running: list[int] = []

    def through_hook(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            path = paths.get(id(self))
            if path is None or (running and running[-1] == id(self)):
                return original(self, *args, **kwargs)

            def run(module: Any, *args: Any, **kwargs: Any) -> Any:
                running.append(id(module))
                paths[id(module)] = path  # a transform may have made another object of it
                try:
                    return original(module, *args, **kwargs)
                finally:
                    running.pop()

            return hook(path, self, run, args, kwargs)

        return call

    for owner, original in usual.items():
        owner.__call__ = through_hook(original)
    try:
        yield modules
    finally:
        for owner, original in usual.items():
            owner.__call__ = original
