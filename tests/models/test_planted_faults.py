"""A port with a bug in it must fail, and the correct one pass: planted faults for every small case.

A fault is what it replaces in the case, mostly `model`. Cases with long loops are made small first.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from graphmode.compare import check
from graphmode.models import zoo
from graphmode.models.custom_hook import model as custom_hook
from graphmode.models.double_sine import model as double_sine
from graphmode.models.fill_zeros.model import FillZeros
from graphmode.models.lstm.model import LSTM
from graphmode.models.lstm.reference import HandwrittenLSTM
from graphmode.models.positives_first.model import PositivesFirst
from graphmode.models.stats_rnn.model import StatsRNN
from graphmode.models.weighted_product.model import WeightedProduct
from graphmode.models.weighted_product.reference import WeightedProduct as WeightedProductReference
from jax import lax

import graphmode as gm


@dataclass(frozen=True)
class Planted:
    """A case's faults by name, each as fields that are replaced, and what makes the case small enough for a test."""

    case: str
    faults: dict[str, dict[str, Any]]
    small: dict[str, Any] = field(default_factory=dict)


def of_inputs(function) -> dict[str, Any]:
    """A port without parameters."""

    class Faulty(nnx.Module):
        def __init__(self, rngs):
            pass

        def __call__(self, *inputs):
            return function(*inputs)

    return {"model": Faulty}


def in_place_of(port: type[nnx.Module], function) -> dict[str, Any]:
    """The port with another `__call__`, its parameters kept."""
    return {"model": type("Faulty", (port,), {"__call__": function})}


def with_backward(forward, backward):
    faulty = jax.custom_vjp(forward)
    faulty.defvjp(lambda x: (forward(x), x), lambda x, gradient: (backward(x, gradient),))
    return of_inputs(lambda x: faulty(nnx.relu(x)))


def training(**changes) -> dict[str, Any]:
    """The training loop by optax, in which one thing is changed."""
    optimizer = changes.get("optimizer", optax.adam(0.1))
    scale = changes.get("scale", 1.0)

    def run(x0):
        def loss(x):
            return scale * ((jnp.sin(2 * x) - 1) ** 2).sum()

        def step(carry, _):
            x, state = carry
            value, gradient = jax.value_and_grad(loss)(x)
            updates, state = optimizer.update(gradient, state, x)
            x = optax.apply_updates(x, updates)
            return (x, state), loss(x) if changes.get("late") else value / scale

        (x, _), losses = lax.scan(step, (x0, optimizer.init(x0)), length=20)
        return x, losses

    return of_inputs(run)


def rnn(*, state=jnp.tanh, output=jnp.tanh, use_bias=True, transposed=False, first=0.0, late=False) -> dict[str, Any]:
    def call(self, x):
        u_h = self.u_h[...].T if transposed else self.u_h[...]
        bias = self.b_h[...] if use_bias else 0.0

        def step(h, x):
            new = state(x @ self.w_h[...] + h @ u_h + bias)
            return new, h if late else new

        h, states = lax.scan(step, jnp.full((x.shape[1], u_h.shape[0]), first, x.dtype), x)
        return output(states @ self.w_y[...] + self.b_y[...]), h

    return in_place_of(StatsRNN, call)


LSTM_FEATURES, LSTM_HIDDEN = 6, 9


class SmallLSTM(LSTM):
    def __init__(self, rngs):
        super().__init__(rngs, LSTM_FEATURES, LSTM_HIDDEN)


