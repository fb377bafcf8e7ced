"""The quick tests of the library compile quickly: most of their time would be XLA's optimisations of small graphs."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(scope="module", autouse=True)
def _quick_to_compile(request: pytest.FixtureRequest) -> Iterator[None]:
    """The slow tests compile as users do."""
    if request.config.getoption("markexpr") != "not slow":
        yield
        return
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()
