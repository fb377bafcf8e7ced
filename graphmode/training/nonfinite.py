"""Where a loss or gradient that is not finite comes from: the first bad tensor of a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from flax import nnx

from ..ops import gradient_hook

if TYPE_CHECKING:
    from .state import TrainState
    from .step import TrainStep


class NonfiniteError(FloatingPointError):
    """A step whose loss or gradients are not finite.

    Attributes:
      step: its number, from 0.
      tensor: the first that is not finite, in words; empty where it was not looked for.
      state: as it was before the step.
    """

    def __init__(self, step: int, tensor: str, state: TrainState):
        self.step, self.tensor, self.state = step, tensor, state
        found = f": {tensor}" if tensor else ""
        super().__init__(f"the loss or its gradients are not finite at step {step}{found}. The state is that before it")


def first_nonfinite(step: TrainStep, state: TrainState, batch: Any) -> str:
    """The first tensor of a step that is not finite, in the order in which they are computed.

    Looks at what the step starts from, at the batch, at the output of each module as its call ends, at the loss, and
    then, from the last module back to the first, at the gradients that reach the outputs, and at those of parameters.
    Compiles the step once more, with a look at each tensor.

    Args:
      step: that was made by `train_step`.
      state: before the step.
      batch: of the step; of several steps per launch, the first counts.

    Returns:
      What it is and where its first bad element is, or that all is finite.
    """
    if step.steps_per_launch > 1:
        batch = jax.tree.map(lambda x: x[0], batch)
    for what, tree in (("the parameter", state.params), ("the variable", state.rest), ("batch", batch)):
        for path, leaf in jtu.tree_leaves_with_path(tree, is_leaf=lambda x: isinstance(x, nnx.Variable)):
            value = leaf.get_raw_value() if isinstance(leaf, nnx.Variable) else leaf
            name = jtu.keystr(path) if what == "batch" else f" {jtu.keystr(path, simple=True, separator='.')}"
            if bad := _first_bad(value):
                return f"{what}{name} is {bad} before the step"
    seen = _Seen()
    _look(step, state, batch, seen)
    return seen.first() or "no tensor that modules give or take is: it arises between them, or does not arise again"


@dataclass
class _Seen:
    """What was not finite, by its place in the order of computation."""

    names: list[str] = field(default_factory=list)
    bad: dict[tuple[int, int], str] = field(default_factory=dict)

    def watch(self, name: str, backward: bool) -> Callable[[Any], None]:
        """A look at a tensor whose place is after all forward ones so far; backward, before all backward ones."""
        self.names.append(name)
        number = len(self.names)
        place = (1, -number) if backward else (0, number)

        def note(value: Any) -> None:
            if bad := _first_bad(value):
                self.bad.setdefault(place, f"{name} is {bad}")

        return note

    def first(self) -> str:
        return self.bad[min(self.bad)] if self.bad else ""


def _look(step: TrainStep, state: TrainState, batch: Any, seen: _Seen) -> None:
    def through(path: str, module: nnx.Module, run: Any, args: Any, kwargs: Any) -> Any:
        outputs = run(module, *args, **kwargs)
        told = f"{path} ({type(module).__name__})" if path else f"the model ({type(module).__name__})"
        return _watched(outputs, told, seen)

    def objective(params: Any, rest: Any, batch: Any) -> Any:
        value, (found, *_) = step.objective(params, rest, batch, state.scale, through=through)
        told = "every output of a module is finite, and the loss that is made of them"
        jax.debug.callback(seen.watch(told, backward=False), found.value)
        return value

    grads = jax.jit(jax.grad(objective))(state.params, state.rest, batch)
    jax.effects_barrier()
    if not seen.bad:
        for path, leaf in jtu.tree_leaves_with_path(grads, is_leaf=lambda x: isinstance(x, nnx.Variable)):
            name = jtu.keystr(path, simple=True, separator=".")
            seen.watch(f"the gradient of {name}", backward=False)(leaf.get_raw_value())


def _watched(outputs: Any, told: str, seen: _Seen) -> Any:
    def one(path: Any, leaf: Any) -> Any:
        if not hasattr(leaf, "dtype") or not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf
        name = f"the output{jtu.keystr(path)} of {told}"
        jax.debug.callback(seen.watch(name, backward=False), leaf)
        note = seen.watch(f"the gradient that comes to {name}", backward=True)
        return gradient_hook(leaf, lambda gradient: jax.debug.callback(note, gradient))

    return jtu.tree_map_with_path(one, outputs)


def _first_bad(value: Any) -> str:
    """`"nan at [3, 1] (2 of 64 elements are not finite)"`, or nothing."""
    if not jnp.issubdtype(value.dtype, jnp.floating):
        return ""
    array = np.asarray(value).astype(np.float64)
    bad = ~np.isfinite(array)
    if not bad.any():
        return ""
    index = np.unravel_index(int(np.argmax(bad)), array.shape) if array.ndim else ()
    count = f" ({int(bad.sum())} of {array.size} elements are not finite)" if array.ndim else ""
    return f"{array[index]}{f' at {list(map(int, index))}' if array.ndim else ''}{count}"
