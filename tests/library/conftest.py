"""The quick tests of the library compile quickly: most of their time would be XLA's optimisations of small graphs.

A module whose tests look at single roundings says `AS_USERS_COMPILE = True`.
"""

from collections.abc import Iterator
from unittest import mock

import jax
import pytest
from jax._src import compiler

QUICK = {  # half the time of a test; the slow tests compile as users do
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}


@pytest.fixture(scope="module", autouse=True)
def _quick_to_compile(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.config.getoption("markexpr") != "not slow" or getattr(request.module, "AS_USERS_COMPILE", False):
        yield
        return
    usual = compiler.get_compile_options

    def quick(*args, env_options_overrides=None, **kwargs):
        return usual(*args, env_options_overrides={**QUICK, **(env_options_overrides or {})}, **kwargs)

    with mock.patch.object(compiler, "get_compile_options", quick):
        yield
    jax.clear_caches()
