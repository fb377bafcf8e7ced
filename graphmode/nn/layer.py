"""The base of every layer: an error raised inside one says where in the model that layer stands."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from flax import nnx

from .arguments import check_array

_TOLD = "_graphmode_told"  # marks an error whose message names its layer


class Layer(nnx.Module):
    """An `nnx.Module` whose `ValueError`s and `TypeError`s begin with its path: `"encoder.linear1 (Linear): "`.

    The path goes from the outermost module whose method is running, whatever its class, to the layer that raised. Where
    a layer is called by itself, its class stands alone.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        call = cls.__dict__.get("__call__")
        if call is not None:
            cls.__call__ = _telling(call)  # type: ignore[method-assign]


def _telling(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def told(self: Layer, *args: Any, **kwargs: Any) -> Any:
        try:
            try:
                return call(self, *args, **kwargs)
            except (AttributeError, ValueError, TypeError) as error:
                _name_what_is_no_array(error, call, self, args, kwargs)
                raise
        except (ValueError, TypeError) as error:
            if not getattr(error, _TOLD, False) and error.args and isinstance(error.args[0], str):
                name = type(self).__name__
                path = _path_to(self)
                where = f"{path} ({name})" if path else name
                error.args = (f"{where}: {error.args[0]}", *error.args[1:])
                setattr(error, _TOLD, True)
            raise

    return told


def _name_what_is_no_array(
    error: Exception, call: Callable[..., Any], layer: Layer, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Raises `TypeError` where a call failed since an argument is PyTorch's tensor, or lacks what arrays have."""
    if getattr(error, _TOLD, False):
        return
    try:
        given = inspect.signature(call).bind(layer, *args, **kwargs).arguments
    except TypeError:  # the call itself does not fit
        return
    for name, value in given.items():
        lacking = isinstance(error, AttributeError) and value is error.obj and error.name in ("dtype", "ndim", "shape")
        if lacking or type(value).__module__.split(".")[0] == "torch":
            check_array(name, value)


def _path_to(layer: nnx.Module) -> str:
    """Dotted names from the outermost module that is running to this one; empty where they are the same."""
    running = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        holder = frame.f_locals.get("self")
        if isinstance(holder, nnx.Module):
            running.append(holder)
        frame = frame.f_back
    for root in reversed(running):
        if root is layer:
            return ""
        for path, node in nnx.iter_graph(root):
            if node is layer:
                return ".".join(map(str, path))
    return ""
