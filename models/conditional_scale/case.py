"""Branch on a value: eager `if` against `jnp.where` and `lax.cond`."""

import numpy as np
from graphmode.compare.case import Case

from .model import CondScale, WhereScale
from .reference import ConditionalScale

LENGTH = 4096


def normal(rng: np.random.Generator):
    return (rng.standard_normal(LENGTH),)


def cancelling(rng: np.random.Generator):
    """Whole numbers and their negatives, shuffled: the sum is zero in every order and every dtype."""
    half = rng.integers(-9, 10, LENGTH // 2).astype(np.float64)
    return (rng.permutation(np.concatenate([half, -half])),)


NEEDS_THE_VALUE = "the branch needs the sum's value, and capture forbids the synchronisation that reads it"
NOT_EXPORTABLE = "torch.export cannot decide a branch on a value"

CASE = Case(
    name="conditional_scale",
    summary="a branch on a value becomes jnp.where, or lax.cond where only one side shall run",
    reference=ConditionalScale,
    model={"where": WhereScale, "cond": CondScale},
    inputs=normal,
    edge_inputs={
        "positive sum": lambda rng: (rng.random(LENGTH) + 0.1,),
        "negative sum": lambda rng: (-rng.random(LENGTH) - 0.1,),
        "all zero": lambda rng: (np.zeros(LENGTH),),
        "sum exactly zero": cancelling,
    },
    expected={
        "torch.trace": "records only the branch that the example input took",
        "torch.cudagraph": NEEDS_THE_VALUE,
        "torch.graphed_callables": NEEDS_THE_VALUE,
        "torch.aoti": NOT_EXPORTABLE,
        "onnxruntime": NOT_EXPORTABLE,
    },
    tags=("control flow", "small"),
)
