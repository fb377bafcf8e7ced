"""A parameter that is carried over by name: `w @ x`."""

from graphmode.compare.case import Case

from .model import WeightedProduct as Port
from .reference import WeightedProduct

IN_FEATURES = 512

CASE = Case(
    name="weighted_product",
    summary="one parameter, carried over by name in its own layout",
    reference=WeightedProduct,
    model=Port,
    inputs=lambda rng: (rng.standard_normal(IN_FEATURES),),
    tags=("small",),
)
