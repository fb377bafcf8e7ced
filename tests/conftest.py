"""What all tests share: a test marked `gpu` is skipped, with the reason, where a framework sees no CUDA device."""

import functools

import pytest


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
