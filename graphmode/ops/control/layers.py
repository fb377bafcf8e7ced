"""`stack_layers`: equal layers as one module with a leading axis, for a scan in place of a loop that is unrolled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
from flax import nnx

from .nnx_operands import described, is_nnx

M = TypeVar("M")


def stack_layers(layers: Sequence[M]) -> M:
    """One module, whose every array has a leading axis `[L]`, from `L` modules of one structure.

    `nnx.scan` over it runs the layers one after another, and is traced and compiled once, whatever `L`; changes that a
    layer makes to itself (batch-norm statistics) end up in its slice.

    Args:
      layers: modules with equal structure, shapes and dtypes; they stay as they are.

    Returns:
      A new module.

    Raises:
      ValueError: where there is no layer, or one differs from the first.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> layers = [nnx.Linear(2, 2, rngs=nnx.Rngs(i)) for i in range(3)]
      >>> run = nnx.scan(lambda layer, x: layer(x), in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
      >>> y = run(stack_layers(layers), jnp.ones((1, 2)))
      >>> wanted = layers[2](layers[1](layers[0](jnp.ones((1, 2)))))
      >>> bool(jnp.allclose(y, wanted))
      True

    Stands for `for layer in self.layers: x = layer(x)`; https://flax.readthedocs.io/en/latest/guides/transforms.html.
    """
    layers = list(layers)
    if not layers:
        raise ValueError("layers is empty, and at least one module was wanted")
    for i, layer in enumerate(layers):
        if not is_nnx(layer):
            raise ValueError(f"layers[{i}] is {type(layer).__name__}, and an NNX module was wanted")
    split = [nnx.split(layer, graph=True) for layer in layers]
    first, states = split[0][0], [state for _, state in split]
    for i, (graphdef, state) in enumerate(split[1:], 1):
        if graphdef != first:
            raise ValueError(
                f"layers[{i}] differs from layers[0] in structure or in an attribute; scan needs equal ones"
            )
        for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(states[0]), jax.tree.leaves(state), strict=True):
            if a.shape != b.shape or a.dtype != b.dtype:
                where = jax.tree_util.keystr(path)
                raise ValueError(f"layers[{i}]{where} is {described(b)}, and layers[0]{where} is {described(a)}")
    return nnx.merge(first, jax.tree.map(lambda *leaves: jnp.stack(leaves), *states))
