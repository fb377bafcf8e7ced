"""How many kernels one call of a prepared step launches, and of which kinds.

On a GPU they are CUDA kernels. On a CPU they are what a framework calls one by one: in PyTorch the operators that reach
a backend, and the functions that Inductor fused; in JAX the thunks of the executable, as often as they run, so the body
of a loop counts in every round. A view, or memory that is only reserved, is no launch.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from ..errors import describe_briefly
from ..report.records import Launches
from .jax_launches import in_profile
from .settings import xla_options
from .torch_launches import onnx_nodes, operators, recorded_kernels

MOST_KINDS = 12
OTHER = "other"
UNTOLD_IN_LIBRARY = "the functions in AOTInductor's shared library are not told one by one"
PROFILED_BUFFERS = "xla_enable_command_buffers_during_profiling"
UNSEEN = "the profiler saw no kernel: CUPTI may not be there, or not be allowed to look"
UNTOLD_SHARE = (
    "counted with XLA's command buffers off, as it profiles by default: what share they replay is told with "
    f"XLA_FLAGS=--{PROFILED_BUFFERS}=true"
)


def keep_command_buffers_in_profiles() -> None:
    """Lets XLA run its CUDA graphs while it is profiled, too, so that the share that they replay is told.

    Call it before this process has asked JAX for a device. A user's own setting is left alone.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if PROFILED_BUFFERS not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --{PROFILED_BUFFERS}=true".strip()


def count_launches(row: str, step: Callable[[Any], Any], batch: Any, *, device: str) -> Launches:
    """Counts in a further call of `step(batch)`, under the framework's profiler. Call it after all timing.

    Args:
      row: the row's name, as in `results.json`.
      step: a prepared step that has run before: what it compiles or captures at first would be counted.
      batch: as it takes it.
      device: `"cpu"` or `"gpu"`.

    Returns:
      `kernels` None, with a `note` that says why, where they cannot be told. It raises nothing of its own.
    """
    try:
        if row.startswith("jax."):
            return _jax(row, step, batch, device)
        if device == "gpu":
            return _torch_on_gpu(step, batch)
        if row == "onnxruntime":
            return _told(onnx_nodes(step, batch))
        if row == "torch.aoti":
            return Launches(note=UNTOLD_IN_LIBRARY)
        return _told(operators(step, batch))
    except Exception as error:
        return Launches(note=f"could not be counted: {describe_briefly(error)}")


def _jax(row: str, step: Callable[[Any], Any], batch: Any, device: str) -> Launches:
    jax.block_until_ready(step(batch))  # what an earlier call still runs would be in the profile
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level, options.host_tracer_level = 0, 1
    with tempfile.TemporaryDirectory(prefix="graphmode-") as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            jax.block_until_ready(step(batch))
        (path,) = Path(folder).rglob("*.xplane.pb")
        counts, captured = in_profile(jax.profiler.ProfileData.from_file(str(path)), device)
    if device == "cpu":
        return _told(counts)
    if not counts:
        return Launches(note=UNSEEN)
    if row.endswith(".no_command_buffers") or xla_options("gpu").get(PROFILED_BUFFERS) == "true":
        return _told(counts, captured)
    return _told(counts, note=UNTOLD_SHARE)


def _torch_on_gpu(step: Callable[[Any], Any], batch: Any) -> Launches:
    kernels = recorded_kernels(step, batch)
    if not kernels:
        return Launches(note=UNSEEN)
    counts = Counter(kind for kind, _ in kernels)
    return _told(counts, sum(captured for _, captured in kernels) / len(kernels))


def _told(counts: Counter[str], captured: float | None = None, note: str = "") -> Launches:
    """The commonest kinds by name, the rest as one."""
    kinds = counts.most_common()
    shown = kinds if len(kinds) <= MOST_KINDS else kinds[: MOST_KINDS - 1]
    by_kind = dict(shown)
    if rest := counts.total() - sum(by_kind.values()):
        by_kind[OTHER] = by_kind.get(OTHER, 0) + rest
    return Launches(kernels=counts.total(), captured=captured, by_kind=by_kind, note=note)
