"""Which learning rate a run goes on with, where the one that is given is another than the one that was kept."""

from __future__ import annotations

import logging
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..optim import Optimizer, OptimizerState

LOG = logging.getLogger(__name__)


def tell_kept_rates(optimizer: Any, state: Any, source: str) -> None:
    """Warns in the log where numbers for `lr` are not those of the state, which count.

    A schedule is followed, whatever the state says, and nothing is told of it.

    Args:
      optimizer: of the step that goes on; one of optax is passed over.
      state: of it, as it was kept.
      source: where from.
    """
    if not isinstance(optimizer, Optimizer) or not isinstance(state, OptimizerState):
        return
    if not (state.lr.is_fully_addressable or state.lr.is_fully_replicated):
        return
    count, held = (jnp.asarray(np.asarray(array)) for array in (state.count, state.lr))  # on one device of this process
    given, kept = (np.asarray(optimizer.stepper.rates(count, lr)) for lr in (None, held))
    if not np.allclose(given, kept, rtol=1e-6, atol=0):  # one in a tensor of PyTorch's is rounded to its dtype
        LOG.warning(
            "lr is given as %s, and %s has %s, which counts; another is given by "
            "gm.optim.with_lr(state.optimizer, lr)", _told(given), source, _told(kept)
        )  # fmt: skip


def tell_scheduled_rates(optimizer: Optimizer, state: OptimizerState) -> None:
    """Warns in the log where PyTorch's rates are not those that the schedules give, which count.

    Args:
      optimizer: of the step that goes on.
      state: made of PyTorch's, with its rates.
    """
    follows, theirs = np.asarray(optimizer.stepper.rates(state.count, state.lr)), np.asarray(state.lr)
    if not np.allclose(follows, theirs, rtol=1e-5, atol=0):
        LOG.warning(
            "lr is a schedule, which gives %s for update %d, and counts; PyTorch's optimizer has %s. Say count= where "
            "the schedule stands elsewhere", _told(follows), int(state.count), _told(theirs)
        )  # fmt: skip


def check_plateau_rates(plateau: Any, optimizer: Any, state: Any) -> None:
    """Raises `ValueError` where a `ReduceLROnPlateau` begins with other rates than the optimizer of the step has.

    Args:
      plateau: which knows its rates; what does not is passed over.
      optimizer: of the step, as is its state; other than ours alone is passed over.
    """
    if not hasattr(plateau, "lr") or not isinstance(optimizer, Optimizer) or not isinstance(state, OptimizerState):
        return
    if any(optimizer.stepper.scheduled(group) for group in range(state.lr.size)):
        raise ValueError("plateau changes the learning rate, and lr is a schedule, which counts; give a number as lr")
    begins, own = np.atleast_1d(np.asarray(plateau.lr, np.float64)), np.asarray(state.lr, np.float64)
    if begins.size not in (1, own.size) or not np.allclose(begins, own, rtol=1e-5, atol=0):
        order = ", the rate of what no Group takes first, then those of groups" if own.size > 1 else ""
        raise ValueError(
            f"plateau begins with lr {_told(begins)}, and the optimizer has {_told(own)}; give ReduceLROnPlateau the "
            f"optimizer's own{order}"
        )


def _told(rates: np.ndarray) -> str:
    return ", ".join(f"{rate:.6g}" for rate in rates.tolist())
