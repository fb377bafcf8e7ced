"""What all tests share: a `gpu` test is skipped, with the reason, where no CUDA device is seen; no deadlines."""

import functools
import signal
from collections.abc import Iterator

import hypothesis
import pytest
from graphmode.compare.speed.environment import spin_briefly

spin_briefly()

# an example that compiles takes long once, and a loaded machine is slow at any
hypothesis.settings.register_profile("no_deadline", parent=hypothesis.settings(), deadline=None)
hypothesis.settings.load_profile("no_deadline")


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C works, in children too, where the tests were started with it ignored, as in the background of a shell."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@functools.cache
def why_no_gpu() -> str | None:
    import jax

    try:
        jax.devices("cuda")
    except RuntimeError:
        return "JAX sees no CUDA device"
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed"
    return None if torch.cuda.is_available() else "PyTorch sees no CUDA device"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("gpu") and (reason := why_no_gpu()):
            item.add_marker(pytest.mark.skip(reason=reason))
