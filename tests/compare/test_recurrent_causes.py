"""Causes of recurrences that go wrong: in loops by hand, and where the wrong one is chaotic."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case
from graphmode.compare.parity.causes import explain
from graphmode.compare.parity.inside.layouts import Layouts, pair
from looked_into import look

from graphmode import nn

SIZE, LENGTH = 4, 6
SHAPES = {"w_ih": (3 * SIZE, 3), "w_hh": (3 * SIZE, SIZE), "b_ih": (3 * SIZE,), "b_hh": (3 * SIZE,)}


class Cells(torch.nn.Module):
    """A function of PyTorch for each step."""

    def __init__(self):
        super().__init__()
        for name, shape in SHAPES.items():
            setattr(self, name, torch.nn.Parameter(torch.randn(shape)))

    def step(self, x, h):
        return torch.gru_cell(x, h, self.w_ih, self.w_hh, self.b_ih, self.b_hh)

    def forward(self, x):
        h = torch.zeros(x.shape[0], SIZE, dtype=x.dtype)
        for t in range(x.shape[1]):
            h = self.step(x[:, t], h)
        return h


class ByHand(Cells):
    """Products and sigmoids alone."""

    def step(self, x, h):
        ir, iz, i_n = (x @ self.w_ih.T + self.b_ih).chunk(3, -1)
        hr, hz, hn = (h @ self.w_hh.T + self.b_hh).chunk(3, -1)
        z = torch.sigmoid(iz + hz)
        return (1 - z) * torch.tanh(i_n + torch.sigmoid(ir + hr) * hn) + z * h


class Port(nnx.Module):
    def __init__(self, rngs, order=(0, 1, 2), reset=True):
        self.order, self.reset = order, reset
        for name, shape in SHAPES.items():
            setattr(self, name, nnx.Param(rngs.normal(shape)))

    def __call__(self, x):
        def gates(w, b, v):
            parts = jnp.split(v @ w[...].T + b[...], 3, -1)
            return [parts[i] for i in self.order]

        def step(h, x):
            (ir, iz, i_n), (hr, hz, hn) = gates(self.w_ih, self.b_ih, x), gates(self.w_hh, self.b_hh, h)
            z = jax.nn.sigmoid(iz + hz)
            return (1 - z) * jnp.tanh(i_n + (jax.nn.sigmoid(ir + hr) if self.reset else 1) * hn) + z * h, None

        return jax.lax.scan(step, jnp.zeros((len(x), SIZE), x.dtype), x.swapaxes(0, 1))[0]


def causes(reference, model, inputs):
    found = look(Case(name="r", summary="s", reference=reference, model=model, inputs=inputs), "inference")
    (divergence,) = found.divergences()
    return explain(found, divergence).causes


def sequences(rng):
    return (rng.standard_normal((2, LENGTH, 3)).astype(np.float32),)


@pytest.mark.parametrize("reference", [Cells, ByHand])
@pytest.mark.parametrize("order", [(1, 0, 2), (2, 0, 1)])
def test_gates_in_another_order_are_named_in_a_loop_by_hand(reference, order):
    (cause, *_) = causes(reference, lambda rngs: Port(rngs, order), sequences)
    assert cause.id in ("gate-order", "pieces-order")


@pytest.mark.parametrize("reference", [Cells, ByHand])
def test_a_gate_that_is_not_applied_is_not_taken_for_another_order(reference):
    assert "gate-order" not in [c.id for c in causes(reference, lambda rngs: Port(rngs, reset=False), sequences)]


class Long(torch.nn.Module):
    """So large weights that a wrong one is chaotic: after some steps nothing of two roundings agrees."""

    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(8, 32, batch_first=True)
        with torch.no_grad():
            for parameter in self.lstm.parameters():
                parameter.normal_(0, 3)

    def forward(self, x):
        return self.lstm(x)[0]


class LongPort(nnx.Module):
    def __init__(self, rngs, *, order=(0, 1, 2, 3), scale=1.0):
        self.lstm = nn.LSTM(8, 32, batch_first=True, rngs=rngs)
        self.order, self.scale = order, scale

    def __call__(self, x):
        lstm = nnx.clone(self.lstm)
        for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
            parts = jnp.split(getattr(lstm, name)[...], 4, -1)
            getattr(lstm, name).set_value(self.scale * jnp.concatenate([parts[i] for i in self.order], -1))
        return lstm(x)[0]


def long(rng):
    return (rng.standard_normal((2, 300, 8)).astype(np.float32),)


def test_a_wrong_recurrence_that_is_chaotic_is_explained_by_the_steps_before_it_grows():
    (cause, *_) = causes(Long, lambda rngs: LongPort(rngs, order=(0, 2, 1, 3)), long)
    assert cause.id == "gate-order"
    assert "i, g, f, o" in cause.says
    assert "what follows is chaotic" in cause.says


def test_chaos_excuses_nothing_that_is_wrong_before_it():
    assert causes(Long, lambda rngs: LongPort(rngs, order=(0, 2, 1, 3), scale=1.0001), long) == []


def test_wrong_tensors_of_one_shape_are_paired_by_their_places():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 3, 4))
    by_place = [("a", 0), ("b", 1)]
    assert [(p.name, p.index) for p in pair([a + 0.5, a + 0.3], {"a": a, "b": b}, Layouts())] == by_place
    other_way = [("a", 1), ("b", 0)]
    assert [(p.name, p.index) for p in pair([b + 1e-3, a + 1e-3], {"a": a, "b": b}, Layouts())] == other_way


class Layers(torch.nn.Module):
    def __init__(self, kind, **settings):
        super().__init__()
        self.rnn = kind(3, SIZE, batch_first=True, **settings)

    def forward(self, x):
        out, state = self.rnn(x)
        return out, state[0] if isinstance(state, tuple) else state


def ports(kind, wrong, **settings):
    """A port whose recurrent layer is wrong in its own `__call__`."""

    class Wrong(kind):
        def __call__(self, x):
            return wrong(super().__call__, x)

    class Whole(nnx.Module):
        def __init__(self, rngs):
            self.rnn = Wrong(3, SIZE, batch_first=True, rngs=rngs, **settings)

        def __call__(self, x):
            out, state = self.rnn(x)
            return out, state[0] if isinstance(state, tuple) else state

    return Whole


def second_left(run, x):
    out, state = run(x)
    there, back = jnp.split(out, 2, -1)
    return jnp.concatenate([there, back[:, ::-1]], -1), state


def both_forward(run, x):
    (out, state), (other, others) = run(x), run(x[:, ::-1])
    out = jnp.concatenate([jnp.split(out, 2, -1)[0], jnp.split(other, 2, -1)[1][:, ::-1]], -1)
    return out, jax.tree.map(lambda one, two: jnp.concatenate([one[:1], two[1:]]), state, others)


def out_changed(change):
    return lambda run, x: (change(run(x)[0]), run(x)[1])


TWO = {"num_layers": 2}
BOTH = {"bidirectional": True}


@pytest.mark.parametrize(
    ("kind", "settings", "wrong", "id", "says"),
    [
        ("LSTM", BOTH, second_left, "time-reversed", "leaves the outputs of the second direction in the order"),
        ("GRU", BOTH, both_forward, "direction", "runs both directions from the first step"),
        (
            "RNN",
            {},
            lambda run, x: run(x[:, ::-1]),
            "time-reversed",
            "reads from the last step, and leaves",
        ),
        ("RNN", {}, out_changed(lambda y: y[:, ::-1]), "time-reversed", "gives its outputs from the last step"),
        ("LSTM", TWO, lambda run, x: (run(x)[0], [s[::-1] for s in run(x)[1]]), "state-order", "gives the last states"),
        (
            "GRU",
            TWO,
            lambda run, x: (run(x.swapaxes(0, 1))[0].swapaxes(0, 1), run(x)[1]),
            None,
            "",
        ),
    ],
)
def test_directions_times_and_states_of_layers_are_named(kind, settings, wrong, id, says):
    case = Case(
        name="layers",
        summary="s",
        reference=lambda: Layers(getattr(torch.nn, kind), **settings),
        model=ports(getattr(nn, kind), lambda run, x: tuple(wrong(run, x)), **settings),
        inputs=lambda rng: (rng.standard_normal((4, LENGTH, 3)),),
    )
    found = look(case, "inference")
    (divergence,) = found.divergences()
    causes = explain(found, divergence).causes
    assert [cause.id for cause in causes] == ([] if id is None else [id])
    assert all(says in cause.says for cause in causes)


def test_a_layer_that_runs_over_the_batch_is_named():
    case = Case(
        name="layers",
        summary="s",
        reference=lambda: Layers(torch.nn.GRU),
        model=ports(nn.GRU, lambda run, x: (run(x.swapaxes(0, 1))[0].swapaxes(0, 1), run(x.swapaxes(0, 1))[1])),
        inputs=lambda rng: (rng.standard_normal((LENGTH, LENGTH, 3)),),
    )
    found = look(case, "inference")
    (divergence,) = found.divergences()
    assert [cause.id for cause in explain(found, divergence).causes] == ["time-axis"]
