"""Waiting until what a call gave is there: on a GPU by asking again and again, as fast as each framework can."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Literal

import jax
import torch

LONGEST_SPIN_S = 2e-3  # a thread that sleeps takes some 35 us to wake, which is little beyond


def wait_for(framework: Literal["torch", "jax"], device: str) -> Callable[[Any], object]:
    """A function of what a call gave.

    `cudaStreamSynchronize` spins on its processor until the device is done. `jax.block_until_ready` sleeps and is woken
    by another thread (on an H100 beside a slow processor, 95 us for a graph that is there after 61), so on a GPU it is
    called once an array of the result says that it is ready: both sides wait alike. PyTorch's current stream is waited
    for, not the whole device, which takes another 10 us: what runs on other streams is joined to it.
    """
    if framework == "jax":
        return spin_until_ready if device == "gpu" else jax.block_until_ready
    if device == "gpu":
        return lambda result: torch.cuda.current_stream().synchronize()
    return id  # PyTorch on a CPU returns when it is done; the cheapest function there is


def spin_until_ready(result: Any) -> object:
    """`jax.block_until_ready` whose first milliseconds are spent asking; others get the interpreter meanwhile."""
    arrays = jax.tree.leaves(result)
    last: Any = arrays[-1] if arrays else None
    if hasattr(last, "is_ready"):
        end = time.perf_counter() + LONGEST_SPIN_S
        while not last.is_ready() and time.perf_counter() < end:
            os.sched_yield()
    return jax.block_until_ready(result)
