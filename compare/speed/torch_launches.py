"""The kernels that PyTorch launches in one call, as its profiler and Inductor's generated code tell them."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.autograd.profiler import profile  # torch.profiler's imports torch._dynamo, for seconds

_RESERVES = frozenset(
    f"aten::{name}"
    for name in (
        *("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"),
        *("resize_", "_unsafe_view", "_reshape_alias", "unsafe_split", "unsafe_chunk"),
    )
)
_GRAPH_LAUNCHES = ("cudaGraphLaunch", "cuGraphLaunch")
_FUSED = "cpp_"  # what Inductor calls its functions on a CPU


def operators(step: Callable[[Any], Any], batch: Any) -> Counter[str]:
    """Calls of operators on a CPU, and of the functions that Inductor fused them into (`fusion`).

    An operator counts where it reaches a backend's kernel, as a `TorchDispatchMode` would see it: `aten::linear` is the
    `addmm` that it calls, and what `addmm` does inside itself is a part of it.
    """
    with _counted_fusions() as fused, profile() as recorded:
        step(batch)
    calls = _backend_calls(_results(recorded).experimental_event_tree())
    counts = Counter(name.partition("::")[2].lstrip("_") for name in calls)
    if fused[0]:
        counts["fusion"] += fused[0]
    return counts


def recorded_kernels(step: Callable[[Any], Any], batch: Any) -> list[tuple[str, bool]]:
    """The kind of each CUDA kernel that ran, and whether a CUDA graph replayed it."""
    with profile(use_device="cuda", use_kineto=True) as recorded:
        step(batch)
        torch.cuda.synchronize()
    events = _results(recorded).events()
    replays = {event.correlation_id() for event in events if event.name().startswith(_GRAPH_LAUNCHES)}
    return [
        (kernel_kind(event.name()), event.correlation_id() in replays)
        for event in events
        if event.device_type() == torch.autograd.DeviceType.CUDA
        and not event.is_user_annotation()
        and not event.name().startswith(("Memcpy", "Memset"))
    ]


def kernel_kind(name: str) -> str:
    """The name of a CUDA kernel without namespaces, arguments and what tells two fused ones apart."""
    plain = re.split(r"[<(]", name.removeprefix("void "))[0].rsplit("::", 1)[-1]
    fused = re.match(r"triton_[a-z]+_fused", plain)
    return fused[0] if fused else plain


def onnx_nodes(step: Callable[[Any], Any], batch: Any) -> Counter[str]:
    """Nodes that ONNX Runtime runs, by a profile that only a session made for it keeps.

    Raises:
      LookupError: where the step holds no session made from bytes.
    """
    import onnxruntime

    closure = inspect.getclosurevars(step).nonlocals
    names = closure.get("wanted")
    session = next((v for v in closure.values() if isinstance(v, onnxruntime.InferenceSession)), None)
    model = getattr(session, "_model_bytes", None)
    if session is None or model is None or names is None:
        raise LookupError("no session of ONNX Runtime that can be made again")
    with tempfile.TemporaryDirectory(prefix="graphmode-") as folder:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.enable_profiling, options.profile_file_prefix = True, str(Path(folder) / "profile")
        again = onnxruntime.InferenceSession(model, options, providers=session.get_providers())
        again.run(None, {name: tensor.numpy() for name, tensor in zip(names, batch.tensors, strict=True)})
        events = json.loads(Path(again.end_profiling()).read_text())
    return Counter(e["args"]["op_name"] for e in events if str(e.get("name")).endswith("_kernel_time"))


def _results(recorded: profile) -> Any:
    """The profiler's raw events: a list of `FunctionEvent`s takes seconds to make of 40 000."""
    return recorded.kineto_results


def _backend_calls(events: Iterable[Any]) -> Iterator[str]:
    waiting = list(events)
    while waiting:
        event = waiting.pop()
        kind = _kind_of_operator(event.name)
        if kind == "composite":
            waiting += event.children
        elif kind == "kernel":
            yield event.name


@functools.cache
def _kind_of_operator(name: str) -> str:
    """`"kernel"`, `"view"`, or `"composite"` for what only calls others: a region of the profile is such, too.

    A profile names no overload, so the one that does most stands for all.
    """
    if name in _RESERVES:
        return "view"
    namespace, _, operator = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), operator, None)
    kinds: set[str] = set()
    for overload in packet.overloads() if isinstance(packet, torch._ops.OpOverloadPacket) else ():
        if "out" not in overload:
            with contextlib.suppress(RuntimeError):  # an overload of TorchScript's alone
                kinds.add(_kind_of_overload(getattr(packet, overload)))
    return next((kind for kind in ("kernel", "view") if kind in kinds), "composite")


def _kind_of_overload(overload: torch._ops.OpOverload) -> str:
    # not overload.has_kernel_for_dispatch_key, which knows of decompositions in Python that an eager call does not take
    if torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), "CompositeImplicitAutograd"):
        return "composite"
    return "view" if overload.is_view or torch.Tag.inplace_view in overload.tags else "kernel"


@contextlib.contextmanager
def _counted_fusions() -> Iterator[list[int]]:
    """Counts calls of Inductor's functions, which no profiler sees: generated code finds them by global names."""
    calls = [0]

    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            calls[0] += 1
            return function(*args)

        return counted

    cache = sys.modules.get("torch._inductor.codecache")
    replaced: list[tuple[dict[str, Any], str, Any]] = []
    for module in cache.PyCodeCache.modules if cache is not None else ():
        names = vars(module)
        replaced += [(names, name, value) for name, value in names.items() if name.startswith(_FUSED)]
    try:
        for names, name, value in replaced:
            names[name] = counting(value)
        yield calls
    finally:
        for names, name, value in replaced:
            names[name] = value