def lstm(*, order="ifgo", squash=jnp.tanh, forget_bias=0.0, hidden=lambda w: w, second=lambda b: b, late=False):
    """The layer as a plain scan, in which one thing is changed."""

    def call(self, x):
        size = self.weight_hh_l0.shape[0]
        bias = self.bias_ih_l0[...] + second(self.bias_hh_l0[...])

        def step(state, x):
            h, c = state
            total = x @ self.weight_ih_l0[...] + h @ hidden(self.weight_hh_l0[...]) + bias
            gates = dict(zip(order, jnp.split(total, 4, axis=-1), strict=True))
            keep = nnx.sigmoid(gates["f"] + forget_bias)
            new_c = keep * c + nnx.sigmoid(gates["i"]) * jnp.tanh(gates["g"])
            new_h = nnx.sigmoid(gates["o"]) * squash(c if late else new_c)
            return (new_h, new_c), new_h

        zeros = jnp.zeros((x.shape[1], size), x.dtype)
        (h, c), y = lax.scan(step, (zeros, zeros), x)
        return y, h, c

    return in_place_of(SmallLSTM, call)


def each_gate_transposed(w):
    return jnp.concatenate([gate.T for gate in jnp.split(w, 4, axis=1)], axis=1)


def ordered(*parts):
    """Rows by the masks that `parts` make of x, each part in its order, times the weight."""

    def call(self, x):
        rank = jnp.select([part(x) for part in parts], list(range(len(parts))), len(parts))
        return x[jnp.argsort(rank, stable=True)] @ self.w[...]

    return in_place_of(PositivesFirst, call)


def squared_distance(y):
    return ((y - 1) ** 2).sum()


