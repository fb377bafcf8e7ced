"""Recurrent layers: gates in another order, biases left out, time run the other way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..variants import Called, Variant, of, other_orders
from .recurrent_forms import (
    both_forward,
    first_changed,
    gate_raised,
    halves_swapped,
    last_states_reversed,
    over_the_batch,
    reset_before,
    second_flipped,
    states_reversed,
    states_swapped,
    time_reversed,
    zero_states,
)

GATES = {"lstm": "ifgo", "gru": "rzn", "lstm_cell": "ifgo", "gru_cell": "rzn", "rnn_tanh": "h", "rnn_relu": "h"}


@of(*GATES)
def gates(call: Called) -> Iterator[Variant]:
    names = GATES[call.name]
    held = _held(call)
    if held is None:
        return
    count = len(names)

    def with_weights(make: Any) -> Any:
        return lambda func, args, kwargs: func(
            *held.put(args, [make(i, w) for i, w in enumerate(held.of(args))]), **kwargs
        )

    for order in other_orders(count):
        yield Variant(
            "gate-order",
            f"takes the gates as {', '.join(names[i] for i in order)}",
            f"PyTorch's are {', '.join(names)}",
            with_weights(lambda i, w, order=order: torch.cat([w.chunk(count)[g] for g in order])),
        )
    biases = [i for i, w in enumerate(held.of(call.args)) if w.dim() == 1]
    for kind, chosen in (
        ("all biases", biases),
        ("the biases of the input side", biases[::2]),
        ("the biases of the hidden side", biases[1::2]),
    ):
        if chosen:
            yield Variant(
                "bias-missing",
                f"leaves out {kind}",
                "add both biases",
                with_weights(lambda i, w, chosen=chosen: torch.zeros_like(w) if i in chosen else w),
            )
            yield Variant(
                "bias-twice",
                f"adds {kind} twice",
                "add each once",
                with_weights(lambda i, w, chosen=chosen: w + w if i in chosen else w),
            )
    for gate, letter in enumerate(names if count > 1 else ""):
        yield Variant(
            "gate-bias",
            f"adds 1 to the bias of the gate {letter}",
            "add nothing: PyTorch has no forget bias",
            with_weights(lambda i, w, gate=gate: gate_raised(w, gate, count) if i in biases[::2] else w),
        )
    if call.name == "gru":
        yield Variant(
            "reset-placement",
            "resets the state before it is multiplied",
            "reset the product: n = tanh(W x + b_in + r * (U h + b_hn))",
            reset_before(held.place),
        )
    if call.name.startswith("gru"):
        yield Variant(
            "bias-placement",
            "adds b_hn outside the reset gate",
            "keep b_hn inside: n = tanh(W x + b_in + r * (U h + b_hn))",
            _moved_bias(held),
        )
    for i, w in enumerate(held.of(call.args)):
        if w.dim() == 2 and all(c.shape[0] == c.shape[1] for c in w.chunk(count)):
            yield Variant(
                "weight-transposed",
                "multiplies by a square block of a weight untransposed",
                "PyTorch's weights are [gates * hidden, in]: carry each block transposed",
                with_weights(lambda j, v, i=i: torch.cat([c.T for c in v.chunk(count)]) if j == i else v),
            )


@of("lstm", "gru", "rnn_tanh", "rnn_relu")
def time(call: Called) -> Iterator[Variant]:
    axis = 1 if call.args[-1] is True else 0
    yield Variant(
        "time-reversed",
        "runs from the last step to the first",
        "run from the first",
        lambda func, args, kwargs: time_reversed(func, args, axis),
    )
    yield Variant(
        "time-reversed",
        "reads from the last step, and leaves its outputs in that order",
        "read from the first step; what is reversed going in is reversed again coming out",
        lambda func, args, kwargs: func(args[0].flip(axis), *args[1:], **kwargs),
    )
    yield Variant(
        "time-reversed",
        "gives its outputs from the last step to the first",
        "give them in the order of the steps",
        lambda func, args, kwargs: first_changed(func(*args, **kwargs), lambda out: out.flip(axis)),
    )
    yield Variant(
        "time-axis",
        "runs over the batch as if it were time",
        f"the reference has batch_first={axis == 1}: give the same, or transpose first",
        over_the_batch,
    )
    if call.args[-2] is True:
        yield Variant(
            "time-reversed",
            "leaves the outputs of the second direction in the order of its own steps",
            "reverse them again before they are joined",
            lambda func, args, kwargs: first_changed(func(*args, **kwargs), lambda out: second_flipped(out, axis)),
        )
        yield Variant(
            "direction",
            "runs both directions from the first step",
            "run the second one from the last step, and reverse what it gives",
            lambda func, args, kwargs: both_forward(func, args, axis),
        )
    yield Variant(
        "directions-swapped",
        "has the two directions' outputs in the other order",
        "forward first, then backward",
        lambda func, args, kwargs: halves_swapped(func(*args, **kwargs)),
    )
    yield Variant(
        "state",
        "starts from another state than it is given, zero",
        "start from the given state",
        lambda func, args, kwargs: func(args[0], zero_states(args[1]), *args[2:], **kwargs),
    )
    if isinstance(call.args[1], list | tuple) and len(call.args[1]) == 2:
        yield Variant(
            "state-order",
            "takes h and c in the other order",
            "PyTorch's state is (h, c), Flax's (c, h)",
            lambda func, args, kwargs: func(args[0], list(args[1])[::-1], *args[2:], **kwargs),
        )
        yield Variant(
            "state-order",
            "gives h and c in the other order",
            "PyTorch's state is (h, c), Flax's (c, h)",
            lambda func, args, kwargs: states_swapped(func(*args, **kwargs)),
        )


@of("lstm", "gru", "rnn_tanh", "rnn_relu")
def layers(call: Called) -> Iterator[Variant]:
    """The states of several layers, or directions."""
    states = call.args[1] if isinstance(call.args[1], list | tuple) else [call.args[1]]
    if not isinstance(states[0], torch.Tensor) or states[0].dim() != 3 or states[0].shape[0] < 2:
        return
    yield Variant(
        "state-order",
        "gives the last states of the layers in the other order",
        "PyTorch has the first layer's first",
        lambda func, args, kwargs: last_states_reversed(func(*args, **kwargs)),
    )
    yield Variant(
        "state-order",
        "takes the first states of the layers in the other order",
        "PyTorch has the first layer's first",
        lambda func, args, kwargs: func(args[0], states_reversed(args[1]), *args[2:], **kwargs),
    )


@of("rnn_tanh", "rnn_relu")
def other_activation(call: Called) -> Iterator[Variant]:
    usual, other = ("tanh", "relu") if call.name == "rnn_tanh" else ("relu", "tanh")
    yield Variant(
        "activation",
        f"computes {other} for {usual}",
        f"give nonlinearity={usual!r}",
        lambda func, args, kwargs: getattr(torch, f"rnn_{other}")(*args, **kwargs),
    )


@dataclass(frozen=True)
class _Held:
    """Where the weights stand among a call's arguments: one list of them, or, of a cell, all from a place on."""

    place: int
    listed: bool

    def of(self, args: Sequence[Any]) -> list[torch.Tensor]:
        return list(args[self.place]) if self.listed else [w for w in args[self.place :] if w is not None]

    def put(self, args: Sequence[Any], weights: list[torch.Tensor]) -> list[Any]:
        if self.listed:
            return [*args[: self.place], weights, *args[self.place + 1 :]]
        return [*args[: self.place], *weights, *args[self.place + len(weights) :]]


def _held(call: Called) -> _Held | None:
    if call.name.endswith("_cell"):
        return _Held(2, listed=False) if len(call.args) > 2 and _are_weights(_Held(2, False).of(call.args)) else None
    place = next((i for i, x in enumerate(call.args) if isinstance(x, list | tuple) and _are_weights(x)), None)
    return None if place is None else _Held(place, listed=True)


def _are_weights(values: Sequence[Any]) -> bool:
    return len(values) >= 2 and all(isinstance(v, torch.Tensor) for v in values) and values[0].dim() == 2


def _moved_bias(held: _Held) -> Any:
    def apply(func: Any, args: Any, kwargs: Any) -> Any:
        weights = [w.clone() for w in held.of(args)]
        for i in range(0, len(weights) - 3, 4):
            into, out = weights[i + 2], weights[i + 3]
            size = into.shape[0] // 3
            moved = torch.cat([torch.zeros(2 * size, dtype=out.dtype), out[2 * size :]])
            weights[i + 2], weights[i + 3] = into + moved, out - moved
        return func(*held.put(args, weights), **kwargs)

    return apply
