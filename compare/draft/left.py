"""What the tables of `tables.py` do not write: what is refused, hinted at, or taken from `written_helpers.py`."""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType
from typing import Any

import torch

from . import written_distributions, written_helpers

# of memory, devices and gradients that a graph has no use for
IGNORED = frozenset(
    ("device", "layout", "pin_memory", "requires_grad", "memory_format", "non_blocking", "copy", "inplace")
)

# functions of `written_helpers.py`, with the arguments that PyTorch's have
HELPERS = frozenset(
    name
    for name, each in vars(written_helpers).items()
    if isinstance(each, FunctionType | type) and each.__module__ == written_helpers.__name__
)

# of `written_distributions.py`
DISTRIBUTIONS: Mapping[Any, str] = {
    getattr(torch.distributions, name): name
    for name, each in vars(written_distributions).items()
    if isinstance(each, type) and each.__module__ == written_distributions.__name__
}

LEGACY: Mapping[Any, str] = {
    torch.FloatTensor: "jnp.float32",
    torch.DoubleTensor: "jnp.float64",
    torch.HalfTensor: "jnp.float16",
    torch.LongTensor: "int",
    torch.IntTensor: "jnp.int32",
    torch.ByteTensor: "jnp.uint8",
    torch.BoolTensor: "bool",
}

# what asks for values or shapes that a graph has not: the row of docs/graphable.md, and what to write
REFUSED: Mapping[str, tuple[str, str]] = {
    "item": ("H01", "keep the 0-d array"),
    "tolist": ("H01", "keep the array"),
    "numpy": ("H02", "gm.opaque, or jnp"),
    "nonzero": ("S04", "gm.nonzero with a capacity"),
    "argwhere": ("S04", "gm.argwhere with a capacity"),
    "masked_select": ("S01", "gm.compact with a capacity"),
    "unique": ("S05", "gm.unique with a capacity"),
    "unique_consecutive": ("S05", "gm.unique_consecutive with a capacity"),
    "bincount": ("S08", "gm.bincount with a length"),
    "multinomial": ("S17", "jax.random.categorical with a key"),
    "randperm": ("S18", "gm.random_permutation"),
    "masked_scatter": ("S03", "gm.masked_scatter"),
    "register_hook": ("G02", "gm.gradient_hook"),
    "register_forward_hook": ("G02", "gm.value_hook"),
    "backward": ("G03", "jax.value_and_grad"),
    "autograd.grad": ("G03", "jax.grad, or jax.vjp with grad_outputs, of a function of what it is taken by"),
    **dict.fromkeys(
        [
            "rand",
            "randn",
            "randint",
            "rand_like",
            "randn_like",
            "randint_like",
            "normal",
            "bernoulli",
            "normal_",
            "uniform_",
        ],
        ("H06", "draw with jax.random and a key of nnx.Rngs, or take the numbers as an argument"),
    ),
}
# what stands in for what no rule writes
HINTS: Mapping[str, str] = {
    "utils.checkpoint.checkpoint_sequential": "call the layers one after the other, in nnx.remat where memory is short",
}
DTYPES: Mapping[str, str] = {
    "float32": "jnp.float32",
    "float64": "jnp.float64",
    "float16": "jnp.float16",
    "bfloat16": "jnp.bfloat16",
    "int64": "int",
    "int32": "jnp.int32",
    "int16": "jnp.int16",
    "int8": "jnp.int8",
    "uint8": "jnp.uint8",
    "bool": "bool",
    "complex64": "jnp.complex64",
    "complex128": "jnp.complex128",
}
