"""What a training step carries from batch to batch."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from flax import nnx

from .loss_scaling import Scale


class TrainState(NamedTuple):
    """Everything that a step reads and writes: a pytree that is donated, sharded and saved as a whole.

    Attributes:
      step: int32 []; steps taken, those that were skipped for an overflow included.
      params: `nnx.State` of the trained parameters.
      rest: `nnx.State` of the model's other variables: frozen parameters, running statistics, random-number state.
      optimizer: the optax transformation's state.
      average: averaged parameters, and how many went in (`averaging`); None without.
      scale: of the loss (`LossScaling`); None without.
      bad_step: int32 []; the first step whose loss or gradients were not finite, -1 while there was none. From then on
        nothing changes any more: the state is the one before that step.
    """

    step: jax.Array
    params: nnx.State
    rest: nnx.State
    optimizer: Any
    average: Any
    scale: Scale | None
    bad_step: jax.Array


def check_there(state: Any) -> None:
    """Raises `TypeError` for what is no state, `ValueError` for one whose arrays a step has consumed."""
    if not isinstance(state, TrainState):
        raise TypeError(f"state is a {type(state).__name__}; give the one of init, or of the step before")
    is_deleted = None if isinstance(state.step, jax.core.Tracer) else getattr(state.step, "is_deleted", None)
    if is_deleted is not None and is_deleted():
        raise ValueError("state was consumed by an earlier step; go on with the one which that step returned")