PLANTED = [
    Planted(
        "conditional_scale",
        {
            "branches swapped": of_inputs(lambda x: jnp.where(x.sum() > 0, x + 2, x * 2)),
            ">= for >": of_inputs(lambda x: jnp.where(x.sum() >= 0, x * 2, x + 2)),
            "an elementwise condition": of_inputs(lambda x: jnp.where(x > 0, x * 2, x + 2)),
            "the first element asked": of_inputs(lambda x: jnp.where(x[0] > 0, x * 2, x + 2)),
            "one branch recorded": of_inputs(lambda x: x * 2),
            "another constant": of_inputs(lambda x: jnp.where(x.sum() > 0, x * 2, x + 2.0001)),
            "no gradient through a branch": of_inputs(
                lambda x: lax.cond(x.sum() > 0, lambda x: x * 2, lambda x: lax.stop_gradient(x) + 2, x)
            ),
        },
    ),
    Planted(
        "weighted_product",
        {
            "a square weight transposed": {
                "reference": lambda: WeightedProductReference(96, 96),
                "model": lambda rngs: type("Faulty", (WeightedProduct,), {"__call__": lambda self, x: x @ self.w[...]})(
                    rngs, 96, 96
                ),
                "inputs": lambda rng: (rng.standard_normal(96),),
            },
            "bfloat16 inside": in_place_of(
                WeightedProduct,
                lambda self, x: (self.w[...].astype(jnp.bfloat16) @ x.astype(jnp.bfloat16)).astype(x.dtype),
            ),
            "float32 inside": in_place_of(
                WeightedProduct,
                lambda self, x: (self.w[...].astype(jnp.float32) @ x.astype(jnp.float32)).astype(x.dtype),
            ),
            "no gradient to the weight": in_place_of(
                WeightedProduct, lambda self, x: lax.stop_gradient(self.w[...]) @ x
            ),
            "the last column forgotten": in_place_of(WeightedProduct, lambda self, x: self.w[...][:, :-1] @ x[:-1]),
        },
    ),
    Planted(
        "scale_add",
        {
            "the other input scaled": of_inputs(lambda x, y: x + 2 * y),
            "both scaled": of_inputs(lambda x, y: 2 * (x + y)),
            "subtracted": of_inputs(lambda x, y: 2 * x - y),
            "no gradient to the second": of_inputs(lambda x, y: 2 * x + lax.stop_gradient(y)),
        },
    ),
    Planted(
        "double_sine",
        {
            "the sine doubled": of_inputs(lambda x: 2 * jnp.sin(x)),
            "a cosine": of_inputs(lambda x: jnp.cos(2 * x)),
            "degrees": of_inputs(lambda x: jnp.sin(jnp.deg2rad(2 * x))),
            "float32 inside": of_inputs(lambda x: jnp.sin(2 * x.astype(jnp.float32)).astype(x.dtype)),
            "the loss a mean for a sum": {"loss": (squared_distance, lambda y: ((y - 1) ** 2).mean())},
            "the loss to zeros": {"loss": (squared_distance, lambda y: (y**2).sum())},
        },
    ),
    Planted(
        "double_sine_training",
        {
            "another eps": training(optimizer=optax.adam(0.1, eps=1e-7)),
            "eps inside the root": training(optimizer=optax.adam(0.1, eps=0.0, eps_root=1e-8)),
            "another learning rate": training(optimizer=optax.adam(0.1001)),
            "another beta": training(optimizer=optax.adam(0.1, b2=0.99)),
            "no bias correction": training(optimizer=optax.rmsprop(0.1, decay=0.999, momentum=0.9)),
            "the gradient of a mean": training(scale=1 / 4096),
            "the loss after the step": training(late=True),
            "nesterov": training(optimizer=optax.nadam(0.1)),
            "a learning rate that was tuned": {
                "model": lambda rngs: double_sine.DoubleSineTraining(rngs, learning_rate=0.095)
            },
        },
    ),
    Planted(
        "positives_first",
        {
            "the others first": ordered(lambda x: x <= 0, lambda x: x > 0),
            ">= for >": ordered(lambda x: x >= 0, lambda x: x < 0),
            "zeros last": ordered(lambda x: x > 0, lambda x: x < 0),
            "sorted by value": in_place_of(PositivesFirst, lambda self, x: -jnp.sort(-x) @ self.w[...]),
            "the others reversed": in_place_of(
                PositivesFirst, lambda self, x: x[jnp.lexsort((-jnp.arange(x.size) * (x <= 0), x <= 0))] @ self.w[...]
            ),
            "left in order": in_place_of(PositivesFirst, lambda self, x: x @ self.w[...]),
            "the others dropped": in_place_of(
                PositivesFirst, lambda self, x: gm.partition(jnp.where(x > 0, x, 0), x > 0)[0] @ self.w[...]
            ),
            "no gradient through the order": in_place_of(
                PositivesFirst, lambda self, x: lax.stop_gradient(gm.partition(x, x > 0)[0]) @ self.w[...]
            ),
        },
    ),
    Planted(
        "fill_zeros",
        {
            "negatives filled too": in_place_of(FillZeros, lambda self, x: jnp.where(x <= 0, self.fill[...], x)),
            "almost zeros filled too": in_place_of(
                FillZeros, lambda self, x: jnp.where(jnp.abs(x) < 1e-2, self.fill[...], x)
            ),
            "negative zeros kept": in_place_of(
                FillZeros, lambda self, x: jnp.where((x == 0) & ~jnp.signbit(x), self.fill[...], x)
            ),
            "indices cut at a capacity": in_place_of(
                FillZeros,
                lambda self, x: x.at[jnp.nonzero(x == 0, size=1024, fill_value=x.size)].set(
                    self.fill[...], mode="drop"
                ),
            ),
            "padding indices write": in_place_of(
                FillZeros, lambda self, x: x.at[jnp.nonzero(x == 0, size=x.size, fill_value=0)].set(self.fill[...])
            ),
            "a gradient to what was overwritten": in_place_of(FillZeros, lambda self, x: x + (x == 0) * self.fill[...]),
            "no gradient to the fill": in_place_of(
                FillZeros, lambda self, x: jnp.where(x == 0, lax.stop_gradient(self.fill[...]), x)
            ),
        },
    ),
    Planted(
        "custom_hook",
        {
            "the true derivative": of_inputs(lambda x: 2 * nnx.relu(x) + 10),
            "no relu": of_inputs(custom_hook.hook),
            "the relu after": of_inputs(lambda x: nnx.relu(custom_hook.hook(x))),
            "another constant": with_backward(lambda x: 2 * x + 11, lambda x, g: g * (1 + x)),
            "a backward that drops the gradient": with_backward(lambda x: 2 * x + 10, lambda x, g: 1 + x),
            "a backward that sees the output": with_backward(lambda x: 2 * x + 10, lambda x, g: g * (11 + 2 * x)),
            "float32 on the host": with_backward(
                lambda x: jax.pure_callback(
                    lambda x: (2 * np.float32(x) + np.float32(10)).astype(x.dtype),
                    jax.ShapeDtypeStruct(x.shape, x.dtype),
                    x,
                ),
                lambda x, g: g * (1 + x),
            ),
        },
    ),
    Planted(
        "stats_rnn",
        {
            "no tanh on the state": rnn(state=lambda x: x),
            "no tanh on the output": rnn(output=lambda x: x),
            "the state's bias dropped": rnn(use_bias=False),
            "the square weight transposed": rnn(transposed=True),
            "a first state of ones": rnn(first=1.0),
            "the output of the step before": rnn(late=True),
        },
        small={"inputs": lambda rng: (rng.standard_normal((7, 5, 12)),), "edge_inputs": {}},
    ),
    Planted(
        "lstm",
        {
            "another gate order": lstm(order="igfo"),
            "input and forget swapped": lstm(order="figo"),
            "the second bias dropped": lstm(second=jnp.zeros_like),
            "no gradient to the second bias": lstm(second=lax.stop_gradient),
            "no gradient to the hidden weight": lstm(hidden=lax.stop_gradient),
            "the hidden weight transposed": lstm(hidden=each_gate_transposed),
            "no tanh on the cell": lstm(squash=lambda c: c),
            "a forget bias of one": lstm(forget_bias=1.0),
            "the cell of the step before": lstm(late=True),
        },
        small={
            "reference": lambda: HandwrittenLSTM(LSTM_FEATURES, LSTM_HIDDEN),
            "expected": {},
            "patience": {},
            "model": SmallLSTM,
            "inputs": lambda rng: (rng.standard_normal((20, 5, LSTM_FEATURES)),),
            "edge_inputs": {},
        },
    ),
]

