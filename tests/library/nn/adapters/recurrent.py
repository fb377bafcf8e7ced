"""Adapters of this room: a `PackedSequence` as padded sequences with their lengths, and back."""

import jax.numpy as jnp
import torch
from torch.nn.utils.rnn import PackedSequence

from .base import Adapter


def _flatten(tree):
    """PyTorch's packed sequences as their tensors, the very ones, so that gradients reach them."""
    if isinstance(tree, PackedSequence):
        some = torch.arange(int(tree.batch_sizes[0]))
        return {
            "data": tree.data,
            "batch_sizes": tree.batch_sizes,
            "sorted": some if tree.sorted_indices is None else tree.sorted_indices,
            "unsorted": some if tree.unsorted_indices is None else tree.unsorted_indices,
        }
    if isinstance(tree, tuple | list):
        return type(tree)([_flatten(item) for item in tree])
    return {key: _flatten(value) for key, value in tree.items()} if isinstance(tree, dict) else tree


def _starts(packed):
    return jnp.cumsum(packed["batch_sizes"]) - packed["batch_sizes"]


def _inputs(args, kwargs, layout):
    if not (args and isinstance(args[0], dict)):
        return args, kwargs
    packed = args[0]
    sizes, rank = packed["batch_sizes"][:, None], packed["unsorted"]
    padded = packed["data"][_starts(packed)[:, None] + rank]  # [T, B, ...]
    padded = jnp.where((rank < sizes)[..., None], padded, jnp.nan)
    return (padded, *args[1:]), {**kwargs, "lengths": jnp.sum(rank < sizes, 0)}


def _outputs(outputs, args, kwargs, layout):
    if not (args and isinstance(args[0], dict)):
        return outputs
    packed = args[0]
    row = jnp.arange(len(packed["data"]))
    step = jnp.searchsorted(jnp.cumsum(packed["batch_sizes"]), row, side="right")
    sequence = packed["sorted"][row - _starts(packed)[step]]
    return ({**packed, "data": outputs[0][step, sequence]}, *outputs[1:])


_OVER_TIME = Adapter(inputs=_inputs, outputs=_outputs, flatten=_flatten)

ADAPTERS: dict[str, Adapter] = {
    **dict.fromkeys(["RNN", "LSTM", "GRU"], _OVER_TIME),
    **dict.fromkeys(["RNNCell", "LSTMCell", "GRUCell"], Adapter()),
}
FUNCTION_ADAPTERS: dict[str, Adapter] = {}
