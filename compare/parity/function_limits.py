"""Limits within functions of PyTorch, and numbers that are compared with: the sides of a `clamp`, a `relu` or an
`if x > 0.5` that a reference's inputs get to."""

from __future__ import annotations

import ast
import functools
import linecache
import os
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TypeGuard

import torch
from torch.overrides import TorchFunctionMode

from .. import widened
from ..trees import is_floating

GUARD = 1e-3  # a smaller limit than this keeps a divisor or a logarithm from zero, and is seldom meant to be met
LARGEST = 1e6  # a larger number than this guards against what is not finite
TORCH = os.path.dirname(torch.__file__)
HARNESS = os.path.dirname(widened.__file__)  # whose search for causes compares, too
Note = Callable[[str, str, torch.Tensor, float], None]
CLAMPS = {"clamp": ("min", "max"), "clip": ("min", "max"), "clamp_min": ("min",), "clamp_max": ("max",)}
KNOWN = {
    "relu6": (0.0, 6.0),
    "hardswish": (-3.0, 3.0),
    "hardsigmoid": (-3.0, 3.0),
    **dict.fromkeys(("relu", "leaky_relu", "prelu", "elu", "celu", "selu"), (0.0,)),
}
STAND_INS = {made.__code__ for made in widened.COARSE.values()}  # what these call, no model does
COMPARISONS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


class WatchedLimits(TorchFunctionMode):
    """Within it, gives `note` each limit of a function, with the function's name, where it is called and its input;
    `note_compared` each number that floats are compared with, the sign in place of the name; and `note_limited` the
    limits of a function that is called to limit, those also that only guard.

    What PyTorch's own modules call is left out.
    """

    def __init__(self, note: Note, note_compared: Note, note_limited: Note = lambda *_: None):
        self.note, self.note_compared, self.note_limited = note, note_compared, note_limited

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "").rstrip("_")
        if name in CLAMPS or name in KNOWN or name == "hardtanh":
            x = args[0] if args else kwargs.get("input")
            place = place_of(sys._getframe(1))
            if place and isinstance(x, torch.Tensor) and is_floating(x) and x.numel():
                for limit in _limits(name, args[1:], kwargs):
                    if limit == 0 or abs(limit) >= GUARD:
                        self.note(name, place, x, limit)
                    if name in CLAMPS:
                        self.note_limited(name, place, x, limit)
        elif name.strip("_") in COMPARISONS and len(args) == 2:
            self._compared(name.strip("_"), *args)
        return func(*args, **kwargs)

    def _compared(self, name: str, x: Any, number: Any) -> None:
        if not isinstance(number, int | float) or not isinstance(x, torch.Tensor) or not is_floating(x):
            return
        frame = _caller(sys._getframe(2))
        if frame is None or not x.numel() or frame.f_lineno in _guarding(frame.f_code.co_filename):
            return
        if number == 0 or GUARD <= abs(number) <= LARGEST:
            self.note_compared(COMPARISONS[name], _line_of(frame), x, float(number))


def _limits(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[float]:
    if name in KNOWN:
        yield from KNOWN[name]
        return
    usual: dict[str, Any] = {"min_val": -1.0, "max_val": 1.0} if name == "hardtanh" else dict.fromkeys(CLAMPS[name])
    given = {**usual, **dict(zip(usual, args, strict=False)), **{k: v for k, v in kwargs.items() if k in usual}}
    for limit in given.values():
        if isinstance(limit, int | float):
            yield float(limit)


@functools.cache
def _guarding(file: str) -> frozenset[int]:
    """The lines of the tests after which a file raises, and of its `assert`s: what is refused is no input of a case.
    None of a file that cannot be read."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return frozenset()
    tests = [each.test for each in ast.walk(tree) if isinstance(each, ast.Assert) or _raises(each)]
    return frozenset(line for test in tests for line in range(test.lineno, (test.end_lineno or test.lineno) + 1))


def _raises(node: ast.AST) -> TypeGuard[ast.If]:
    return isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise)


def place_of(frame: FrameType | None) -> str:
    """The file and line of the call, or nothing where a module of PyTorch makes it."""
    caller = _caller(frame)
    return "" if caller is None else _line_of(caller)


def _caller(frame: FrameType | None) -> FrameType | None:
    """The frame that calls what these hand on; None where that is a module of PyTorch, or the harness."""
    handing = (os.path.join(TORCH, "overrides.py"), os.path.join(TORCH, "nn", "functional.py"), widened.__file__)
    while frame is not None and frame.f_code.co_filename in handing and frame.f_code not in STAND_INS:
        frame = frame.f_back
    if frame is None or frame.f_code.co_filename.startswith((TORCH + os.sep, HARNESS + os.sep)):
        return None
    return frame


def _line_of(frame: FrameType) -> str:
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
