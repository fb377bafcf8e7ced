"""A parameter that is carried over by name: `w @ x`."""

import optax
from graphmode.compare.case import Case

from .model import WeightedProduct as Port
from .reference import WeightedProduct

IN_FEATURES = 512


def momentum(parameters):
    import torch

    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


CASE = Case(
    name="weighted_product",
    summary="one parameter, carried over by name in its own layout",
    reference=WeightedProduct,
    model=Port,
    inputs=lambda rng: (rng.standard_normal(IN_FEATURES),),
    optimizer=(momentum, optax.sgd(0.01, momentum=0.9)),
    tags=("small",),
)
