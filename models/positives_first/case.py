"""A shape that depends on values: boolean indexing against a stable partition."""

import numpy as np
from graphmode.compare.case import Case

from .model import PositivesFirst as Port
from .reference import PositivesFirst, PositivesFirstBySort

LENGTH = 4096
SYNCHRONISES = "boolean indexing reads the number of entries back to the host, which capture forbids"


def ties(rng: np.random.Generator):
    """Few distinct values, zeros of both signs among them."""
    return (rng.choice([-1.0, -0.0, 0.0, 1.0], LENGTH),)


CASE = Case(
    name="positives_first",
    summary="boolean indexing becomes a stable partition by prefix sums",
    reference={"boolean": PositivesFirst, "argsort": PositivesFirstBySort},
    model=Port,
    inputs=lambda rng: (rng.standard_normal(LENGTH),),
    edge_inputs={
        "all positive": lambda rng: (rng.random(LENGTH) + 0.1,),
        "none positive": lambda rng: (-rng.random(LENGTH),),
        "all zero": lambda rng: (np.zeros(LENGTH),),
        "one positive, last": lambda rng: (np.append(-rng.random(LENGTH - 1), 1.0),),
        "ties": ties,
    },
    expected={
        "boolean/torch.cudagraph": SYNCHRONISES,
        "boolean/torch.graphed_callables": SYNCHRONISES,
    },
    tags=("dynamic shape", "small"),
)
