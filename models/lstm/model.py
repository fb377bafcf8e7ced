"""An LSTM over time as one graph, with its backward written out.

The obstacle is the loop: eager code launches a dozen kernels a step and leaves Python between them, and a tracer that
unrolls it makes a graph as long as the sequence. `lax.scan` makes one body of it. Two things are then left to gain:

- What does not need the step before leaves the inner loop: the input's products, and in the backward pass the
  gradients of the input and of both weights. Each runs once for a block of steps, not once for all of them: on a CPU a
  block stays in cache, and all at once is a third slower for the memory it takes.
- Differentiating a scan adds the weight gradients up in its carry, a read and a write of a whole matrix at every step.
  `jax.custom_vjp` lets one product over the block do it.
"""

import math

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from graphmode.weights import LINEAR, carries

BLOCK = 10  # steps; 5 to 25 measure alike

State = tuple[jax.Array, jax.Array]


class LSTM(nnx.Module):
    """`x [T, B, I]` -> `(y [T, B, H], h [B, H], c [B, H])`: one layer, from a zero state.

    Parameters are named as in `torch.nn.LSTM`, gates in its order i, f, g, o; the weights are held transposed,
    `[I, 4 H]` and `[H, 4 H]`. Both biases are kept: under Adam or SGD the two move twice as far as their sum would.
    """

    def __init__(self, rngs: nnx.Rngs, in_features: int = 512, hidden: int = 512):
        def uniform(*shape: int, **metadata):
            bound = hidden**-0.5
            return nnx.Param(jax.random.uniform(rngs.params(), shape, minval=-bound, maxval=bound), **metadata)

        self.weight_ih_l0 = uniform(in_features, 4 * hidden, **carries(LINEAR))
        self.weight_hh_l0 = uniform(hidden, 4 * hidden, **carries(LINEAR))
        self.bias_ih_l0 = uniform(4 * hidden)
        self.bias_hh_l0 = uniform(4 * hidden)

    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        bias = self.bias_ih_l0[...] + self.bias_hh_l0[...]
        return lstm(x, self.weight_ih_l0[...], self.weight_hh_l0[...], bias)


@jax.custom_vjp
def lstm(x: jax.Array, w_ih: jax.Array, w_hh: jax.Array, bias: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """`x [T, B, I]`, `w_ih [I, 4 H]`, `w_hh [H, 4 H]`, `bias [4 H]` -> `(y [T, B, H], h [B, H], c [B, H])`."""
    (h, c), (y, _, _) = _scan_forward(x, w_ih, w_hh, bias)
    return y, h, c


def _scan_forward(x, w_ih, w_hh, bias) -> tuple[State, tuple[jax.Array, jax.Array, jax.Array]]:
    """The last state, and of every step h, c `[T, B, H]` and the gates `[T, B, 4 H]`."""

    def step(state: State, projected):
        h, c = state
        i, f, g, o = jnp.split(projected + h @ w_hh, 4, axis=-1)
        i, f, g, o = nnx.sigmoid(i), nnx.sigmoid(f), jnp.tanh(g), nnx.sigmoid(o)
        c = f * c + i * g
        h = o * jnp.tanh(c)
        return (h, c), (h, c, jnp.concatenate([i, f, g, o], axis=-1))

    def block(state: State, x):  # x [K, B, I]
        return lax.scan(step, state, x @ w_ih + bias)

    zeros = jnp.zeros_like(x, shape=(x.shape[1], w_hh.shape[0]))
    state, history = lax.scan(block, (zeros, zeros), _to_blocks(x))
    return state, jax.tree.map(_from_blocks, history)


def _forward(x, w_ih, w_hh, bias):
    (h, c), history = _scan_forward(x, w_ih, w_hh, bias)
    return (history[0], h, c), (x, w_ih, w_hh, history)


def _backward(saved, gradients):
    x, w_ih, w_hh, (y, cells, gates) = saved
    dy, dh, dc = gradients
    w_ih_t, w_hh_t = w_ih.T, w_hh.T

    def step(state: State, inputs):
        dh, dc = state
        dy, c, c_before, gates = inputs
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        tanh_c = jnp.tanh(c)
        dh = dh + dy
        dc = dc + dh * o * (1 - tanh_c**2)
        di, df, dg, do = (
            dc * g * i * (1 - i),
            dc * c_before * f * (1 - f),
            dc * i * (1 - g**2),
            dh * tanh_c * o * (1 - o),
        )
        dgates = jnp.concatenate([di, df, dg, do], axis=-1)
        return (dgates @ w_hh_t, dc * f), dgates

    def block(carry, inputs):
        state, (dw_ih, dw_hh, dbias) = carry
        x, h_before, *rest = inputs
        state, dgates = lax.scan(step, state, tuple(rest), reverse=True)  # dgates [K, B, 4 H]
        dw_ih += jnp.einsum("kbi,kbg->ig", x, dgates)
        dw_hh += jnp.einsum("kbh,kbg->hg", h_before, dgates)
        return (state, (dw_ih, dw_hh, dbias + dgates.sum((0, 1)))), dgates @ w_ih_t

    sums = jnp.zeros_like(w_ih), jnp.zeros_like(w_hh), jnp.zeros_like(w_ih, shape=w_ih.shape[1:])
    inputs = x, _one_step_later(y), dy, cells, _one_step_later(cells), gates
    (_, sums), dx = lax.scan(block, ((dh, dc), sums), tuple(map(_to_blocks, inputs)), reverse=True)
    return _from_blocks(dx), *sums


lstm.defvjp(_forward, _backward)


def _one_step_later(a: jax.Array) -> jax.Array:
    return jnp.concatenate([jnp.zeros_like(a[:1]), a[:-1]])


def _to_blocks(a: jax.Array) -> jax.Array:
    """`[T, ...]` -> `[T / K, K, ...]`, where K divides T and `BLOCK`."""
    return a.reshape(-1, math.gcd(a.shape[0], BLOCK), *a.shape[1:])


def _from_blocks(a: jax.Array) -> jax.Array:
    return a.reshape(-1, *a.shape[2:])
