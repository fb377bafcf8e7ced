"""Ways to break a built port: other attributes, other methods, other weights, other inputs or outputs of a call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from flax import nnx

from ...case import Case
from .plant import Plant

Edit = Callable[[Any], None]  # changes a module of the port in place
Change = Callable[[Any], Any]  # of an array


def planted(
    kind: str, specimen: str, *sites: str, edit: Edit, causes: Sequence[str] = (), also: Sequence[str] = ()
) -> list[Plant]:
    """The same edit at several modules of one specimen, each a plant; an empty path is the model itself."""
    return [
        Plant(
            kind=kind,
            specimen=specimen,
            site=site or "(model)",
            change=in_model(site, edit),
            modules=(site,),
            also=tuple(also),
            causes=tuple(causes),
        )
        for site in sites
    ]


def in_model(path: str, edit: Edit) -> Callable[[Case], Case]:
    """A change of a case: its port is built, and the module at `path` edited."""

    def change(case: Case) -> Case:
        (build,) = case.models.values()

        def broken(rngs: nnx.Rngs) -> nnx.Module:
            model = build(rngs)
            edit(module_at(model, path))
            return model

        return dataclasses.replace(case, model=broken)

    return change


def module_at(model: nnx.Module, path: str) -> Any:
    """The module of this dotted path; digits are indices."""
    found: Any = model
    for part in filter(None, path.split(".")):
        found = found[int(part)] if part.isdigit() else getattr(found, part)
    return found


def attributes(**values: Any) -> Edit:
    """Sets attributes that the module has.

    Raises:
      AttributeError: where it has no such attribute, and the edit would do nothing.
    """

    def edit(module: Any) -> None:
        for name, value in values.items():
            getattr(module, name)
            setattr(module, name, value)

    return edit


def methods(**functions: Callable[..., Any]) -> Edit:
    """Makes the module one of a subclass with these methods; `call` stands for `__call__`.

    Raises:
      AttributeError: where its class has no such method.
    """
    members = {"__call__" if name == "call" else name: function for name, function in functions.items()}

    def edit(module: Any) -> None:
        usual = type(module)
        for name in members:
            getattr(usual, name)
        broken = type(usual.__name__, (usual,), {**members, "__module__": usual.__module__})
        object.__setattr__(module, "__class__", broken)

    return edit


def another(make: Callable[[Any], nnx.Module]) -> Callable[[str], Edit]:
    """Puts another module in place of the child of this name; `make` takes the old one."""

    def named(name: str) -> Edit:
        return lambda parent: setattr(parent, name, make(getattr(parent, name)))

    return named


def output(change: Change) -> Edit:
    """The module gives something else than it computed."""

    def edit(module: Any) -> None:
        usual = type(module).__call__
        methods(call=lambda self, *args, **kwargs: change(usual(self, *args, **kwargs)))(module)

    return edit


def received(change: Change) -> Edit:
    """The module computes with something else than its first input."""

    def edit(module: Any) -> None:
        usual = type(module).__call__
        methods(call=lambda self, x, *args, **kwargs: usual(self, change(x), *args, **kwargs))(module)

    return edit


def variable(name: str, change: Change) -> Edit:
    """The module computes with something else than this variable, as after a wrong conversion."""
    return variables((name,), lambda value: (change(value),))


def variables(names: Sequence[str], change: Callable[..., Sequence[Any]]) -> Edit:
    """`variable` for several that change together."""

    def edit(module: Any) -> None:
        usual = type(module).__call__

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            # Other variables in their place: within a branch of `lax.switch` NNX refuses to set those from outside.
            held = {name: getattr(self, name) for name in names}
            values = change(*(each.get_value() for each in held.values()))
            others = (each.replace(value) for each, value in zip(held.values(), values, strict=True))
            vars(self).update(zip(held, others, strict=True))
            try:
                return usual(self, *args, **kwargs)
            finally:
                vars(self).update(held)

        for name in names:
            getattr(module, name)
        methods(call=call)(module)

    return edit
