"""What `fit` refuses before the first step: arguments of another type, and a start that contradicts another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .checksums import checksums
from .data import BatchSource, as_source
from .evaluation import Evaluation
from .state import TrainState
from .step import TrainStep


def check_types(step: Any, state: Any, evaluation: Any, plateau: Any, checkpoints: Any, loggers: Any) -> None:
    if not isinstance(step, TrainStep):
        raise TypeError(f"step is a {type(step).__name__}; give one of gm.train_step")
    if state is not None and not isinstance(state, TrainState):
        raise TypeError(f"state is a {type(state).__name__}; give the TrainState of step.init(), or leave it out")
    if evaluation is not None and not isinstance(evaluation, Evaluation):
        raise TypeError(f"evaluation is a {type(evaluation).__name__}; give gm.training.Evaluation(data, metrics)")
    if evaluation is not None:
        evaluation.check(step)
    if plateau is not None and not (isinstance(plateau, tuple | list) and len(plateau) == 2):
        raise TypeError(
            f"plateau is a {type(plateau).__name__}; give a pair, (ReduceLROnPlateau(...), name), with the name of the "
            "evaluation's metric that it watches"
        )
    if checkpoints is not None and not hasattr(checkpoints, "restore"):
        raise TypeError(f"checkpoints is a {type(checkpoints).__name__}; give gm.training.Checkpoints(folder)")
    if not isinstance(loggers, Sequence):
        raise TypeError(f"loggers is a {type(loggers).__name__}; give a list of them: [{type(loggers).__name__}(...)]")
    for index, logger in enumerate(loggers):
        if not all(callable(getattr(logger, name, None)) for name in ("log", "close")):
            raise TypeError(
                f"loggers[{index}] is {logger!r}, which has no log(step, metrics) and close(); give JsonLines, "
                "TensorBoard or one of your own that has both"
            )


def check_apart(source: BatchSource, evaluation: Evaluation | None) -> None:
    """Raises `ValueError` where an evaluation would move the source that is trained on."""
    if evaluation is not None and as_source(evaluation.data)._origin is source._origin:
        raise ValueError(
            f"evaluation reads the {type(source).__name__} that data is, which has one position: each evaluation would "
            "move the training elsewhere in it; give Evaluation a source of its own, made as data was"
        )


def check_given_state(given: TrainState, restored: TrainState, checkpoints: Any) -> str:
    """What is to be told of a state that is given beside a checkpoint, from which the run goes on; empty for nothing.

    Raises:
      ValueError: where the given one is of a later step, or of the same one with other values: they would be lost.
    """
    asked, found = int(given.step), int(restored.step)
    way_out = (
        "leave state out to go on from the checkpoint; give another folder, or checkpoints.discard_after"
        f"({min(asked, found) - 1}) before, to go on from the state"
    )
    if asked > found:
        raise ValueError(f"state is of step {asked}, and {checkpoints.folder} has step {found}: {way_out}")
    if asked < found:
        return (
            f"state is of step {asked}, and is not used: the run goes on from step {found} of {checkpoints.folder}; to "
            f"begin anew give another folder, or checkpoints.discard_after({asked - 1}) before"
        )
    own, kept = checksums(given), checksums(restored)
    if other := [name for name in own if own[name] != kept.get(name)]:
        more = f" and {len(other) - 5} more" if len(other) > 5 else ""
        raise ValueError(
            f"state is of step {asked}, as the checkpoint in {checkpoints.folder} is, and has other values of "
            f"{', '.join(other[:5])}{more}: {way_out}"
        )
    return ""
