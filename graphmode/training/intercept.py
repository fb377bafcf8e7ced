"""Calls of a model's modules, intercepted while Python runs through it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
from flax import nnx

PATH = "_intercepted_path"  # a static attribute, since transforms rebuild modules from their parts
Hook = Callable[[str, nnx.Module, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


@contextmanager
def intercepted(model: nnx.Module, hook: Hook) -> Iterator[dict[str, nnx.Module]]:
    """Within it, each call of a module of `model` goes through `hook(path, module, run, args, kwargs)`, which gives the
    output; `run(module, *args, **kwargs)` is the call itself.

    Modules that a transform such as `nnx.jit` or `nnx.remat` rebuilds keep their paths; one under several paths goes by
    the first. Other models are left alone, and so is a module's call of itself (`super().__call__`), and a call within
    `jax.eval_shape`, which computes nothing. Yields the modules by dotted path, that of `model` being empty.
    """
    modules = {".".join(map(str, path)): module for path, module in nnx.iter_modules(model, graph=True)}
    called = {path: module for path, module in modules.items() if callable(module)}
    before = [(module, getattr(module, PATH, None)) for module in called.values()]
    for path, module in reversed(called.items()):
        setattr(module, PATH, path)
    owners: set[Any] = {next(c for c in type(module).__mro__ if "__call__" in vars(c)) for module in called.values()}
    usual = {owner: vars(owner)["__call__"] for owner in owners}
    running: list[int] = []
    shapes_alone: list[Any] = []  # what `jax.eval_shape` is tracing
    usual_eval_shape = jax.eval_shape

    def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        shapes_alone.append(fun)
        try:
            return usual_eval_shape(fun, *args, **kwargs)
        finally:
            shapes_alone.pop()

    def through_hook(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            path = getattr(self, PATH, None)
            if path is None or shapes_alone or (running and running[-1] == id(self)):
                return original(self, *args, **kwargs)

            def run(module: Any, *args: Any, **kwargs: Any) -> Any:
                running.append(id(module))
                try:
                    return original(module, *args, **kwargs)
                finally:
                    running.pop()

            return hook(path, self, run, args, kwargs)

        return call

    for owner, original in usual.items():
        owner.__call__ = through_hook(original)
    jax.eval_shape = eval_shape
    try:
        yield modules
    finally:
        jax.eval_shape = usual_eval_shape
        for owner, original in usual.items():
            owner.__call__ = original
        for module, known in before:
            setattr(module, PATH, known) if known is not None else vars(module).pop(PATH, None)
