"""How XLA compiles where the last bit of a result counts: the tests' other graphs are compiled quickly."""

from graphmode.compare.quick_compile import QUICKLY

USUAL = {
    "xla_backend_optimization_level": 3,
    "xla_llvm_disable_expensive_passes": False,
    "xla_cpu_use_fusion_emitters": True,
}
AS_FOR_USERS = {name: value for name, value in USUAL.items() if name in QUICKLY}  # this jaxlib may lack one
"""Options of `jax.jit`. Without optimisations tanh is 2e-7 off, and a multiplication and an addition stay two."""
