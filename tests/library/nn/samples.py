"""PyTorch's own test cases for its layers and functions, as subjects that both sides run."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import FunctionInput, ModuleInfo, module_db

MODULES: dict[str, ModuleInfo] = {info.module_cls.__name__: info for info in module_db}
OF_TORCH = ("baddbmm", "bmm", "cdist", "einsum", "flatten", "matmul", "unflatten")  # functions of `torch` itself
FUNCTIONS: dict[str, Any] = {
    info.formatted_name.removeprefix("nn_functional_"): info
    for info in op_db
    if info.name.startswith("nn.functional.") or info.name in OF_TORCH
}
FLOATS = (torch.float32, torch.float64)


@dataclass(frozen=True)
class Sample:
    """One call of a PyTorch layer or function.

    Attributes:
      subject: `"Conv2d"`, or `"conv2d"` of `torch.nn.functional`.
      index: which of its samples.
      training: the mode of a module; False for a function.
      build: makes the module, parameters included, in the dtype of the arguments; None for a function.
      constructor: positional and keyword arguments of the module, for ours.
      function: that is called where there is no module.
      args, kwargs: of the call.
    """

    subject: str
    index: int
    training: bool
    build: Callable[[], torch.nn.Module] | None
    constructor: tuple[tuple, dict]
    function: Callable[..., Any] | None
    args: tuple
    kwargs: dict

    @property
    def label(self) -> str:
        mode = ("training" if self.training else "evaluation") if self.build else "function"
        return f"{self.subject} {self.index} ({mode})"


def module_samples(name: str, *, training: bool, dtype: torch.dtype, seed: int) -> Iterator[Sample]:
    """Of a class in `module_db`, parameters and inputs drawn anew from the seed."""
    info = MODULES[name]
    torch.manual_seed(seed)
    drawn = list(info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training))
    for index, one in enumerate(drawn):
        args, kwargs = one.constructor_input.args, one.constructor_input.kwargs
        forward = one.forward_input
        inputs = (forward.args, forward.kwargs) if forward is not None else ((), {})
        build = functools.partial(_build, info.module_cls, args, kwargs, inputs, dtype, training, seed)
        yield Sample(name, index, training, build, (args, kwargs), None, *inputs)


def function_samples(name: str, *, dtype: torch.dtype, seed: int) -> Iterator[Sample]:
    """Of an entry of `op_db`."""
    info = FUNCTIONS[name]
    torch.manual_seed(seed)
    takes_floats = dtype in info.dtypes or torch.int64 not in info.dtypes
    dtype = dtype if takes_floats else torch.int64
    for index, one in enumerate(info.sample_inputs("cpu", dtype, requires_grad=takes_floats, set_seed=False)):
        subject = info.name.removeprefix("nn.functional.")
        yield Sample(subject, index, False, None, ((), {}), info.op, (one.input, *one.args), dict(one.kwargs))


def rejected_calls(name: str) -> Iterator[tuple[Sample, str]]:
    """Calls of a class in `module_db`, or of an entry of `op_db`, that PyTorch rejects, each with its message."""
    if name in MODULES:
        info = MODULES[name]
        make = info.module_error_inputs_func or (lambda *args, **kwargs: [])
        for index, one in enumerate(make(info, device="cpu", dtype=torch.float32, requires_grad=False, training=True)):
            call = one.module_error_input
            forward = call.forward_input or FunctionInput()
            made = (call.constructor_input.args, call.constructor_input.kwargs)
            build = functools.partial(info.module_cls, *made[0], **made[1])
            yield Sample(name, index, True, build, made, None, forward.args, forward.kwargs), one.error_regex
        return
    info = FUNCTIONS[name]
    for index, one in enumerate(info.error_inputs("cpu") if info.error_inputs_func else ()):
        call = one.sample_input
        subject = info.name.removeprefix("nn.functional.")
        sample = Sample(subject, index, False, None, ((), {}), info.op, (call.input, *call.args), dict(call.kwargs))
        yield sample, one.error_regex


def _build(cls, args, kwargs, inputs, dtype, training, seed) -> torch.nn.Module:
    torch.manual_seed(seed)
    module = cls(*args, **kwargs)
    if any(torch.nn.parameter.is_lazy(p) for p in module.parameters()):
        with torch.no_grad():
            module = module.to(dtype)
            module(*copy.deepcopy(inputs[0]), **copy.deepcopy(inputs[1]))
    return module.to(dtype).train(training)


def function_sample(name: str, *args: Any, **kwargs: Any) -> Sample:
    """A call of `torch.nn.functional` of one's own."""
    return Sample(name, 0, False, None, ((), {}), getattr(torch.nn.functional, name), args, kwargs)
