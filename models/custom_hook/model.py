"""A function with a backward of its own, kept whole inside a graph.

The obstacle is `torch.autograd.Function`: code that a tracer must not look into, with a backward that is not the
derivative of its forward. `jax.custom_vjp` carries the backward. Where the forward is plain array code it can be traced
and fused like any other; where it is foreign code, here numpy, `gm.opaque` puts it into the graph as a box that only
says what shape comes out, at the price of a trip to the host.
"""

import jax
import numpy as np
from flax import nnx

import graphmode as gm


@jax.custom_vjp
def hook(x: jax.Array) -> jax.Array:
    """`2 x + 10`, whose backward is `gradient * (1 + x)` and so on purpose not its derivative."""
    return 2 * x + 10


def opaque_hook(x: jax.Array) -> jax.Array:
    """`hook` with a forward that the tracer cannot see."""

    def backward(args: tuple[jax.Array], outputs: jax.Array, gradient: jax.Array) -> tuple[jax.Array]:
        return _backward(args[0], gradient)

    return gm.opaque(_host_forward, x, result=x, backward=backward, vmap_method="expand_dims")


def _host_forward(x: np.ndarray) -> np.ndarray:
    return 2 * x + 10


def _backward(x: jax.Array, gradient: jax.Array) -> tuple[jax.Array]:
    return (gradient * (1 + x),)


hook.defvjp(lambda x: (hook(x), x), _backward)


class CustomHook(nnx.Module):
    """`[N]` -> `[N]`: relu, then `hook`."""

    def __init__(self, rngs: nnx.Rngs): ...

    def __call__(self, x: jax.Array) -> jax.Array:
        return hook(nnx.relu(x))


class OpaqueCustomHook(nnx.Module):
    """The same with the forward of the hook on the host."""

    def __init__(self, rngs: nnx.Rngs): ...

    def __call__(self, x: jax.Array) -> jax.Array:
        return opaque_hook(nnx.relu(x))
