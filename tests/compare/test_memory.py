"""Peak memory: what a step holds for a moment is seen, and what was before is not."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphmode.compare.speed import memory

MIB = 2**20

linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc tells it on Linux alone")


@linux
def test_memory_that_was_freed_again_is_in_the_peak():
    before = memory.baseline("cpu")
    if before is None:
        pytest.skip("this system does not let a process reset its peak")
    np.ones(220 * MIB, np.uint8).sum()
    peak = memory.measured_peak("cpu", "torch", before)
    assert 200 * MIB <= peak < 400 * MIB  # the kernel counts pages in batches


@linux
def test_a_peak_from_before_is_not():
    np.ones(200 * MIB, np.uint8).sum()
    before = memory.baseline("cpu")
    if before is None:
        pytest.skip("this system does not let a process reset its peak")
    assert memory.measured_peak("cpu", "jax", before) < 100 * MIB


def test_where_the_system_does_not_tell(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "_CLEAR", tmp_path / "missing" / "clear_refs")
    assert memory.baseline("cpu") is None
    assert memory.measured_peak("cpu", "torch", None) is None
    monkeypatch.setattr(memory, "_STATUS", tmp_path / "status")
    assert memory.measured_peak("cpu", "torch", 0) is None


def test_the_analysis_of_an_executable():
    compiled = jax.jit(lambda x, y: x @ y).lower(jnp.ones((4, 8)), jnp.ones((8, 3))).compile()
    told = memory.xla_memory(compiled, peak_bytes=7)
    assert (told.arguments_bytes, told.outputs_bytes) == (4 * (4 * 8 + 8 * 3), 4 * 4 * 3)
    assert told.temporaries_bytes >= 0
    assert told.peak_bytes == 7


@pytest.mark.gpu
@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_the_peak_of_an_allocator(framework):
    import torch

    before = memory.baseline("gpu")
    if framework == "torch":
        torch.ones(200 * MIB, dtype=torch.uint8, device="cuda")
    else:
        jnp.ones(200 * MIB, jnp.uint8).block_until_ready()
    assert memory.measured_peak("gpu", framework, before) >= 200 * MIB
