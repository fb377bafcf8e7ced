"""Layers one on another and in both directions over time, and a cell's single step: what checks their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from graphmode.ops import lengths_to_mask

from ..arguments import check_same_dtype
from ..dropout.functional import dropout as drop
from ..dropout.masks import Rngs
from .over_time import State, Way, Weights, over_time
from .steps import Step

Array = jax.Array
States = tuple[Array | None, Array | None]  # hidden and cell, None for zeros


@dataclass(frozen=True)
class Stack:
    """Layers of one kind of cell; arguments as in `functional.lstm`."""

    step: Step
    has_biases: bool
    num_layers: int
    bidirectional: bool
    batch_first: bool
    precision: Any

    def __call__(
        self,
        input: Array,
        hx: States,
        params: Sequence[Array],
        lengths: Array | None,
        dropout: float,
        train: bool,
        rngs: Rngs | None,
        masks: Sequence[Array] | None,
    ) -> tuple[Array, tuple[Array, Array | None]]:
        """The output, and the last states of all layers."""
        weights = self._weights(params)
        if input.ndim not in (2, 3) or input.shape[-1] != weights[0].ih.shape[0]:
            wanted = "[B, T, {0}] or [T, {0}]" if self.batch_first else "[T, B, {0}] or [T, {0}]"
            raise ValueError(
                f"input has shape {tuple(input.shape)}, and {wanted.format(weights[0].ih.shape[0])} was wanted"
            )
        x = self._steps_first(input)
        steps, batch, _ = x.shape
        if steps == 0:
            raise ValueError(f"input has shape {tuple(input.shape)}, which has no step; give at least one")
        states = self._states(hx, weights, input, batch)
        for param in params:
            check_same_dtype(input=input, **_named(self.step, states[0]), params=param)
        valid = None
        if lengths is not None:
            if input.ndim == 2 or jnp.shape(lengths) != (batch,):
                raise ValueError(
                    f"lengths has shape {jnp.shape(lengths)} with an input of shape {tuple(input.shape)}; give one for "
                    "each sequence of a batch, [B]"
                )
            valid = lengths_to_mask(lengths, steps).T[..., None]  # [T, B, 1]
        if masks is not None and [mask.ndim for mask in masks] != [input.ndim] * (self.num_layers - 1):
            shapes = [tuple(mask.shape) for mask in masks]
            raise ValueError(
                f"masks has shapes {shapes}; give one in the shape of the output for each of {self.num_layers - 1} "
                "layers, all but the last"
            )
        last: list[State] = []
        x = _without_padding(x, valid)
        for layer in range(self.num_layers):
            if layer and dropout and train:
                mask = None if masks is None else self._steps_first(masks[layer - 1])
                x = drop(x, dropout, train, rngs=rngs, mask=mask)
            outputs = []
            for direction in range(self._directions):
                way = Way(self.step, reverse=direction == 1, precision=self.precision)
                place = layer * self._directions + direction
                output, state = over_time(way, x, weights[place], states[place], valid)
                outputs.append(_without_padding(output, valid))
                last.append(state)
            x = outputs[0] if len(outputs) == 1 else jnp.concatenate(outputs, axis=-1)
        joined = jax.tree.map(lambda *all: jnp.stack(all), *last)
        if input.ndim == 2:
            return x[:, 0], jax.tree.map(lambda s: s[:, 0], tuple(joined))
        return jnp.swapaxes(x, 0, 1) if self.batch_first else x, tuple(joined)

    @property
    def places(self) -> int:
        """How many there are of layers and directions."""
        return self.num_layers * self._directions

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    def _steps_first(self, array: Array) -> Array:
        """`[T, B, ...]` of an array in the layout of the input."""
        if array.ndim == 2:
            return array[:, None]
        return jnp.swapaxes(array, 0, 1) if self.batch_first else array

    def _weights(self, params: Sequence[Array]) -> list[Weights]:
        """Of every layer and direction."""
        places = self.places
        fewest = 4 if self.has_biases else 2
        each, over = divmod(len(params), places)
        if over or each not in ((fewest, fewest + 1) if self.step.has_cell else (fewest,)):
            raise ValueError(
                f"params has {len(params)} arrays; give {fewest} for each of {places}, num_layers times directions"
                f"{', and one more where the hidden state is projected' if self.step.has_cell else ''}"
            )
        rows = (params[start : start + each] for start in range(0, len(params), each))
        found = []
        for ih, hh, *more in rows:
            biases = more[:2] if self.has_biases else (None, None)
            one = Weights(ih, hh, *biases, *more[2 if self.has_biases else 0 :])
            hidden = hh.shape[-1] // self.step.gates
            shapes = [tuple(w.shape) for w in one if w is not None]
            projected = hidden if one.hr is None else hh.shape[0]
            gates = (self.step.gates * hidden,)
            wanted = [(ih.shape[0], *gates), (projected, *gates), *([gates] * 2 if self.has_biases else [])]
            if shapes != wanted + ([] if one.hr is None else [(hidden, projected)]):
                raise ValueError(
                    f"params of one layer have shapes {shapes}, which do not fit each other as weight_ih [I, G], "
                    f"weight_hh [P, G], biases [G] and weight_hr [H, P] with G = {self.step.gates} H"
                )
            found.append(one)
        return found

    def _states(self, hx: States, weights: list[Weights], input: Array, batch: int) -> list[State]:
        """Before the first step, of every layer and direction."""
        projected, hidden = weights[0].hh.shape[0], weights[0].hh.shape[1] // self.step.gates
        between = () if input.ndim == 2 else (batch,)
        shapes = ((len(weights), *between, projected), (len(weights), *between, hidden))
        states = as_state(self.step, hx, shapes, input.dtype)
        if input.ndim == 2:
            states = jax.tree.map(lambda s: s[:, None], states)
        return [jax.tree.map(lambda s, place=place: s[place], states) for place in range(len(weights))]


def one_step(way: Way, input: Array, hx: States, weights: Weights) -> State:
    """The state after one step; `input [B, I]` or `[I]`, the states `[B, H]` or `[H]`."""
    in_features, hidden = weights.ih.shape[0], weights.hh.shape[0]
    if input.ndim not in (1, 2) or input.shape[-1] != in_features:
        raise ValueError(f"input has shape {tuple(input.shape)}, and [B, {in_features}] or [{in_features}] was wanted")
    if (weights.bias_ih is None) != (weights.bias_hh is None):
        raise ValueError("one of b_ih and b_hh is None; give both or neither")
    shape = (*input.shape[:-1], hidden)
    state = as_state(way.step, hx, (shape, shape), input.dtype)
    check_same_dtype(input=input, **_named(way.step, state), weight=weights.ih)
    after, cell, _ = way.step.push(way.from_input(input, weights), way.from_hidden(state.hidden, weights), *state)
    return State(after, cell)


def as_state(step: Step, hx: States, shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: jnp.dtype) -> State:
    """Zeros where there is None; raises `ValueError` for other shapes than those of hidden and cell."""
    names = ("hx[0]", "hx[1]") if step.has_cell else ("hx",)
    found = []
    for name, given, shape in zip(names, hx, shapes, strict=False):
        if given is not None and jnp.shape(given) != shape:
            raise ValueError(f"{name} has shape {jnp.shape(given)}, and {shape} was wanted to go with the input")
        found.append(jnp.zeros(shape, dtype) if given is None else given)
    return State(found[0], found[1] if step.has_cell else None)


def _named(step: Step, state: State) -> dict[str, Array | None]:
    return {"hx[0]": state[0], "hx[1]": state[1]} if step.has_cell else {"hx": state[0]}


def _without_padding(x: Array, valid: Array | None) -> Array:
    return x if valid is None else jnp.where(valid, x, 0)
