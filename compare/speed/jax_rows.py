"""JAX's ways of running: op by op, `nnx.jit`, `jax.jit` on split state, and `gm.graphed`."""

from __future__ import annotations

from typing import Any

import jax
from flax import nnx

from graphmode.graph import graphed

from ..case import Mode
from ..jax_side import PortSide
from ..port_program import PortBatch, PortProgram, split
from .jax_training import DonatedStep, EagerStep, GraphedStep, NnxStep
from .rows import Row, Step


def eager(side: PortSide, mode: Mode, sample: PortBatch) -> Step:
    """No jit: each operation is dispatched by itself; a `lax.scan` inside is still one operation."""
    program = side.program(mode)
    if mode == "train_step":
        return EagerStep(side)
    if mode == "inference":
        return lambda batch: program.inference(program.params, program.rest, *batch.call)
    return lambda batch: program.forward_backward(
        program.params, program.rest, batch.diff, batch.rest, batch.cotangents
    )


def nnx_jit(side: PortSide, mode: Mode, sample: PortBatch) -> Step:
    program = side.program(mode)
    if mode == "train_step":
        return NnxStep(side)
    model = nnx.merge(program.graphdef, program.params, program.rest, copy=True)
    if mode == "inference":
        forward = nnx.jit(lambda model, args, kwargs: model(*args, **kwargs))
        return lambda batch: forward(model, *batch.call)
    step = nnx.jit(_stateful(program))
    return lambda batch: step(model, batch.diff, batch.rest, batch.cotangents)


def jit(side: PortSide, mode: Mode, sample: PortBatch) -> Step:
    program = side.program(mode)
    if mode == "train_step":
        return DonatedStep(side)
    if mode == "inference":
        forward = jax.jit(program.inference)
        return lambda batch: forward(program.params, program.rest, *batch.call)
    step = jax.jit(program.forward_backward)
    return lambda batch: step(program.params, program.rest, batch.diff, batch.rest, batch.cotangents)


def graphed_row(side: PortSide, mode: Mode, sample: PortBatch) -> Step:
    return _graphed(side, mode, sample)


def without_command_buffers(side: PortSide, mode: Mode, sample: PortBatch) -> Step:
    """The same kernels launched one by one: beside `jax.graphed`, it tells what XLA's CUDA graphs are worth."""
    return _graphed(side, mode, sample, {"xla_gpu_enable_command_buffer": ""})


def _graphed(side: PortSide, mode: Mode, sample: PortBatch, options: dict[str, str] | None = None) -> Step:
    program = side.program(mode)
    if mode == "train_step":
        return GraphedStep(side, sample, options)
    model = nnx.merge(program.graphdef, program.params, program.rest, copy=True)
    if mode == "inference":
        args, kwargs = sample.call
        forward = graphed(model, *args, compiler_options=options, **kwargs)

        def run(batch: PortBatch) -> Any:
            args, kwargs = batch.call
            return forward(*args, **kwargs)

        return run
    step = graphed(_stateful(program), model, sample.diff, sample.rest, sample.cotangents, compiler_options=options)
    return lambda batch: step(batch.diff, batch.rest, batch.cotangents)


def _stateful(program: PortProgram) -> Any:
    """The training pass on a live module, whose state it updates."""

    def step(model: nnx.Module, diff: Any, rest: Any, cotangents: Any) -> tuple[Any, Any, Any]:
        _, params, state = split(model)
        outputs, gradients, state = program.forward_backward(params, state, diff, rest, cotangents)
        nnx.update(model, state)
        return outputs, gradients, None

    return step


ROWS = (
    Row("jax.eager", "jax", eager),
    Row("jax.nnx_jit", "jax", nnx_jit),
    Row("jax.jit", "jax", jit),
    Row("jax.graphed", "jax", graphed_row),
    Row("jax.graphed.no_command_buffers", "jax", without_command_buffers, needs_cuda=True),
)
