"""Steps of training of the PyTorch side, one by one, with all that they make."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from graphmode.weights import as_numpy

from ...case import Case, CaseError, Inputs
from ...checkpoints import gradients_of
from ...draw import generator, signature
from ...errors import describe_briefly
from ...observation import Named, Observation
from ...torch_side import Snapshot, TorchSide, forward_backward
from ...trees import is_floating, named_leaves, to_arrays
from .masks import Masks, drawn
from .steps import Slots, Step

IN_STATE_DICT = ("state", "param_groups", "defaults")
HOOKS = "_optimizer_"  # each optimizer has its own


class ReferenceTrainer:
    """A copy of the reference in float64 that is trained step by step.

    Args:
      module: in float32.
      case: with an optimizer.
      dropout: whether dropout is on.
      seed: of the cotangents, and of what dropout draws.

    Attributes:
      notes: what of another trainer's state could not be taken.
    """

    def __init__(self, module: torch.nn.Module, case: Case, *, dropout: bool, seed: int):
        self.side = TorchSide(module, case, dtype="float64", device="cpu")
        self.module = self.side.set_mode("train_step")
        if dropout:
            for child in self.module.modules():
                if isinstance(child, torch.nn.modules.dropout._DropoutNd):
                    child.train()
        self.dropout, self.seed = dropout, seed
        self.optimizer = self.side.new_optimizer()
        self.masks: Masks = {}  # that the last step drew
        self.notes: list[str] = []
        self._shapes: dict[str, dict[str, tuple[int, ...]]] = {}

    def cotangents(self, inputs: Inputs, number: int) -> dict[str, np.ndarray] | None:
        """Random ones for each floating output; None for a loss."""
        case = self.side.case
        if case.loss is not None:
            return None
        of = signature(inputs)
        if of not in self._shapes:
            batch = self.side.place(inputs, "train_step")
            with self._random(number), Snapshot.of_buffers(self.module).restored(), torch.no_grad():
                leaves = to_arrays(named_leaves(self.module(*batch.args, **batch.kwargs)))
            self._shapes[of] = {k: v.shape for k, v in leaves.items() if is_floating(v)}
        rng = generator(case, self.seed, "lockstep cotangents", number)
        return {k: np.asarray(rng.standard_normal(shape), np.float32) for k, shape in self._shapes[of].items()}

    def step(self, inputs: Inputs, cotangents: Mapping[str, np.ndarray] | None, number: int) -> Step:
        """Forward, backward and update.

        Raises:
          CaseError: where nothing depends on a parameter, or, with dropout, random numbers are drawn elsewhere.
        """
        side = self.side
        batch = side.place(inputs, "forward_backward", cotangents)
        with self._random(number), drawn(self.module, wanted=self.dropout) as self.masks:
            parameters = list(side.parameters.values())
            outputs, gradients = forward_backward(self.module, parameters, batch, side.loss, gradients_of)
        gradients = gradients[: len(side.parameters)], gradients[len(side.parameters) :]
        if all(g is None for g in gradients[0]):
            raise CaseError(
                f"case {side.case.name!r}: in step {number + 1} no parameter of the reference has a gradient; lockstep "
                "needs a floating output that depends on one"
            )
        observed = _copied(side.observe(outputs, [*gradients[0], *gradients[1]], batch))
        return self._stepped(observed, dict(zip(side.parameters, gradients[0], strict=True)))

    def optimize(self, step: Step, gradients: Named) -> Step:
        """This step with the optimizer's part of it made anew, here, of these gradients.

        Args:
          step: that began in the state that this trainer is in.
          gradients: of parameters; one that has none in `step` has none here, and one that is not named has that one's.
        """

        def of(name: str) -> torch.Tensor | None:
            if name in step.absent:
                return None
            theirs = step.observed.parameter_gradients
            return torch.from_numpy(np.array(gradients[name] if name in gradients else theirs[name], np.float64))

        return self._stepped(step.observed, {name: of(name) for name in self.side.parameters})

    def _stepped(self, observed: Observation, gradients: Mapping[str, torch.Tensor | None]) -> Step:
        before = self._parameters()
        for name, parameter in self.side.parameters.items():
            parameter.grad = gradients[name]
        self.optimizer.step()
        after = self._parameters()
        return Step(
            observed=observed,
            slots=self.slots(),
            updates={name: value - before[name] for name, value in after.items()},
            parameters=after,
            absent=frozenset(name for name, gradient in gradients.items() if gradient is None),
        )

    def follow(self, other: ReferenceTrainer) -> None:
        """Takes the other's parameters, buffers and optimizer state."""
        with torch.no_grad():
            pairs = list(
                zip(
                    [*self.module.parameters(), *self.module.buffers()],
                    [*other.module.parameters(), *other.module.buffers()],
                    strict=True,
                )
            )
            for ours, theirs in pairs:
                ours.copy_(theirs)
        self._take(self.optimizer, other.optimizer, {id(theirs): ours for ours, theirs in pairs})

    def _take(self, ours: torch.optim.Optimizer, theirs: torch.optim.Optimizer, memo: dict[int, Any]) -> None:
        """What an optimizer keeps: its `state_dict`, and what it has in attributes, such as a count of its own.

        Args:
          memo: what is ours of theirs, by the identity of theirs.
        """
        ours.load_state_dict(copy.deepcopy(theirs.state_dict()))
        memo[id(theirs)] = ours
        for name, value in vars(theirs).items():
            mine = vars(ours).get(name)
            if isinstance(value, torch.optim.Optimizer) and isinstance(mine, torch.optim.Optimizer):
                self._take(mine, value, memo)
            elif name not in IN_STATE_DICT and not name.startswith(HOOKS) and not callable(value):
                try:
                    setattr(ours, name, copy.deepcopy(value, memo))
                except Exception as error:
                    self.notes.append(
                        f"{name}, which the reference's optimizer keeps beside its state_dict, cannot be copied "
                        f"({describe_briefly(error)}): steps that depend on it may seem off"
                    )

    def state_dict(self) -> Named:
        return {name: as_numpy(value).copy() for name, value in self.module.state_dict().items()}

    def slots(self) -> Slots:
        """The optimizer's state by PyTorch's name of it and of the parameter; none for a parameter that has none."""
        found: Slots = {}
        for name, parameter in self.side.parameters.items():
            for slot, value in self.optimizer.state.get(parameter, {}).items():
                if value is not None:
                    array = as_numpy(value.detach()).copy() if isinstance(value, torch.Tensor) else np.asarray(value)
                    if array.dtype.kind in "iufb":
                        found.setdefault(slot, {})[name] = array.astype(np.float64)
        return found

    def _parameters(self) -> Named:
        named = self.module.named_parameters(remove_duplicate=False)
        return {name: as_numpy(p.detach()).copy() for name, p in named}

    @contextlib.contextmanager
    def _random(self, number: int) -> Iterator[None]:
        """Random numbers of this step alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(hash((self.seed, number)) % 2**63)
            yield


def _copied(observed: Observation) -> Observation:
    """In arrays of its own: a step of the optimizer writes into what an output may be."""

    def each(named: Named) -> Named:
        return {name: np.array(array) for name, array in named.items()}

    return Observation(
        outputs=each(observed.outputs),
        input_gradients=each(observed.input_gradients),
        parameter_gradients=each(observed.parameter_gradients),
        buffers=each(observed.buffers),
        aliases=observed.aliases,
    )
