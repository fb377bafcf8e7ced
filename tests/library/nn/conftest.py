"""Small graphs are compiled once for all workers of a run, and dropped before a process holds too many of them."""

from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

MOST_MAPS = (
    20_000  # each compiled graph holds several; a process may have 65,530 on Linux, and XLA dies of the next one
)
MAPS = Path("/proc/self/maps")


@pytest.fixture(scope="module", autouse=True)
def _compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The judge runs most layers operation by operation, each of which is a graph."""
    shared = tmp_path_factory.getbasetemp().parent / "graphs"  # of all workers of a run
    wanted = {
        "jax_compilation_cache_dir": str(shared),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in wanted}
    for name, value in wanted.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    jax.clear_caches()


@pytest.fixture(autouse=True)
def _few_graphs() -> Iterator[None]:
    yield
    if MAPS.exists() and len(MAPS.read_bytes().splitlines()) > MOST_MAPS:
        jax.clear_caches()
