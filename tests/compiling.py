"""How XLA compiles in the tests: quickly, but where the last bit of a result counts."""

from collections.abc import Mapping

QUICKLY = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}
AS_FOR_USERS = {
    "xla_backend_optimization_level": 3,
    "xla_llvm_disable_expensive_passes": False,
    "xla_cpu_use_fusion_emitters": True,
}
"""Options of `jax.jit`. Without optimisations tanh is 2e-7 off, and a multiplication and an addition stay two."""


def as_flags(options: Mapping[str, object]) -> str:
    """As the environment variable XLA_FLAGS has them."""
    return " ".join(f"--{name}={str(value).lower()}" for name, value in options.items())