CORRECT = [pytest.param(planted, id=planted.case) for planted in PLANTED]
FAULTY = [
    pytest.param(planted, fault, id=f"{planted.case}: {fault}") for planted in PLANTED for fault in planted.faults
]


def small_case(planted: Planted):
    return replace(zoo.load(planted.case), check_inputs=None, **planted.small)


@pytest.mark.parametrize("planted", CORRECT)
def test_the_correct_port_passes(planted):
    report = check(small_case(planted), seed=0)
    assert report.passed, str(report)


@pytest.mark.parametrize(("planted", "fault"), FAULTY)
def test_the_fault_is_caught(planted, fault):
    changes = planted.faults[fault]
    if "model" in changes:
        changes = {**changes, "expected": {}}  # it may speak of variants of the port
    report = check(replace(small_case(planted), **changes), seed=0, draws=1, locate=False, hasty=True)
    assert not report.passed, str(report)
    assert not report.equal, f"seen in float32 only:\n{report}"


def test_optax_adam_is_the_same_function_and_less_precise():
    """Its bias correction is computed in float32: float64 cannot tell, the error ratio does."""
    report = check(replace(zoo.load("double_sine_training"), **training()), seed=0, locate=False)
    assert report.equal, str(report)
    assert not report.precise, str(report)


def test_the_plain_scan_that_the_lstm_faults_start_from_is_correct():
    planted = next(p for p in PLANTED if p.case == "lstm")
    assert check(replace(small_case(planted), **lstm()), seed=0).passed


def test_the_plain_loops_that_other_faults_start_from_are_correct():
    for name, changes in {
        "stats_rnn": rnn(),
        "positives_first": ordered(lambda x: x > 0),
        "custom_hook": with_backward(lambda x: 2 * x + 10, lambda x, g: g * (1 + x)),
    }.items():
        planted = next(p for p in PLANTED if p.case == name)
        report = check(replace(small_case(planted), **changes), seed=0, draws=1)
        assert report.passed, str(report)
