"""Compiled graphs go with the module that made them: each holds memory maps, of which a process may have few."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(scope="module", autouse=True)
def _compiled_graphs_are_dropped() -> Iterator[None]:
    yield
    jax.clear_caches()
