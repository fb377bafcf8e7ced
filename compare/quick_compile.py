"""How XLA compiles many small graphs in half of the time: without optimisations. Roundings may differ by a unit."""

from collections.abc import Mapping

QUICKLY = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}
"""Options of `jax.jit`."""


def as_flags(options: Mapping[str, object]) -> str:
    """As the environment variable XLA_FLAGS has them."""
    return " ".join(f"--{name}={str(value).lower()}" for name, value in options.items())
