"""Attributes of a module that are computed from other tensors, in place of the parameter that stood there."""

from __future__ import annotations

import contextvars
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol, TypeVar

import jax
from flax import nnx

from graphmode.weights import carries
from graphmode.weights.conventions import TRANSFORM

Kind = TypeVar("Kind")
_HOWS = "_graphmode_computed"  # of a class: those it is made of, the plain class first
_made: contextvars.ContextVar[Mapping[tuple[int, str], jax.Array]] = contextvars.ContextVar("_made")


class How(Protocol):
    """How an attribute is computed; hashable, since it is part of a class.

    Attributes:
      has_mode: whether it goes otherwise in training, and so wants `use_running_average` on the module.
    """

    has_mode: ClassVar[bool]

    def value(self, module: Any) -> jax.Array:
        """The attribute in a call of the module, laid out as the layers here hold it."""
        ...

    def read(self, module: Any) -> jax.Array:
        """The attribute as code outside of a call reads it."""
        ...


def compute(module: Any, name: str, how: How) -> None:
    """Makes `module.name` what `how` says, once for each call of the module, by a class derived from its own."""
    base, hows = _parts(type(module))
    delattr(module, name)
    if how.has_mode and not hasattr(module, "use_running_average"):
        module.use_running_average = False
    object.__setattr__(module, "__class__", _class_of(base, (*hows, (name, how))))


def restore(module: nnx.Module, name: str, variable: nnx.Variable) -> None:
    """Puts a parameter where an attribute was computed."""
    base, hows = _parts(type(module))
    left = tuple(each for each in hows if each[0] != name)
    object.__setattr__(module, "__class__", _class_of(base, left))
    setattr(module, name, variable)


def how_of(module: Any, name: str) -> How | None:
    """How an attribute is computed; None where it is not."""
    return dict(_parts(type(module))[1]).get(name)


def how_made(module: nnx.Module, name: str, kind: type[Kind], function: str) -> Kind:
    """How an attribute is computed, of this kind.

    Raises:
      ValueError: where the module computes no such attribute, or by another function.
    """
    how = how_of(module, name)
    if not isinstance(how, kind):
        raise ValueError(f"name is {name!r}, and {function} was not called on that of {type(module).__name__}")
    return how


def variable_named(module: Any, name: str) -> nnx.Variable:
    """The parameter of a module that is to be computed.

    Raises:
      TypeError: for what is no module of NNX, or one of Flax's own layers, whose names PyTorch does not know.
      ValueError: where it has no such parameter, or computes it already.
    """
    if not isinstance(module, nnx.Module):
        raise TypeError(f"module is {type(module).__name__}; give a layer of graphmode.nn, or an nnx.Module")
    kind = type(module)
    if kind.__module__.split(".")[0] == "flax":
        raise TypeError(f"module is Flax's {kind.__name__}; give graphmode.nn's layer, which has PyTorch's names")
    if how_of(module, name) is not None:
        raise ValueError(f"name is {name!r}, which {kind.__name__} computes already")
    variable = getattr(module, name, None)
    if not isinstance(variable, nnx.Variable):
        held = sorted(key for key, value in vars(module).items() if isinstance(value, nnx.Variable))
        raise ValueError(f"name is {name!r}, and {kind.__name__} has no such parameter; it has {', '.join(held)}")
    return variable


def axes_of(variable: nnx.Variable) -> tuple[int, ...]:
    """For each axis in PyTorch's layout, the axis that it is here."""
    ndim = variable[...].ndim
    if not variable.has_metadata(TRANSFORM):
        return tuple(range(ndim))
    lengths = jax.numpy.empty(tuple(range(2, 2 + ndim)))
    return tuple(length - 2 for length in variable.get_metadata(TRANSFORM).to_reference(lengths)[0].shape)


def layout_of(variable: nnx.Variable) -> dict[str, Any]:
    """The metadata of a parameter that is laid out as this one."""
    return carries(variable.get_metadata(TRANSFORM)) if variable.has_metadata(TRANSFORM) else {}


def axis_of(name: str, axis: int, ndim: int) -> int:
    """An axis counted from the front.

    Raises:
      TypeError: where it is no integer.
      ValueError: where there is none.
    """
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise TypeError(f"{name} is {axis!r}; give an integer from {-ndim} to {ndim - 1}")
    if not -ndim <= axis < ndim:
        raise ValueError(f"{name} is {axis}, and the tensor has {ndim} axes; give {-ndim} to {ndim - 1}")
    return axis % ndim


def _parts(kind: type) -> tuple[type, tuple[tuple[str, How], ...]]:
    return kind.__dict__.get(_HOWS, (kind, ()))


@functools.cache
def _class_of(base: type, hows: tuple[tuple[str, How], ...]) -> type:
    """One class for what is computed alike, so that NNX takes modules of it as equal in structure."""
    if not hows:
        return base
    members: dict[str, Any] = {
        name: property(functools.partial(_value, name, how), functools.partial(_refuse, name)) for name, how in hows
    }
    members |= {_HOWS: (base, hows), "__module__": base.__module__, "__doc__": base.__doc__, "__reduce_ex__": _reduced}
    if callable(base):
        members["__call__"] = _computing(base.__call__, hows)
    if any(how.has_mode for _, how in hows) and not _takes(base, "use_running_average"):
        members["set_view"] = _with_mode(getattr(base, "set_view", None))
    return type(f"Parametrized{base.__name__}", (base,), members)


def _reduced(module: Any, protocol: int) -> tuple[Any, ...]:
    """How a module is pickled, whose class stands under no name: by what the class is made of."""
    reduced: Any = object.__reduce_ex__(module, protocol)
    return _new, _parts(type(module)), *reduced[2:]


def _new(base: type, hows: tuple[tuple[str, How], ...]) -> Any:
    kind: Any = _class_of(base, hows)
    return kind.__new__(kind)


def _value(name: str, how: How, module: Any) -> jax.Array:
    made = _made.get({}).get((id(module), name))
    return how.read(module) if made is None else made


def _refuse(name: str, module: Any, value: Any) -> None:
    raise AttributeError(f"{name} is computed from other tensors; assign those")


def _computing(call: Callable[..., Any], hows: tuple[tuple[str, How], ...]) -> Callable[..., Any]:
    @functools.wraps(call)
    def computing(self: nnx.Module, *args: Any, **kwargs: Any) -> Any:
        made = {(id(self), name): how.value(self) for name, how in hows}
        token = _made.set({**_made.get({}), **made})
        try:
            return call(self, *args, **kwargs)
        finally:
            _made.reset(token)

    return computing


def _takes(base: type, argument: str) -> bool:
    view = getattr(base, "set_view", None)
    return view is not None and argument in inspect.signature(view).parameters


def _with_mode(view: Callable[..., None] | None) -> Callable[..., None]:
    """A `set_view` that takes `use_running_average` besides what another takes."""

    def set_view(self: Any, use_running_average: bool | None = None, **settings: Any) -> None:
        if use_running_average is not None:
            self.use_running_average = use_running_average
        if view is not None:
            view(self, **settings)

    own = list(inspect.signature(set_view).parameters.values())[:2]
    others = list(inspect.signature(view).parameters.values())[1:] if view is not None else []
    set_view.__signature__ = inspect.Signature([*own, *others])  # type: ignore[attr-defined]
    return set_view
