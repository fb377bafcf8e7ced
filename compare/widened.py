"""In a run in float64 what asks for float32 gets float64: a cast that keeps digits in bfloat16 is to lose none here."""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from .functional_dropout import functional_dropout_as_it_was

WIDER = {torch.float32: torch.float64, torch.complex64: torch.complex128}
ALIKE = 1e-5  # of the largest element: so far does rounding to float32 take most of what is built
FAR = 0.05  # likewise of what comes out the same each time, as sines of many positions do: chance goes further
NARROW = (torch.bfloat16, torch.float16)
REINTERPRETS = ("view", "frombuffer")  # the bits: another dtype is another number
COARSE: dict[Callable[..., Any], Callable[..., Any]] = {
    # its backward kernel multiplies by float32's 1/6 in float64, too
    torch.nn.functional.hardsigmoid: lambda input, inplace=False: torch.nn.functional.relu6(input + 3) / 6,
}
"""Functions of PyTorch whose float64 has no more digits than float32, and the same with all digits."""


def grouped_mm(
    mat_a: torch.Tensor,
    mat_b: torch.Tensor,
    *,
    offs: torch.Tensor | None = None,
    bias: None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """`torch.nn.functional.grouped_mm`, product by product; zeros where that leaves its output unset."""
    if offs is None:
        return (mat_a @ mat_b).to(out_dtype or mat_a.dtype)
    ends = offs.tolist()
    groups = list(zip([0, *ends], ends, strict=False))
    if mat_a.dim() == mat_b.dim():
        made = torch.stack([mat_a[:, start:end] @ mat_b[start:end] for start, end in groups])
    elif mat_a.dim() == 2:  # rows of one operand are in groups
        parts = [mat_a[start:end] @ b for (start, end), b in zip(groups, mat_b, strict=True)]
        made = torch.cat([*parts, mat_a.new_zeros(len(mat_a) - ends[-1], mat_b.shape[2])])
    else:  # columns of the other
        parts = [a @ mat_b[:, start:end] for (start, end), a in zip(groups, mat_a, strict=True)]
        made = torch.cat([*parts, mat_a.new_zeros(mat_a.shape[1], mat_b.shape[1] - ends[-1])], 1)
    return made.to(out_dtype or mat_a.dtype)


WITHOUT_FLOAT64: dict[Callable[..., Any], Callable[..., Any]] = {
    function: grouped_mm
    for function in (getattr(torch.nn.functional, "grouped_mm", None), getattr(torch, "_grouped_mm", None))
    if function is not None
}
"""Functions of PyTorch that refuse float64, and what takes their place there."""


class _Silent(threading.local):
    """Whether what runs is in float64 already, and nobody is to be told what is asked for."""

    is_on = False


_silent = _Silent()


class _Widening(TorchFunctionMode):
    def __init__(self, asked: Callable[[torch.dtype], None], coarse: Callable[[], None] | None = None):
        super().__init__()
        self.asked, self.coarse = asked, coarse

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.coarse is not None and func in COARSE:
            self.coarse()
        if func in WITHOUT_FLOAT64 and (*args, *kwargs.values())[0].dtype == torch.float64:
            func = WITHOUT_FLOAT64[func]
        if func is torch.Tensor.float:
            self.asked(torch.float32)
            return torch.Tensor.double(*args, **kwargs)
        if func is torch.Tensor.bfloat16 or func is torch.Tensor.half:
            self.asked(torch.bfloat16 if func is torch.Tensor.bfloat16 else torch.float16)
        for x in (*args, *kwargs.values()) if kwargs else args:  # millions of calls come by
            if type(x) is not torch.dtype or getattr(func, "__name__", "") in REINTERPRETS:
                continue
            if x in NARROW:
                self.asked(x)
            if x in WIDER:
                self.asked(x)
                args, kwargs = pytree.tree_map(_wider, (args, kwargs))
                break
        return func(*args, **kwargs)


def _wider(value: Any) -> Any:
    return WIDER.get(value, value) if isinstance(value, torch.dtype) else value


@contextlib.contextmanager
def in_float64(
    asked: Callable[[torch.dtype], None] | None = None, coarse: Callable[[], None] | None = None
) -> Iterator[None]:
    """PyTorch's default dtype and every float32 that is asked for are float64; `asked` is called with the dtype where
    one is, or a narrower one, which stays, and `coarse` where one of `COARSE` is called. Where it is given neither,
    modules that were widened before tell nobody either, inside."""
    before, was_on = torch.get_default_dtype(), _silent.is_on
    torch.set_default_dtype(torch.float64)
    _silent.is_on = was_on or asked is coarse is None
    try:
        with _Widening(asked or (lambda dtype: None), coarse):
            yield
    finally:
        torch.set_default_dtype(before)
        _silent.is_on = was_on


def widen(
    module: torch.nn.Module, asked: Callable[[torch.dtype], None], coarse: Callable[[], None] | None = None
) -> None:
    """Lets a module's forward run so from now on."""
    _run_in(module, lambda: contextlib.nullcontext() if _silent.is_on else in_float64(asked, coarse))


def refine(module: torch.nn.Module) -> None:
    """Lets a module's forward call no function of `COARSE` from now on, but the one with all digits."""
    _run_in(module, _Refined)


class _Refined(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return COARSE.get(func, func)(*args, **(kwargs or {}))


def let_ask_for_gradients(module: torch.nn.Module) -> None:
    """Lets modules inside say `x.requires_grad = True` of what they computed of an input that has a gradient, as they
    may of one that has none; it changes nothing, and PyTorch refuses it. `transformers` says so for checkpointing."""
    for each in module.modules():
        forward = getattr(type(each), "forward", None)  # a scripted class has none
        if "requires_grad" in getattr(getattr(forward, "__code__", None), "co_names", ()):
            _run_in(each, _Asking)


class _Asking(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func == torch.Tensor.requires_grad.__set__ and args[1] and args[0].requires_grad:  # type: ignore[attr-defined]
            return None
        return func(*args, **(kwargs or {}))


def _run_in(module: torch.nn.Module, mode: Callable[[], contextlib.AbstractContextManager[Any]]) -> None:
    if isinstance(module, torch.jit.ScriptModule):
        return  # no function call of its can be seen
    forward = module.forward

    @functools.wraps(forward)
    def run(*args: Any, **kwargs: Any) -> Any:
        with mode():
            return forward(*args, **kwargs)

    module.forward = run


def take_constants(module: torch.nn.Module, make: Callable[[], torch.nn.Module], carried: set[str]) -> list[str]:
    """Puts tensors that a module computes as it is built, and that no port is given, in float64 where they stand; and
    numbers of Python's that it takes of tensors, by `item()`.

    Those alone that come out the same when it is built again: what is drawn at random stays as it is.

    Args:
      module: in float64, built in float32.
      make: builds it.
      carried: keys of the `state_dict` that the port is given.

    Returns:
      The names of those that rounding to float32 had changed.
    """
    with in_float64():
        fine = _built_constants(make, carried)
    again: dict[str, Any] | None = None  # in float32 once more, where rounding alone is not known to explain a constant
    changed = []
    for name, (holder, kept) in _constants(module, carried):
        wide = fine.get(name, kept)
        if not _is_finer(kept, wide):
            continue
        if _distance(kept, wide) > ALIKE:
            again = _built_constants(make, carried) if again is None else again
            if _distance(kept, wide) > FAR or not _is_same(kept, again.get(name)):
                continue
        path = name.rpartition(".")[2]
        if isinstance(kept, float):
            holder.__dict__[path] = wide
        elif path in holder._parameters:
            kept.data = wide.data.to(kept.device)
        else:
            (holder._buffers if path in holder._buffers else holder.__dict__)[path] = wide.to(kept.device)
        changed.append(name)
    return changed


def _built_constants(make: Callable[[], torch.nn.Module], carried: set[str]) -> dict[str, Any]:
    with functional_dropout_as_it_was():
        built = make()
    return {name: value for name, (_, value) in _constants(built, carried)}


def _is_finer(kept: Any, wide: Any) -> bool:
    """Whether one is the other in float64, and is not the same number for number."""
    if isinstance(kept, float) or isinstance(wide, float):
        return isinstance(kept, float) and isinstance(wide, float) and wide != kept
    dtype = torch.complex128 if kept.is_complex() else torch.float64
    return wide.dtype == dtype and wide.shape == kept.shape and not torch.equal(wide, kept.to(dtype))


def _distance(kept: Any, wide: Any) -> float:
    """The largest difference, of the largest element."""
    if isinstance(kept, float):
        return abs(wide - kept) / abs(wide) if wide else math.inf
    largest = wide.abs().max()
    return float((wide - kept.to(wide)).abs().max() / largest) if largest else math.inf


def _is_same(kept: Any, again: Any) -> bool:
    """Whether it is one rounded to its dtype, bit for bit."""
    if isinstance(kept, float) or isinstance(again, float | None):
        return bool(kept == again)
    return again.shape == kept.shape and torch.equal(again, kept.to(again))


def _constants(
    module: torch.nn.Module, carried: set[str]
) -> Iterator[tuple[str, tuple[torch.nn.Module, torch.Tensor | float]]]:
    for path, child in module.named_modules():
        for attribute, value in [*child._parameters.items(), *child._buffers.items(), *child.__dict__.items()]:
            name = f"{path}.{attribute}" if path else attribute
            is_tensor = isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
            if (is_tensor or isinstance(value, float)) and name not in carried:
                yield name, (child, value)
