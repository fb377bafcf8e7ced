"""JAX's steps of training: forward, backward and update, and a state that goes on."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from flax import nnx

from graphmode.graph import graphed

from ..jax_side import PortSide
from ..observation import Observation
from ..port_program import PortBatch, PortProgram, TrainState, combine, descending, is_trained, split


class EagerStep:
    """Operation by operation, the update too. A call gives the outputs and the state."""

    _state: TrainState

    def __init__(self, side: PortSide):
        self._side, self._program = side, side.program("train_step")
        self._run: Any = self._program.train_step
        self.reset()

    def __call__(self, batch: PortBatch) -> Any:
        outputs, self._state = self._run(self._state, batch.diff, batch.rest, batch.cotangents)
        return outputs, self._state

    def reset(self) -> None:
        self._state = self._program.start()

    def observe(self, result: Any) -> Observation:
        return self._side.observe_steps(*result)


class DonatedStep(EagerStep):
    """One graph, which writes the new state over the old one."""

    def __init__(self, side: PortSide):
        super().__init__(side)
        self._run = jax.jit(self._program.train_step, donate_argnums=0)


class NnxStep:
    """`nnx.Optimizer` in `nnx.jit`, as Flax's guide has it; a call gives the outputs, and the modules hold the state.

    Source: https://flax.readthedocs.io/en/latest/nnx_basics.html
    """

    def __init__(self, side: PortSide):
        self._side, program = side, side.program("train_step")
        self._model = nnx.merge(program.graphdef, program.params, program.rest, copy=True)
        self._optimizer = nnx.Optimizer(self._model, program.optimizer, wrt=is_trained)
        self._first = _copied(nnx.state((self._model, self._optimizer)))

        @nnx.jit
        def step(model: nnx.Module, optimizer: nnx.Optimizer, diff: Any, rest: Any, cotangents: Any) -> Any:
            def loss(model: Any) -> tuple[jax.Array, Any]:
                args, kwargs = combine(diff, rest)
                outputs = model(*args, **kwargs)
                return _total(program.heads(outputs), cotangents), outputs

            wanted = nnx.DiffState(0, is_trained)
            gradient = nnx.grad(loss, argnums=wanted, has_aux=True, graph=True, graph_updates=True)
            gradients, outputs = gradient(model)
            optimizer.update(model, descending(gradients))
            return outputs

        self._run = step

    def __call__(self, batch: PortBatch) -> Any:
        return self._run(self._model, self._optimizer, batch.diff, batch.rest, batch.cotangents)

    def reset(self) -> None:
        nnx.update((self._model, self._optimizer), _copied(self._first))

    def observe(self, result: Any) -> Observation:
        _, params, rest = split(self._model)
        return self._side.observe_steps(result, TrainState(params, rest, None))


class GraphedStep:
    """`gm.graphed` on the module and the optimizer's state, which stay live; it donates nothing."""

    def __init__(self, side: PortSide, sample: PortBatch, options: dict[str, str] | None):
        self._side, self._program = side, side.program("train_step")
        start = self._program.start()
        self._training = _Training(self._program, start)
        self._first = _copied(nnx.state(self._training))

        def step(training: _Training, diff: Any, rest: Any, cotangents: Any) -> Any:
            outputs, state = self._program.train_step(training.state(), diff, rest, cotangents)
            training.write(state)
            return outputs

        self._run = graphed(step, self._training, sample.diff, sample.rest, sample.cotangents, compiler_options=options)

    def __call__(self, batch: PortBatch) -> Any:
        return self._run(batch.diff, batch.rest, batch.cotangents)

    def reset(self) -> None:
        nnx.update(self._training, _copied(self._first))

    def observe(self, result: Any) -> Observation:
        return self._side.observe_steps(result, self._training.state())


class _Training(nnx.Module):
    """A module and its optimizer's state, flat, in variables that a graph may write."""

    def __init__(self, program: PortProgram, start: TrainState):
        self.model = nnx.merge(program.graphdef, start.params, start.rest, copy=True)
        leaves, self._treedef = jtu.tree_flatten(start.opt_state)
        self.opt_state = nnx.List([nnx.Variable(leaf) for leaf in leaves])

    def state(self) -> TrainState:
        _, params, rest = split(self.model)
        return TrainState(params, rest, jtu.tree_unflatten(self._treedef, [v.get_value() for v in self.opt_state]))

    def write(self, state: TrainState) -> None:
        nnx.update(self.model, state.params, state.rest)
        for variable, leaf in zip(self.opt_state, jtu.tree_leaves(state.opt_state), strict=True):
            variable.set_value(leaf)


def _total(heads: list[jax.Array], cotangents: list[jax.Array] | None) -> jax.Array:
    """The loss: the case's own, or the outputs times their cotangents, summed."""
    if cotangents is None:
        return heads[0]
    return sum((jnp.vdot(head, start) for head, start in zip(heads, cotangents, strict=True)), jnp.zeros(()))


def _copied(state: Any) -> Any:
    return jtu.tree_map(jnp.copy, state)
