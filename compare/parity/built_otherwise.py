"""Buffers that a port builds with other values than the reference: they are loaded, and so no answer tells it."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
from flax import nnx

from graphmode.weights.carry import named_arrays

from .yardstick import difference, magnitude

if TYPE_CHECKING:
    from .examination import Examination
    from .judge import Judge

ROUNDED = 1e-5  # of a tensor's scale: what float32 makes of a table that is computed in another order
MOST_NAMED = 3
LARGE = 2_000_000  # numbers, of which the building takes seconds


def built_otherwise(exam: Examination, variant: str, other: Judge, *, but: Container[str] = ()) -> list[str]:
    """What is to be told of them, if anything.

    Args:
      exam: whose judge answered.
      variant: of the port.
      other: a judge of another seed: a buffer that it has otherwise is drawn, and says nothing of the port's.
      but: those of which nothing is told, such as copies of parameters.
    """
    wanted = {name: array for name, array in _always_so(exam.judge, other) if name not in but}
    if not wanted or sum(array.size for array in exam.judge.state_dict.values()) > LARGE:
        return []
    try:
        ours = named_arrays(exam.case.models[variant](nnx.Rngs(exam.seed)), exam.case.weights, but=nnx.Param)
    except Exception:  # it was built abstractly, as it is not to be built
        return []
    told = {name: _apart(ours[name], array) for name, array in wanted.items() if name in ours}
    apart = [f"{name} ({values})" for name, values in told.items() if values]
    if not apart:
        return []
    more = f" and {len(apart) - MOST_NAMED} more" if len(apart) > MOST_NAMED else ""
    warning = (
        f"the port builds {', '.join(apart[:MOST_NAMED])}{more} with other values than the reference: here the "
        "reference's are loaded, so that nothing else tells it; a port that is trained without a checkpoint begins "
        "with its own"
    )
    return [warning]


def _always_so(judge: Judge, other: Judge) -> Iterator[tuple[str, np.ndarray]]:
    """The reference's buffers that do not hang on the seed."""
    known: Mapping[str, np.ndarray] = judge.state_dict
    again: Mapping[str, np.ndarray] = other.state_dict
    for name in judge.exact.buffers:
        if name in known and name in again and np.array_equal(known[name], again[name], equal_nan=True):
            yield name, known[name]


def _apart(ours: np.ndarray, wanted: np.ndarray) -> str:
    """Where they differ; nothing where the port has one number throughout, to be filled by what is loaded."""
    if ours.shape != wanted.shape or not ours.size or (_is_one_number(ours) and not _is_one_number(wanted)):
        return ""
    ours, wanted = ours.astype(np.float64), wanted.astype(np.float64)
    found = difference(ours, wanted, magnitude(wanted) or 1.0)
    place = f" at {list(found.index)}" if found.index else ""
    return f"{float(found.port):.6g} for {float(found.reference):.6g}{place}" if found.error > ROUNDED else ""


def _is_one_number(array: np.ndarray) -> bool:
    return bool((array == array.flat[0]).all())
