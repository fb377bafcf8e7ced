"""Runs samples on both sides and compares all that comes of them, by the two verdicts of `graphmode.compare`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import torch
from graphmode.compare.dtypes import HALF_ULP
from graphmode.compare.parity.yardstick import (
    EQUAL_TOLERANCE,
    JUDGED_ELEMENTS,
    PRECISE_RATIO,
    difference,
    magnitude,
    rms,
    rms_error,
)

from .samples import Sample
from .sides import SHARED, Ours, Theirs, adapter_of


@dataclass
class Verdict:
    """What came of all samples of one class or function.

    Attributes:
      name: of it.
      tried, agreed: numbers of samples, each counted once a layout.
      skipped: reasons, with how many samples each.
      error: the largest in float64, as a fraction of its tensor's scale.
      ratio: the largest of the float32 error to PyTorch's own.
      failures: what differed, sample by sample.
    """

    name: str
    tried: int = 0
    agreed: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    error: float = 0.0
    ratio: float = 0.0
    failures: list[str] = field(default_factory=list)


def judge_equal(
    sample: Sample, verdict: Verdict, *, compiled: bool = True, layouts: Sequence[str] | None = None
) -> None:
    """Both sides in float64, in every layout: outputs, gradients of inputs and parameters, buffers.

    Args:
      sample: in float64.
      verdict: that it is entered into.
      compiled: whether ours runs under `jax.jit`, and not operation by operation.
      layouts: to run ours in, where it has any; all of them where None.
    """
    adapter = adapter_of(sample)
    if adapter.skip and (reason := adapter.skip(sample.args, sample.kwargs)):
        verdict.skipped[reason] = verdict.skipped.get(reason, 0) + 1
        return
    theirs = Theirs(sample, torch.float64)
    entering = adapter.scale(theirs.tensors, sample.args, sample.kwargs) if adapter.scale else {}
    for layout in (adapter.layouts and layouts) or adapter.layouts or (None,):
        verdict.tried += 1
        problems = []
        try:
            with jax.enable_x64(True):
                port = Ours(sample, theirs, layout, "float64").run(compiled=compiled and not adapter.eager)
        except Exception as error:
            verdict.failures.append(f"{_told(sample, layout)}: {type(error).__name__}: {str(error)[:400]}")
            continue
        largest = max((magnitude(a) for name, a in theirs.tensors.items() if name.startswith(SHARED)), default=0.0)
        for name in sorted(theirs.tensors.keys() | port.keys()):
            if name not in port or name not in theirs.tensors:
                problems.append(f"{name} is missing on {'our' if name not in port else 'their'} side")
                continue
            scale = largest if name.startswith(SHARED) else None
            if name in entering:
                scale = max(entering[name], scale or magnitude(theirs.tensors[name]))
            found = difference(port[name], theirs.tensors[name], scale)
            if np.isfinite(found.error):
                verdict.error = max(verdict.error, found.error)
            if found.error > EQUAL_TOLERANCE:
                where = f" at {found.index}: ours {found.port}, theirs {found.reference}" if found.index else ""
                problems.append(f"{name} off by {found.error:.2g}{where} {found.note}")
        if problems:
            verdict.failures.append(f"{_told(sample, layout)}: {'; '.join(problems)}")
        else:
            verdict.agreed += 1


def judge_precise(draws: list[Sample], verdict: Verdict) -> None:
    """Both sides in float32 against PyTorch in float64, pooled over draws of the same sample.

    The root mean square errors of each tensor over all draws; at least half an ulp of what it is made of is granted.
    Tensors with fewer than 64 elements in all are not judged.
    """
    adapter = adapter_of(draws[0])
    if adapter.skip and adapter.skip(draws[0].args, draws[0].kwargs):
        return
    truth = [Theirs(sample, torch.float64) for sample in draws]
    usual = [Theirs(sample, torch.float32) for sample in draws]
    asks_float64 = any(value is torch.float64 for value in draws[0].kwargs.values())  # JAX has none without x64
    for layout in adapter.layouts[:1] or (None,):
        try:
            with jax.enable_x64(asks_float64):
                first = Ours(draws[0], usual[0], layout, "float32")
                rest = [Ours(*pair, layout, "float32", like=first) for pair in zip(draws[1:], usual[1:], strict=True)]
                port = [one.run(compiled=not adapter.eager) for one in (first, *rest)]
        except Exception as error:
            verdict.failures.append(f"{_told(draws[0], layout)} in float32: {type(error).__name__}: {str(error)[:400]}")
            return
        for name, first in truth[0].tensors.items():
            if first.dtype.kind != "f" or any(name not in one for one in port):
                continue
            shapes = {one.tensors.get(name, first).shape for one in (*truth, *usual)} | {p[name].shape for p in port}
            if len(shapes) > 1:
                continue  # the sizes were drawn too
            exact, theirs, mine = (
                np.stack([one[name] for one in side])
                for side in ([t.tensors for t in truth], [t.tensors for t in usual], port)
            )
            if exact.size < JUDGED_ELEMENTS:
                continue
            scale = rms(exact)
            if name.startswith(SHARED):
                scale = max(rms(array) for t in truth for n, array in t.tensors.items() if n.startswith(SHARED))
            if adapter.scale:
                given = adapter.scale(truth[0].tensors, draws[0].args, draws[0].kwargs)
                scale = max(scale, given.get(name, 0.0))
            floor = max(rms_error(theirs, exact), HALF_ULP["float32"] * scale, np.finfo(np.float32).tiny)
            ratio = rms_error(mine, exact) / floor
            verdict.ratio = max(verdict.ratio, ratio)
            if not ratio <= PRECISE_RATIO:
                verdict.failures.append(f"{_told(draws[0], layout)}: {name} has {ratio:.3g} times PyTorch's error")


def _told(sample: Sample, layout: str | None) -> str:
    return f"{sample.label}{f' {layout}' if layout else ''} {_short(sample)}"


def _short(sample: Sample) -> str:
    def told(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        if isinstance(value, tuple | list):
            return f"({', '.join(map(told, value))})"
        return repr(value)[:60]

    built = [*map(told, sample.constructor[0]), *(f"{k}={told(v)}" for k, v in sample.constructor[1].items())]
    called = [*map(told, sample.args), *(f"{k}={told(v)}" for k, v in sample.kwargs.items())]
    return f"[{', '.join(built)}]({', '.join(called)})"
