"""What encoder and decoder share: the activation's word, and copies of a layer."""

from __future__ import annotations

from collections.abc import Callable

import jax
from flax import nnx

from ..activation.functional import gelu, relu
from ..arguments import as_word

Activation = str | Callable[[jax.Array], jax.Array]


def as_activation(activation: Activation) -> Callable[[jax.Array], jax.Array]:
    if isinstance(activation, str):
        return gelu if as_word("activation", activation, ["relu", "gelu"]) == "gelu" else relu
    return activation


def clones(layer: nnx.Module, count: int) -> nnx.List:
    """Copies with the same parameters, each with random streams of its own."""
    copies = []
    for number in range(count):
        copy = nnx.clone(layer, arrays=True)
        for _, node in nnx.iter_graph(copy):
            if isinstance(node, nnx.RngStream):
                node.key.set_value(jax.random.fold_in(node.key.get_value(), number))
        copies.append(copy)
    return nnx.List(copies)
