"""A port in one mode as pure functions of flat state: what every JAX row runs, each in its way."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import optax
from flax import nnx

from graphmode.training.intercept import Hook, intercepted

from .case import Case, CaseError, Mode
from .scalar_loss import scalar_loss
from .trees import is_floating
from .wide_counts import with_wide_counts


class TrainState(NamedTuple):
    """What a step of training starts from, and leaves.

    Attributes:
      params: floating `nnx.Param`s, by path.
      rest: all other state of the module.
      opt_state: the optimizer's, as optax gives it.
    """

    params: Any
    rest: Any
    opt_state: Any


@dataclass(frozen=True)
class PortBatch:
    """One set of inputs in the port's layout, on the device.

    Attributes:
      diff, rest: the inputs, `(args, kwargs)`, floating leaves in the one and all others in the other, None elsewhere.
      cotangents: for each floating leaf of the port's outputs, in order; None for a loss.
      source: the inputs in the reference's layout, placed; input gradients are taken back to it.
    """

    diff: Any
    rest: Any
    cotangents: list[jax.Array] | None
    source: Any

    @functools.cached_property
    def call(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The inputs as the port takes them; put together once, since a row asks at each call."""
        return combine(self.diff, self.rest)


class PortProgram:
    """A module in one mode, taken apart.

    Args:
      model: set to the mode.
      case: for its loss, layout and optimizer.
      around: gives what the model is called in.

    Attributes:
      graphdef: static.
      params: floating `nnx.Param`s, which gradients are taken by.
      rest: all other state.
    """

    def __init__(self, model: nnx.Module, case: Case, around: Callable[[], AbstractContextManager[None]] = nullcontext):
        self._around = around
        self.graphdef, self.params, self.rest = split(model)
        self._case = case
        self._loss = case.loss[1] if case.loss else None

    def is_like(self, other: PortProgram) -> bool:
        """Whether a graph of the other one is one of this, too: all that is static is the same, and all shapes are."""

        def shapes(program: PortProgram) -> Any:
            return jtu.tree_map(lambda x: (np.shape(x), x.dtype), (program.params, program.rest))

        return self.graphdef == other.graphdef and shapes(self) == shapes(other)

    @property
    def optimizer(self) -> optax.GradientTransformationExtraArgs:
        assert self._case.optimizer is not None  # the case saw to that
        return with_wide_counts(self._case.optimizer[1])

    def start(self) -> TrainState:
        """The first state, in arrays of its own: a step may be given them to overwrite.

        Raises:
          CaseError: where there is nothing to train.
        """
        if not jtu.tree_leaves(self.params):
            raise CaseError(
                f"case {self._case.name!r}: train_step needs floating nnx.Params, and the port has none; leave "
                "train_step out of modes"
            )
        return jtu.tree_map(jnp.copy, TrainState(self.params, self.rest, self.optimizer.init(self.params)))

    def inference(self, params: Any, rest: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Outputs in the port's layout."""
        model = nnx.merge(self.graphdef, params, rest, copy=True)
        with self._around():
            return model(*args, **kwargs)

    def call(self, params: Any, rest: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Outputs in the port's layout, and the state after the call."""
        return self.forward(params, rest, args, kwargs, with_heads=False)[1]

    def writes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a call gives other state than it takes."""
        closed, shapes = jax.make_jaxpr(self.call, return_shape=True)(self.params, self.rest, args, kwargs)
        first, count = len(jtu.tree_leaves(self.params)), len(jtu.tree_leaves(self.rest))
        before = closed.jaxpr.invars[first : first + count]
        after = closed.jaxpr.outvars[len(jtu.tree_leaves(shapes[0])) :]
        return len(after) != len(before) or any(a is not b for a, b in zip(after, before, strict=True))

    def forward_backward(
        self, params: Any, rest: Any, diff: Any, other: Any, cotangents: list[jax.Array] | None
    ) -> tuple[Any, tuple[Any, Any], Any]:
        """Outputs, gradients by parameters and by floating inputs, and the state after the step."""

        def forward(params: Any, diff: Any) -> tuple[list[jax.Array], tuple[Any, Any]]:
            return self.forward(params, rest, *combine(diff, other))

        heads, pull, (outputs, state) = jax.vjp(forward, params, diff, has_aux=True)
        return outputs, pull(starts(heads, cotangents)), state

    def train_step(
        self, state: TrainState, diff: Any, other: Any, cotangents: list[jax.Array] | None
    ) -> tuple[Any, TrainState]:
        """Outputs, and the state after forward, backward and update."""

        def forward(params: Any) -> tuple[list[jax.Array], tuple[Any, Any]]:
            return self.forward(params, state.rest, *combine(diff, other))

        heads, pull, (outputs, rest) = jax.vjp(forward, state.params, has_aux=True)
        gradients = descending(pull(starts(heads, cotangents))[0])
        updates, opt_state = self.optimizer.update(gradients, state.opt_state, state.params)
        return outputs, TrainState(optax.apply_updates(state.params, updates), rest, opt_state)

    def heads(self, outputs: Any) -> list[jax.Array]:
        """What the backward pass starts at: the loss, or each floating output."""
        if self._loss is not None:
            return [scalar_loss(self._loss(self._case.to_reference(outputs)), "jax")]
        leaves = (jnp.asarray(leaf) if isinstance(leaf, float) else leaf for leaf in jtu.tree_leaves(outputs))
        return [leaf for leaf in leaves if is_floating(leaf)]

    def forward(
        self,
        params: Any,
        rest: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        through: Hook | None = None,
        with_heads: bool = True,
    ) -> tuple[list[jax.Array], tuple[Any, Any]]:
        """What the backward pass starts at, and, beside it, the outputs and the state after the call.

        Each call of a module goes through `through`, where there is one. Without the heads no loss is computed, which
        may be none of what a model gives in evaluation.
        """
        model = nnx.merge(self.graphdef, params, rest, copy=True)  # its variables may be written at this level
        with self._around():
            with nullcontext() if through is None else intercepted(model, through):
                outputs = model(*args, **kwargs)
            heads = self.heads(outputs) if with_heads else []
        _, _, state = split(model)
        return heads, (outputs, state)


def set_mode(model: nnx.Module, mode: Mode) -> None:
    """Evaluation for inference, training otherwise, dropout being off in both, on every module that has the switch.

    A model that says itself what train() and eval() do is asked for it first.
    """
    switch = "eval" if mode == "inference" else "train"
    if getattr(type(model), switch) is not getattr(nnx.Module, switch):
        getattr(model, switch)()
    switches = {"deterministic": True, "use_running_average": mode == "inference", "training": mode != "inference"}
    for _, module in nnx.iter_modules(model):
        for name, value in switches.items():
            if isinstance(getattr(module, name, value), bool | None) and hasattr(module, name):
                setattr(module, name, value)


def split(model: nnx.Module) -> tuple[Any, Any, Any]:
    """The static part, the floating parameters (which gradients are taken by), and all other state."""
    parts: tuple[Any, ...] = nnx.split(model, is_trained, ...)
    graphdef, params, rest = parts
    return graphdef, params, rest


def by_path(state: Any) -> dict[str, np.ndarray]:
    """The arrays of a module's state by dotted path, but those of random numbers."""
    named = {}
    for path, leaf in nnx.to_flat_state(state):
        value = leaf.get_value() if isinstance(leaf, nnx.Variable) else leaf  # an array in a plain attribute
        if not isinstance(leaf, nnx.RngState) and not jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended):
            named[".".join(map(str, path))] = np.asarray(value)
    return named


def is_trained(path: Any, value: Any) -> bool:
    """The filter of what gradients are taken by."""
    return isinstance(value, nnx.Param) and jnp.issubdtype(value.get_value().dtype, jnp.inexact)


def partition(tree: Any) -> tuple[Any, Any]:
    """Floating leaves, and all others, with None in the holes."""
    floats = jtu.tree_map(lambda x: x if is_floating(x) else None, tree)
    others = jtu.tree_map(lambda x: None if is_floating(x) else x, tree)
    return floats, others


def combine(floats: Any, others: Any) -> Any:
    return jtu.tree_map(lambda f, o: o if f is None else f, floats, others, is_leaf=lambda x: x is None)


def descending(gradients: Any) -> Any:
    """Gradients as a step takes them: for complex parameters JAX gives the conjugate of PyTorch's."""
    return jtu.tree_map(lambda g: jnp.conj(g) if jnp.iscomplexobj(g) else g, gradients)


def starts(heads: list[jax.Array], cotangents: list[jax.Array] | None) -> list[jax.Array]:
    """What a backward pass starts with: the cotangents, or one for a loss."""
    return [jnp.ones_like(h) for h in heads] if cotangents is None else cotangents
