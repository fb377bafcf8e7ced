"""How XLA compiles where the last bit of a result counts: the tests' other graphs are compiled quickly."""

AS_FOR_USERS = {
    "xla_backend_optimization_level": 3,
    "xla_llvm_disable_expensive_passes": False,
    "xla_cpu_use_fusion_emitters": True,
}
"""Options of `jax.jit`. Without optimisations tanh is 2e-7 off, and a multiplication and an addition stay two."""
