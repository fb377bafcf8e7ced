"""Launches of next to nothing: what is left of a step when its work is taken away."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from graphmode.graph import graphed

from .waiting import wait_for

TORCH_OPERATION = "empty torch operation"
JIT_CALL = "empty jax.jit call"
GRAPHED_CALL = "empty graphed call"
SCAN_STEP = "empty scan step"  # a body this small is compiled into the loop
SCAN_STEP_OF_A_PRODUCT = "scan step of one 8x8 product"  # XLA calls its kernels one by one
ONNX_CALL = "empty ONNX Runtime call"
CUDA_KERNEL = "empty CUDA kernel"
CUDA_GRAPH_NODE = "CUDA graph node"

SCAN_STEPS = 2000
GRAPH_NODES = 1000
Launch = tuple[str, Callable[[], object], float]

# Relu of one float, as onnx.helper serialises it: to import onnx for it takes longer than all measurements here.
_RELU = (
    b'\x08\n:3\n\x0c\n\x01x\x12\x01y"\x04Relu\x12\x01gZ\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01'
    b"b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01B\x04\n\x00\x10\x12"
)


def launches(device: str, stack: contextlib.ExitStack) -> Iterator[Launch]:
    """The name of each, a call that runs it to its end, and how many launches one call holds."""
    stack.enter_context(torch.no_grad())
    ready = wait_for("jax", device)
    one = torch.zeros(1, device="cuda" if device == "gpu" else "cpu")
    x = jnp.zeros(1)
    jitted = jax.jit(lambda x: x + 1)
    graph = graphed(lambda x: x + 1, x)
    if device == "cpu":
        yield TORCH_OPERATION, lambda: one.add_(1), 1
    else:
        yield from _on_gpu(one)
    yield JIT_CALL, lambda: ready(jitted(x)), 1
    yield GRAPHED_CALL, lambda: ready(graph(x)), 1
    small, product = _scan(lambda c: c + 1), _scan(lambda c: jnp.tanh(c @ jnp.full((8, 8), 0.1)))
    square = jnp.ones((8, 8))
    yield SCAN_STEP, lambda: ready(small(x)), SCAN_STEPS
    yield SCAN_STEP_OF_A_PRODUCT, lambda: ready(product(square)), SCAN_STEPS
    if device == "cpu":
        yield from _onnx()


def _scan(body: Callable[[jax.Array], jax.Array]) -> Any:
    return jax.jit(lambda x: jax.lax.scan(lambda c, _: (body(c), None), x, None, length=SCAN_STEPS)[0])


def _onnx() -> Iterator[Launch]:
    try:
        import onnxruntime
    except ImportError:
        return
    session = onnxruntime.InferenceSession(_RELU, providers=["CPUExecutionProvider"])
    feed = {"x": np.zeros(1, np.float32)}
    yield ONNX_CALL, lambda: session.run(None, feed), 1


def _on_gpu(one: torch.Tensor) -> Iterator[Launch]:
    """An operation is waited for as a call of JAX's is; kernels and nodes are those of many with one wait."""

    wait = wait_for("torch", "gpu")

    def operation() -> None:
        wait(one.add_(1))

    def kernels() -> None:
        for _ in range(GRAPH_NODES):
            torch.cuda._sleep(0)
        wait(None)

    graph = torch.cuda.CUDAGraph()
    one.add_(1)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # JAX has threads in this process
        for _ in range(GRAPH_NODES):
            one.add_(1)

    def replay() -> None:
        graph.replay()
        wait(None)

    yield TORCH_OPERATION, operation, 1
    yield CUDA_KERNEL, kernels, GRAPH_NODES
    yield CUDA_GRAPH_NODE, replay, GRAPH_NODES
