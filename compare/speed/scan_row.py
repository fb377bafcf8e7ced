"""`jax.scan`: several steps in one launch, with no Python between them."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax

from graphmode.graph import command_buffer_options

from ..case import TRAIN_STEPS, Mode
from ..jax_side import PortSide
from ..observation import Observation
from ..port_program import PortBatch, PortProgram, TrainState
from .jax_training import EagerStep
from .rows import Row, Step

K = 10  # steps a launch


def stacked(batch: PortBatch) -> PortBatch:
    """The batch `K` times, `[K, ...]`: each step reads memory of its own, or XLA would take a step's work out of the
    loop as being the same each time."""

    def stack(tree: Any) -> Any:
        return jtu.tree_map(lambda x: jnp.tile(x, (K, *(1,) * jnp.ndim(x))), tree)

    return dataclasses.replace(
        batch, diff=stack(batch.diff), rest=stack(batch.rest), cotangents=stack(batch.cotangents)
    )


def last(result: Any) -> Any:
    """Of what `scan` gave, what `PortSide.observe` takes: inference gives the outputs of all `K` steps, of which the
    last is taken; forward and backward keep the last step's."""
    mode, given = result
    return jtu.tree_map(lambda x: x[-1], given) if mode == "inference" else given


def scan(side: PortSide, mode: Mode, sample: PortBatch) -> Step:
    program = side.program(mode)
    if mode == "train_step":
        return ScannedSteps(side)
    if mode == "inference":
        forward = jax.jit(_inference(program), compiler_options=command_buffer_options())
        return lambda batch: (mode, forward(program.params, program.rest, *batch.call))
    step = jax.jit(_forward_backward(program), compiler_options=command_buffer_options())
    return lambda batch: (mode, step(program.params, program.rest, batch.diff, batch.rest, batch.cotangents))


def _inference(program: PortProgram) -> Any:
    def run(params: Any, rest: Any, args: Any, kwargs: Any) -> Any:
        def body(carry: None, call: Any) -> tuple[None, Any]:
            return carry, program.inference(params, rest, *call)

        return lax.scan(body, None, (args, kwargs), length=K)[1]

    return run


def _forward_backward(program: PortProgram) -> Any:
    """The running statistics go from step to step; of outputs and gradients only the last are kept, since `K` times
    the gradients of a large model do not fit."""

    def run(params: Any, rest: Any, diff: Any, other: Any, cotangents: Any) -> tuple[Any, Any, Any]:
        def body(carry: tuple[Any, Any, Any], given: tuple[Any, Any, Any]) -> tuple[tuple[Any, Any, Any], None]:
            return program.forward_backward(params, carry[2], *given), None

        first = jtu.tree_map(lambda x: x[0], (diff, other, cotangents))
        outputs, gradients, _ = jtu.tree_map(
            lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
            jax.eval_shape(program.forward_backward, params, rest, *first),
        )
        return lax.scan(body, (outputs, gradients, rest), (diff, other, cotangents), length=K)[0]

    return run


class ScannedSteps(EagerStep):
    """Parameters and optimizer state as the carry, donated; a call gives the outputs of all `K` steps, and the state.

    The judge's last step is one in the middle of a launch, and its outputs are what is observed: they depend on every
    update before it. What the later steps make of the parameters has no counterpart.
    """

    def __init__(self, side: PortSide):
        super().__init__(side)
        program = self._program

        def run(state: TrainState, diff: Any, other: Any, cotangents: Any) -> tuple[Any, TrainState]:
            def body(state: TrainState, given: tuple[Any, Any, Any]) -> tuple[TrainState, Any]:
                outputs, state = program.train_step(state, *given)
                return state, outputs

            state, outputs = lax.scan(body, state, (diff, other, cotangents), length=K)
            return outputs, state

        self._run = jax.jit(run, donate_argnums=0, compiler_options=command_buffer_options())

    def observe(self, result: Any) -> Observation:
        outputs, _ = result
        return self._side.observe_steps(jtu.tree_map(lambda x: x[TRAIN_STEPS - 1], outputs))


ROWS = (
    Row(
        "jax.scan",
        "jax",
        scan,
        left_out="steps that do not feed each other gain nothing from it there",
        kept_in=("train_step",),
        steps_per_call=K,
        pack=stacked,
        unpack=last,
    ),
)
