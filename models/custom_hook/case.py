"""A function with its own backward: `torch.autograd.Function` against `jax.custom_vjp` and `gm.opaque`."""

import numpy as np
from graphmode.compare.case import Case

from .model import CustomHook as Port
from .model import OpaqueCustomHook
from .reference import CustomHook

LENGTH = 4096

CASE = Case(
    name="custom_hook",
    summary="a function with its own backward stays whole in the graph: custom_vjp, or a callback to the host",
    reference=CustomHook,
    model={"custom_vjp": Port, "callback": OpaqueCustomHook},
    inputs=lambda rng: (rng.standard_normal(LENGTH),),
    edge_inputs={
        "all negative": lambda rng: (-rng.random(LENGTH) - 0.1,),
        "zeros": lambda rng: (np.where(rng.random(LENGTH) < 0.5, 0.0, rng.standard_normal(LENGTH)),),
    },
    tags=("custom gradient", "small"),
)
