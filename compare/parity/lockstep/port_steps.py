"""Steps of training of the port, one by one, from a state of its own or from the reference's."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import optax
from flax import nnx

from graphmode.training.intercept import Hook
from graphmode.weights import load, named_arrays

from ...case import Inputs
from ...jax_side import PortSide
from ...observation import Named
from ...port_program import TrainState, combine, descending, split, starts
from .masks import Masks, PortMasks
from .optimizer_state import StateBook
from .steps import Slots, Step


class PortTrainer:
    """A port in float64 that is trained step by step.

    Args:
      side: the port. Its state is not changed: several trainers may share it.
      book: how its optimizer's state is PyTorch's.
      masks: where dropout is on, which of its dropouts takes whose masks.
    """

    def __init__(self, side: PortSide, book: StateBook, masks: PortMasks | None):
        self.side, self.book, self.masks = side, book, masks
        with side.context():
            self.program = side.program("train_step")
            self.state = self.program.start()
            self._jitted = jax.jit(self._step)

    def twin(self) -> PortTrainer:
        """Another one, from the first state, that runs the same compiled step."""
        other = copy.copy(self)
        with self.side.context():
            other.state = self.program.start()
        return other

    def follow(self, state_dict: Named, slots: Slots | None) -> None:
        """Takes the reference's parameters and buffers, and, where they are known here, what its optimizer keeps."""
        with self.side.context():
            model = nnx.merge(self.program.graphdef, self.state.params, self.state.rest, copy=True)
            load(model, state_dict, self.side.case.weights)
            _, params, rest = split(model)
            opt_state = self.state.opt_state if slots is None else self.book.put(self.state.opt_state, slots)
            self.state = TrainState(params, rest, opt_state)

    def step(self, inputs: Inputs, cotangents: Mapping[str, np.ndarray] | None, masks: Masks) -> Step:
        """Forward, backward and update."""
        side = self.side
        with side.context():
            batch = side.place(inputs, "train_step", cotangents)
            before = self._parameters()
            given = self.state, batch.diff, batch.rest, batch.cotangents
            if self.masks is None:
                outputs, gradients, self.state = self._jitted(*given)
            else:
                # a compiled scan calls a dropout once for all its steps, and each step has a mask
                with jax.disable_jit():
                    self.masks.take(masks)
                    if not self.masks.ready():
                        for through in (self.masks.count, self.masks.fit):
                            self.program.forward(self.state.params, self.state.rest, *batch.call, through=through())
                    outputs, gradients, self.state = self._step(*given, through=self.masks.give())
            observed = side.observe(outputs, batch, gradients, self.state.rest)
            after = self._parameters()
            return Step(
                observed=observed,
                slots=self.book.read(self.state.opt_state),
                updates={name: value - before[name] for name, value in after.items()},
                parameters=after,
            )

    def _step(self, state: TrainState, diff: Any, other: Any, cotangents: Any, through: Hook | None = None) -> Any:
        def forward(params: Any, diff: Any) -> Any:
            return self.program.forward(params, state.rest, *combine(diff, other), through=through)

        heads, pull, (outputs, rest) = jax.vjp(forward, state.params, diff, has_aux=True)
        by_parameters, by_inputs = pull(starts(heads, cotangents))
        updates, opt_state = self.program.optimizer.update(descending(by_parameters), state.opt_state, state.params)
        after = TrainState(optax.apply_updates(state.params, updates), rest, opt_state)
        return outputs, (by_parameters, by_inputs), after

    def _parameters(self) -> Named:
        model = nnx.merge(self.program.graphdef, self.state.params, self.state.rest)
        named = named_arrays(model, self.side.case.weights, of=nnx.Param)
        return {name: value.astype(np.float64) for name, value in named.items()}
