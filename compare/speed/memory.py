"""Peak memory of a row in a process of its own, and XLA's analysis of an executable."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from ..report.records import Memory

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # of the resident set


def baseline(device: str) -> int | None:
    """What this process holds before a row is built, in bytes, and from now on the peak counts from here.

    Args:
      device: `"cpu"`: the resident set, on Linux. `"gpu"`: 0; PyTorch's allocator counts its peak from here, JAX's from
        the start of the process.

    Returns:
      None where the system does not tell the peak, or does not let it start anew.
    """
    if device == "gpu":
        _start_peak_anew()
        return 0
    try:
        _CLEAR.write_text(_RESET_PEAK)
        return _status("VmRSS")
    except (OSError, KeyError):
        return None


def _start_peak_anew() -> None:
    import torch

    if torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()


def measured_peak(device: str, framework: Literal["torch", "jax"], before: int | None) -> int | None:
    """The most that this process has held since `baseline` gave `before`, above it, in bytes; None where not told.

    On a CPU it holds what allocators keep for later, code that was compiled and libraries that were loaded; on a GPU
    what the framework's allocator gave out.
    """
    if before is None:
        return None
    if device == "gpu":
        return _allocated(framework)
    try:
        return max(0, _status("VmHWM") - before)
    except (OSError, KeyError):
        return None


def xla_memory(compiled: Any, peak_bytes: int | None = None) -> Memory:
    """XLA's own analysis of one call, beside the peak that was measured.

    Args:
      compiled: `jax.stages.Compiled`, as `jax.jit(f).lower(...).compile()` gives it.
    """
    analysis = compiled.memory_analysis()
    sizes = {
        name: getattr(analysis, f"{field}_size_in_bytes", None)
        for name, field in (
            ("arguments_bytes", "argument"),
            ("outputs_bytes", "output"),
            ("temporaries_bytes", "temp"),
            ("code_bytes", "generated_code"),
        )
    }
    sizes["code_bytes"] = sizes["code_bytes"] or None  # XLA:CPU does not tell it
    return Memory(peak_bytes=peak_bytes, **sizes)


def _allocated(framework: str) -> int | None:
    if framework == "torch":
        import torch

        return torch.cuda.max_memory_allocated()
    import jax

    statistics = jax.devices("gpu")[0].memory_stats() or {}
    return statistics.get("peak_bytes_in_use")


def _status(field: str) -> int:
    for line in _STATUS.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise KeyError(field)
