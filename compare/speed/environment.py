"""Where numbers come from: device, versions, threads, flags, revision."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path

from graphmode.memory import freed_memory_is_kept, huge_pages_are_asked_for

from ..report.records import Environment
from .machine import cpu_facts, cpu_moment, cpu_name, gpu_facts, gpu_moment, processors
from .settings import torch_flags, variables, xla_options

PACKAGES = ("graphmode", "jax", "jaxlib", "flax", "optax", "torch", "onnxruntime", "numpy")


SHORT_SPIN = "1000"  # what libgomp itself takes where it knows of more threads than processors


def spin_briefly() -> None:
    """Makes PyTorch's OpenMP threads sleep soon after they have run out of work. Call it before torch is imported.

    By default they spin for 8 ms, on processors that whatever runs next needs, and where another process holds one an
    operation of 0.2 ms takes 11 (measured on two processors). It is for processes that check, and time nothing: threads
    that sleep between small operations have to be woken, and an operation of 9 us then takes 66, call after call or
    not, as it happens. A setting of the user's is left alone.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SHORT_SPIN)


class DeviceError(ValueError):
    """A device that was asked for and is not there."""


def cuda_problem() -> str:
    """Why no comparison can run on a GPU here; empty where one can."""
    import jax
    import torch

    if not torch.cuda.is_available():
        return f"torch {torch.__version__} sees no CUDA device"
    try:
        jax.devices("gpu")
    except RuntimeError:
        return "torch sees a CUDA device, and jax does not: install jax[cuda13] for it"
    return ""


def choose_device(wanted: str) -> str:
    """`"cpu"` or `"gpu"`; `"auto"` takes the GPU where both frameworks see one.

    Call it before JAX has computed anything: on a GPU it would take most of the memory for this process.

    Raises:
      DeviceError: for another word, and for `"gpu"` where there is none.
    """
    if wanted not in ("auto", "cpu", "gpu"):
        raise DeviceError(f"--device is {wanted!r}; choose auto, cpu or gpu")
    if wanted == "cpu":
        return "cpu"
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # several processes share the GPU's memory
    problem = cuda_problem()
    if wanted == "gpu" and problem:
        raise DeviceError(f"--device gpu: {problem}; run with --device cpu, or on a machine with a GPU")
    return "cpu" if problem else "gpu"


def set_up_threads() -> int:
    """Gives PyTorch the processors that XLA's pool takes, those of this process's affinity; returns how many."""
    import torch

    count = len(processors())
    torch.set_num_threads(count)
    return count


def describe(device: str) -> Environment:
    """This machine and process, for the head of a report."""
    import torch

    moment = {**cpu_moment(), **(gpu_moment() if device == "gpu" else {})}
    threads = set_up_threads()
    return Environment(
        device=device,
        device_name=torch.cuda.get_device_name() if device == "gpu" else cpu_name(),
        cpu=cpu_name(),
        threads=threads,
        python=platform.python_version(),
        platform=platform.platform(),
        versions={name: number for name in PACKAGES if (number := version(name))},
        machine={**cpu_facts(), **(gpu_facts() if device == "gpu" else {})},
        flags={
            **variables(),
            "freed memory": "kept" if freed_memory_is_kept() else "given back",
            "pages of 2 MB": "asked for" if huge_pages_are_asked_for() else "not asked for",
            **({} if device == "gpu" else {"jax dispatch": _jax_dispatch()}),
            **torch_flags(device),
            **xla_options(device),
        },
        revision=revision(),
        moment=moment,
    )


def _jax_dispatch() -> str:
    from graphmode.dispatch import dispatches_inline

    return "inline" if dispatches_inline() else "asynchronous, but in processes of rows"


def version(name: str) -> str:
    """Of an installed package; empty where it is not."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def revision() -> str:
    """The git revision of the tree this package runs from, with `+` for uncommitted changes; empty outside of one.

    That of the environment variable GRAPHMODE_REVISION where it is set: of a tree that was copied without its history.
    """
    if given := os.environ.get("GRAPHMODE_REVISION"):
        return given
    root = Path(sys.modules["graphmode"].__file__ or ".").resolve().parent.parent
    if not (root / ".git").exists():
        return ""
    try:
        head = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
        ).stdout.strip()
        dirty = subprocess.run(
            ["git", "-C", str(root), "status", "--porcelain", "--untracked-files=no"], capture_output=True, text=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head + ("+" if dirty else "")
