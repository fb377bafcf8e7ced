"""An indexed write: `nonzero` and assignment against a mask."""

import numpy as np
from graphmode.compare.case import Case

from .model import FillZeros as Port
from .reference import FillZeros

BATCH, FEATURES = 48, 96
SYNCHRONISES = "nonzero reads the number of indices back to the host, which capture forbids"


def with_zeros(rng: np.random.Generator, batch: int = BATCH):
    x = rng.standard_normal((batch, FEATURES))
    return (np.where(rng.random(x.shape) < 0.3, 0.0, x),)


CASE = Case(
    name="fill_zeros",
    summary="nonzero and an indexed write become a mask",
    reference=FillZeros,
    model=Port,
    inputs=with_zeros,
    edge_inputs={
        "no zeros": lambda rng: (rng.random((BATCH, FEATURES)) + 0.1,),
        "all zeros": lambda rng: (np.zeros((BATCH, FEATURES)),),
        "negative zeros": lambda rng: (-with_zeros(rng)[0],),
        "batch of one": lambda rng: with_zeros(rng, batch=1),
    },
    expected={"torch.cudagraph": SYNCHRONISES, "torch.graphed_callables": SYNCHRONISES},
    tags=("dynamic shape", "small"),
)
