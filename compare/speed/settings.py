"""Settings of PyTorch, XLA and the environment that move a time, as this process has them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

VARIABLES = (
    *("XLA_FLAGS", "GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "KMP_BLOCKTIME"),
    *("GOMP_CPU_AFFINITY", "NPROC", "PJRT_NPROC", "LD_PRELOAD", "MALLOC_ARENA_MAX"),
    *("MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"),
    *("CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG"),
    *("PYTORCH_CUDA_ALLOC_CONF", "XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_MEM_FRACTION"),
)
PREFIXES = ("TORCHINDUCTOR_", "TORCHDYNAMO_", "TORCH_COMPILE_")  # Inductor's own settings take seconds to import
ALWAYS = ("XLA_FLAGS", "GRAPHMODE_ONEDNN", "GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
XLA_EVERYWHERE = ("xla_backend_optimization_level", "xla_allow_excess_precision")
XLA_CPU = (
    *("xla_cpu_use_onednn", "xla_cpu_use_xnnpack", "xla_cpu_experimental_ynn_fusion_type"),
    *("xla_cpu_experimental_onednn_fusion_type", "xla_cpu_enable_fast_math", "xla_cpu_enable_fast_min_max"),
    *("xla_cpu_multi_thread_eigen", "xla_cpu_prefer_vector_width", "xla_cpu_max_isa"),
    *("xla_cpu_enable_concurrency_optimized_scheduler", "xla_cpu_parallel_codegen_split_count"),
)
XLA_GPU = (
    *("xla_gpu_enable_command_buffer", "xla_gpu_graph_min_graph_size", "xla_gpu_command_buffer_unroll_loops"),
    *("xla_enable_command_buffers_during_profiling", "xla_gpu_command_buffer_scheduling_mode"),
    *("xla_gpu_autotune_level", "xla_gpu_exhaustive_tiling_search", "xla_gpu_deterministic_ops"),
    *("xla_gpu_exclude_nondeterministic_ops", "xla_gpu_enable_cublaslt", "xla_gpu_enable_triton_gemm"),
    *("xla_gpu_triton_gemm_any", "xla_gpu_gemm_rewrite_size_threshold", "xla_gpu_cublas_fallback"),
    *("xla_gpu_cudnn_gemm_fusion_level", "xla_gpu_enable_cudnn_layer_norm", "xla_gpu_cudnn_gemm_max_plans"),
    *("xla_gpu_enable_latency_hiding_scheduler", "xla_gpu_enable_while_loop_double_buffering"),
    *("xla_gpu_enable_while_loop_unrolling", "xla_gpu_enable_fast_min_max"),
)


def variables() -> dict[str, str]:
    """Environment variables that are set, and those whose absence matters too."""
    named = [name for name in VARIABLES if name in ALWAYS or name in os.environ]
    named += sorted(name for name in os.environ if name.startswith(PREFIXES))
    return {name: os.environ.get(name, "") for name in named}


def xla_options(device: str) -> dict[str, str]:
    """The effective options of every compilation, `XLA_FLAGS` included, as jaxlib prints them.

    Those that this jaxlib does not know are left out; empty where it prints none.
    """
    names = (*XLA_EVERYWHERE, *(XLA_GPU if device == "gpu" else XLA_CPU))
    try:
        from jax.extend.backend import get_compile_options

        options = get_compile_options(1, 1)  # held while its parts are read: they do not keep it alive
        build = options.executable_build_options
        printed = re.findall(r"^(\w+): (.*)$", str(build.debug_options), re.MULTILINE)
    except Exception:  # no public interface promises this text
        return {}
    found: dict[str, list[str]] = {}
    for name, value in printed:
        found.setdefault(name, []).append(value.strip('"'))
    return {name: ",".join(found[name]) for name in names if name in found}


def torch_flags(device: str) -> dict[str, str]:
    """Of its backends; those that this PyTorch does not have are left out."""
    import torch

    wanted: dict[str, Callable[[], Any]] = {
        "torch.deterministic_algorithms": torch.are_deterministic_algorithms_enabled,
        "torch.num_interop_threads": torch.get_num_interop_threads,
        "torch.parallel_backend": _parallel_backend,
        "torch.cpu_capability": torch.backends.cpu.get_cpu_capability,
        "torch.onednn": lambda: torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled,
        "torch.mkl": torch.backends.mkl.is_available,
    }
    if device == "gpu":
        wanted |= {
            "torch.cuda": lambda: torch.version.cuda,
            "torch.cudnn": torch.backends.cudnn.version,
            "torch.cudnn.benchmark": lambda: torch.backends.cudnn.benchmark,
            "torch.cudnn.deterministic": lambda: torch.backends.cudnn.deterministic,
            "torch.cuda.allow_bf16_reduced_precision": lambda: (
                torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
            ),
        }
    return {name: value for name, read in wanted.items() if (value := _told(read))} | _libraries()


def _told(read: Callable[[], Any]) -> str:
    try:
        return str(read())
    except (AttributeError, RuntimeError):
        return ""


def _parallel_backend() -> str:
    import torch

    match = re.search(r"parallel backend: (.+)", torch.__config__.parallel_info())
    return match[1] if match else ""


def _libraries() -> dict[str, str]:
    import torch

    text = torch.__config__.show()
    patterns = {
        "torch.onednn.version": r"(?:MKL-DNN|oneDNN) (v\S+)",
        "torch.mkl.version": r"Math Kernel Library Version (\S+)",
    }
    return {name: match[1] for name, pattern in patterns.items() if (match := re.search(pattern, text))}
