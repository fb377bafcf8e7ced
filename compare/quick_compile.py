"""How XLA compiles many small graphs in a quarter of the time: without optimisations.

Roundings may differ by a unit, and within one graph: what two of its fusions compute anew, a product and a sum, is one
operation in the one and two in the other. So `x == max(x)` may hold nowhere (jaxlib 0.10 and 0.11, x a batch norm), and
the gradient of the maximum is lost or NaN. Nobody may be accused of what was computed so.
"""

from collections.abc import Mapping
from typing import Any

from jax import __version_info__

SOUNDLY: dict[str, Any] = {
    "xla_backend_optimization_level": 3,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_parallel_codegen_split_count": 1,
    # later ones do not know it, and XLA ends a process in whose flags it finds an unknown one
    **({"xla_cpu_use_fusion_emitters": False} if __version_info__ < (0, 11) else {}),
}
"""Options of `jax.jit`: quicker by a quarter, and as sound as XLA's own."""

QUICKLY: dict[str, Any] = {**SOUNDLY, "xla_backend_optimization_level": 0}
"""The same without optimisations."""


def as_flags(options: Mapping[str, object]) -> str:
    """As the environment variable XLA_FLAGS has them."""
    return " ".join(f"--{name}={str(value).lower()}" for name, value in options.items())
