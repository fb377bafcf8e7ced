"""The cost of the call itself: `2 x + y`."""

from graphmode.compare.case import Case

from .model import ScaleAdd as Port
from .reference import ScaleAdd

LENGTH = 4096

CASE = Case(
    name="scale_add",
    summary="two elementwise operations become one kernel: the cost of the call itself",
    reference=ScaleAdd,
    model=Port,
    inputs=lambda rng: (rng.standard_normal(LENGTH), rng.standard_normal(LENGTH)),
    tags=("small",),
)
