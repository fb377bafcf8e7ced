"""Layers that learn a size from their first input: how their parameters come to be, once, outside of a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
from flax import nnx
from flax.nnx.tracers import TraceState

from .layer import Layer

_MODES = ("deterministic", "use_running_average")  # what train() and eval() may have switched before the first input


class Lazy(Layer):
    """What a lazy layer has until its first input; it then becomes the plain layer, its class too, as in PyTorch.

    A lazy class names the plain one twice, as a base and as `becomes`; its constructor hands everything to `_defer`,
    and `_sizes` reads off an input's shape what the plain constructor wants beyond that:

        class LazyLinear(Lazy, Linear):
            becomes = Linear

            def __init__(self, out_features, bias=True, *, param_dtype=jnp.float32, rngs):
                self._defer(rngs, {"in_features": 1}, out_features=out_features, bias=bias, param_dtype=param_dtype)

            def _sizes(self, shape):
                return {"in_features": shape[-1]}
    """

    becomes: ClassVar[type[nnx.Module]]

    def initialize(self, input: jax.Array | jax.ShapeDtypeStruct | Sequence[int]) -> None:
        """Makes the parameters for inputs like this one, and turns the layer into the plain one.

        Args:
          input: an array, of which only the shape is read, or the shape; the batch axis as in a call.

        Raises:
          RuntimeError: inside of `jit`, `grad` or `vmap`, where the layer came from outside.
        """
        shape = tuple(input) if isinstance(input, Sequence) else tuple(input.shape)
        if TraceState() != self._home.trace:
            raise RuntimeError(
                f"{type(self).__name__} has no parameters yet: its first input gives their shapes, and inside of jit, "
                "grad or vmap they would be lost; before that, call the model once, or this layer's "
                "initialize(shape), or build and call the model inside of nnx.eval_shape"
            )
        sizes, key, arguments = self._sizes(shape), self._key, dict(self._arguments)
        modes = {name: getattr(self, name) for name in _MODES if hasattr(self, name)}
        for name in [name for name in vars(self) if not name.startswith("_pytree__")]:
            delattr(self, name)
        if key is not None:
            arguments["rngs"] = nnx.Rngs(params=key)
        plain = self.becomes
        object.__setattr__(self, "__class__", plain)  # nnx would list `__class__` among the attributes
        plain.__init__(self, **sizes, **arguments)
        for name, value in modes.items():
            setattr(self, name, value)

    def __call__(self, input: jax.Array, *args: Any, **kwargs: Any) -> Any:
        self.initialize(input)
        return self(input, *args, **kwargs)

    def _defer(self, rngs: nnx.Rngs | None, least: Mapping[str, int], **arguments: Any) -> None:
        """Checks the arguments as the plain constructor does, and keeps them for it.

        Args:
          rngs: one key is drawn from `params`; None where the plain layer draws nothing.
          least: sizes that an input will give, as small as the plain constructor takes them.
          **arguments: of the plain constructor, `rngs` and these sizes left out.
        """
        arguments = {name: tuple(value) if isinstance(value, list) else value for name, value in arguments.items()}

        def build() -> nnx.Module:
            drawn = {} if rngs is None else {"rngs": nnx.Rngs(0)}
            return self.becomes(**least, **arguments, **drawn)

        for name, value in vars(nnx.eval_shape(build)).items():
            if value is None or isinstance(value, nnx.Variable | nnx.Module | nnx.Rngs):
                setattr(self, name, nnx.data(None))
            elif not name.startswith("_pytree__"):
                setattr(self, name, 0 if name in least else value)
        self._arguments = tuple(arguments.items())
        self._home = _Home()
        self._key = nnx.data(None if rngs is None else rngs.params())

    def _sizes(self, shape: tuple[int, ...]) -> Mapping[str, int]:
        """What an input of this shape gives to the plain constructor; raises `ValueError` for another rank."""
        raise NotImplementedError


class _Home:
    """The trace that a layer was built in; hashable, since it is a static attribute until the first input."""

    def __init__(self) -> None:
        self.trace = TraceState()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Home) and self.trace == other.trace

    def __hash__(self) -> int:
        return 0

    def __deepcopy__(self, memo: Any) -> _Home:
        return self
