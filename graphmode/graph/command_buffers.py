"""What XLA replays from CUDA graphs, which it calls command buffers: more than it does by default."""

from __future__ import annotations

import os

import jax

# Without convolutions a network falls apart into launches one by one, and without WHILE the host drives every loop.
REPLAYED = (
    *("FUSION", "CUBLAS", "CUBLASLT", "CUSTOM_CALL", "CUDNN", "DYNAMIC_SLICE_FUSION", "CONDITIONAL"),  # by default
    *("WHILE", "CONVOLUTION"),
)
LIST = "xla_gpu_enable_command_buffer"
LEAST = "xla_gpu_graph_min_graph_size"


def command_buffer_options() -> dict[str, str | int] | None:
    """Compiler options for graphs on this process's default device; None where XLA's own are to be taken.

    On a CUDA device convolutions and loops are replayed too, and a graph of one command, such as a loop, is one. On any
    other device, and where the user's XLA_FLAGS have a list of their own, XLA's defaults stand.

    Source: https://github.com/openxla/xla/blob/main/xla/xla.proto (DebugOptions.CommandBufferCmdType)
    """
    if LIST in os.environ.get("XLA_FLAGS", "") or not _is_on_cuda():
        return None
    return {LIST: ",".join(REPLAYED), LEAST: 1}


def _is_on_cuda() -> bool:
    default = getattr(jax.config, "jax_default_device", None)
    device = jax.devices(default)[0] if isinstance(default, str) else default or jax.devices()[0]
    return device.platform == "gpu" and "cuda" in device.client.platform_version.lower()
