"""Training is compared in float64 where a test asks for it."""

from collections.abc import Iterator

import pytest
from torch_loops import in_double


@pytest.fixture
def double() -> Iterator[None]:
    with in_double():
        yield
