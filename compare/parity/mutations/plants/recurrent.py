"""Bugs in recurrent layers: gates, biases, directions, states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..edits import Edit, attributes, methods, output, planted, received, variables
from ..plant import Plant

LSTM = [f"{kind}_l0{side}" for side in ("", "_reverse") for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
GRU = [f"{kind}_l{layer}" for layer in (0, 1) for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]


def gates(names: list[str], count: int, order: tuple[int, ...]) -> Edit:
    """The blocks of gates in another order."""

    def change(*values: jax.Array) -> list[jax.Array]:
        blocks = (jnp.split(value, count, axis=-1) for value in values)
        return [jnp.concatenate([each[i] for i in order], -1) for each in blocks]

    return variables(names, change)


def gru(new_gate: Callable[..., jax.Array]) -> Edit:
    """The two layers as plain scans, with another new gate: `(from_input, weight, bias, r, h)` to what tanh takes."""

    def call(self: Any, x: jax.Array, first: jax.Array) -> tuple[jax.Array, jax.Array]:
        x, last = x.swapaxes(0, 1), []
        for layer in (0, 1):
            w_ih, w_hh, b_ih, b_hh = (getattr(self, name)[...] for name in GRU[4 * layer : 4 * layer + 4])

            def step(h: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
                (r, z, n), (r_h, z_h, _) = jnp.split(x @ w_ih + b_ih, 3, -1), jnp.split(h @ w_hh + b_hh, 3, -1)  # noqa: B023
                r, z = jax.nn.sigmoid(r + r_h), jax.nn.sigmoid(z + z_h)
                size = h.shape[-1]
                n = jnp.tanh(new_gate(n, w_hh[:, -size:], b_hh[-size:], r, h))  # noqa: B023
                h = (1 - z) * n + z * h
                return h, h

            h, x = lax.scan(step, first[layer], x)
            last.append(h)
        return x.swapaxes(0, 1), jnp.stack(last)

    return methods(call=call)


def halves_swapped(result: Any) -> Any:
    y, state = result
    return jnp.concatenate(jnp.split(y, 2, -1)[::-1], -1), state


def left_reversed(result: Any) -> Any:
    """The second direction in the order of its own steps."""
    y, state = result
    there, back = jnp.split(y, 2, -1)
    return jnp.concatenate([there, back[:, ::-1]], -1), state


def forget_bias(*values: jax.Array) -> list[jax.Array]:
    return [value + jnp.repeat(jnp.array([0, 1, 0, 0], value.dtype), value.shape[-1] // 4) for value in values]


PLANTS: list[Plant] = [
    *planted("lstm-gate-order", "tagger", "lstm", edit=gates(LSTM, 4, (0, 2, 1, 3))),
    *planted("lstm-gate-order", "tagger", "lstm", edit=gates(LSTM, 4, (0, 1, 3, 2))),
    *planted("gru-gate-order", "tagger", "gru", edit=gates(GRU, 3, (1, 0, 2))),
    *planted("gru-reset-before", "tagger", "gru", edit=gru(lambda n, w, b, r, h: n + (r * h) @ w + b)),
    *planted("gru-hidden-bias", "tagger", "gru", edit=gru(lambda n, w, b, r, h: n + r * (h @ w) + b)),
    *planted("forget-bias", "tagger", "lstm", edit=variables(("bias_ih_l0", "bias_ih_l0_reverse"), forget_bias)),
    *planted("directions-swapped", "tagger", "lstm", edit=output(halves_swapped)),
    *planted("direction-left-reversed", "tagger", "lstm", edit=output(left_reversed)),
    *planted("direction-not-reversed", "tagger", "rnn", edit=received(lambda x: x[:, ::-1])),
    *planted("last-step", "tagger", "", edit=methods(last=lambda self, x: x[:, 0])),
    *planted(
        "first-state-ignored",
        "tagger",
        "gru",
        edit=methods(call=lambda self, x, first: super(type(self), self).__call__(x)),
    ),
    *planted(
        "layers-swapped",
        "tagger",
        "gru",
        edit=variables(("weight_hh_l0", "weight_hh_l1"), lambda first, second: (second, first)),
    ),
    *planted("state-order", "tagger", "gru", edit=output(lambda result: (result[0], result[1][::-1]))),
    *planted("time-axis", "tagger", "rnn", edit=attributes(batch_first=False)),
]
