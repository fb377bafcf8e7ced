"""What comes before a row's first timed call, part by part: build, trace, lower, compile, first run."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax.monitoring

from ..report.records import Cold
from .turn import stood_still

_PARTS = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",
}


class Stages:
    """Listens to both frameworks' compilers while a row is built and called for the first time."""

    def __init__(self) -> None:
        self._parts: Counter[str] = Counter()
        self._rest = {"build": 0.0, "first run": 0.0}

    @contextlib.contextmanager
    def building(self) -> Iterator[None]:
        with self._stage("build"):
            yield

    @contextlib.contextmanager
    def first_call(self) -> Iterator[None]:
        with self._stage("first run"):
            yield

    @property
    def total_s(self) -> float:
        return self._parts.total() + sum(self._rest.values())

    def cold(self) -> Cold:
        """The parts. What no compiler tells of is building before the first call, and running in it."""
        return Cold(
            build_s=self._rest["build"],
            trace_s=self._parts.get("trace"),
            lower_s=self._parts.get("lower"),
            compile_s=self._parts.get("compile"),
            first_run_s=self._rest["first run"],
        )

    @contextlib.contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        spans: dict[str, list[tuple[float, float]]] = {part: [] for part in _PARTS.values()}

        def listen(event: str, duration_secs: float, **_: Any) -> None:
            if event in _PARTS:
                end = time.perf_counter()
                spans[_PARTS[event]].append((end - duration_secs, end))

        before = _torch_times()
        jax.monitoring.register_event_duration_secs_listener(listen)
        start = time.perf_counter()
        try:
            yield
        finally:
            end = time.perf_counter()
            taken = end - start - stood_still(start, end)
            jax.monitoring.unregister_event_duration_listener(listen)
            heard = {part: _covered(found) for part, found in spans.items() if found}
            if (torch := _torch_times() - before).total():
                ran = taken / (end - start)  # of the times that it tells; of which of them the rest is, nobody does
                # a backend that compiles the backward pass does so outside of any frame
                heard = {"trace": ran * max(0.0, torch["entire_frame_compile"] - torch["backend_compile"])}
                heard["compile"] = ran * torch["backend_compile"]
            self._parts.update(heard)
            self._rest[name] += max(0.0, taken - sum(heard.values()))


def _covered(spans: list[tuple[float, float]]) -> float:
    """The length of their union: one inside another counts once, and what stood still for another run not at all."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        begun = max(start, reached)
        total += max(0.0, end - begun - stood_still(begun, end))
        reached = max(reached, end)
    return total


def _torch_times() -> Counter[str]:
    """What torch.compile says it has spent so far in this process; nothing where it was never loaded."""
    utils = sys.modules.get("torch._dynamo.utils")
    told: dict[str, float] = getattr(utils, "calculate_time_spent", dict)()
    return Counter({name: told.get(name, 0.0) for name in ("entire_frame_compile", "backend_compile")})
