"""How XLA compiles many small graphs in half of the time: without optimisations. Roundings may differ by a unit."""

from collections.abc import Mapping
from typing import Any

from jax import __version_info__

QUICKLY: dict[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    # later ones do not know it, and XLA ends a process in whose flags it finds an unknown one
    **({"xla_cpu_use_fusion_emitters": False} if __version_info__ < (0, 11) else {}),
}
"""Options of `jax.jit`."""


def as_flags(options: Mapping[str, object]) -> str:
    """As the environment variable XLA_FLAGS has them."""
    return " ".join(f"--{name}={str(value).lower()}" for name, value in options.items())
