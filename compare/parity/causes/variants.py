"""Known differences: for a call of a PyTorch function, what a port may do instead of it."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .change import Apply, Site

if TYPE_CHECKING:
    from .ancestry import Ancestry

MOST_BETWEEN = 4  # calls, between one and another
SIGNATURES: dict[str, tuple[str, ...]] = {}
"""The names of a function's arguments in order, by the function's name; those of tests of variants above all."""


@dataclass(frozen=True)
class Variant:
    """Something else than what the reference does.

    Attributes:
      id: the cause's, as a report and the JSON name it.
      says: what the port does.
      fix: what to do about it.
      apply: in place of a function call; gives what it then gives.
      is_guess: whether it is one of many numbers, some of which come to the same as what is likelier; such are tried
        where nothing else explains it.
      leaves_out: whether it is that something is not there, though its id does not end in `-missing`.
      by: of a comparison of one number, primitives of JAX's, by one of which a port that does so compares it.
      known: of a comparison with another number, the reference's: a port that compares with that alone does not do so.
    """

    id: str
    says: str
    fix: str
    apply: Apply
    is_guess: bool = False
    leaves_out: bool = False
    by: frozenset[str] = frozenset()
    known: float | None = None


@dataclass(frozen=True)
class Fit:
    """A number in place of another, which is found from what the port gives.

    Attributes:
      id, fix: as of a variant; `{value}` stands for the number that was found, `{known}` for the reference's.
      says: likewise.
      known: the reference's.
      likely: values that are tried first.
      apply: with the number, in place of a function call.
    """

    id: str
    says: str
    fix: str
    known: float
    apply: Callable[..., Apply]
    likely: tuple[float, ...] = ()


Maker = Callable[["Called"], Iterator[Variant | Fit]]
REGISTRY: dict[str, list[Maker]] = {}


def of(*names: str) -> Callable[[Maker], Maker]:
    """Registers what gives the variants of the functions of these names."""

    def register(make: Maker) -> Maker:
        for name in names:
            REGISTRY.setdefault(name, []).append(make)
        return make

    return register


def signature(names: str, order: str) -> None:
    for name in names.split():
        SIGNATURES[name] = tuple(order.split())


@dataclass(frozen=True)
class Called:
    """A function call of the reference, with its arguments by name."""

    site: Site
    names: tuple[str, ...] = field(default=())
    ancestry: Ancestry | None = None  # of the run that the call is of, where it is known

    @property
    def name(self) -> str:
        return self.site.name

    @property
    def args(self) -> tuple[Any, ...]:
        return self.site.args

    def get(self, name: str, default: Any = None) -> Any:
        """An argument's value, wherever it stands."""
        if name in self.site.kwargs:
            return self.site.kwargs[name]
        place = self.names.index(name) if name in self.names else len(self.site.args)
        return self.site.args[place] if place < len(self.site.args) else default

    def is_made_in(self, function: str) -> bool:
        """Whether the call is one that a function of this name makes, or what it calls."""
        return any(code.co_name == function for code, *_ in self.site.place)

    def name_of(self, place: int) -> str:
        """Of the parameter, buffer or input that an argument is, or is cut out of; empty for what is computed."""
        return self.ancestry.name(self.site.args[place]) if self.ancestry is not None else ""

    def comes_of(self, *functions: str) -> bool:
        """Whether its first argument is what one of these gives, or is computed of that in a few calls that keep its
        shape."""
        tensor = self.site.args[0] if self.site.args else None
        for _ in range(MOST_BETWEEN):
            maker = self.ancestry.maker(tensor) if self.ancestry is not None else None
            if maker is None or maker.name in functions:
                return maker is not None
            given = maker.args[0] if maker.args else None
            if getattr(given, "shape", None) != getattr(tensor, "shape", ()):
                return False
            tensor = given
        return False

    def is_residual(self, place: int, other: int) -> bool:
        """Whether an argument is an input or an earlier tensor, of which another argument is computed."""
        args = self.site.args
        return self.ancestry is not None and self.ancestry.is_residual(args[place], args[other])

    def with_(self, **changes: Any) -> Apply:
        """The same call with other arguments; a callable takes the usual argument and gives another."""

        def apply(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            args, kwargs = list(args), dict(kwargs)  # type: ignore[assignment]
            for name, value in changes.items():
                place = self.names.index(name) if name in self.names else len(args)
                if name not in kwargs and place < len(args):
                    args[place] = value(args[place]) if callable(value) else value  # type: ignore[index]
                else:
                    kwargs[name] = value(kwargs.get(name)) if callable(value) else value
            return func(*args, **kwargs)

        return apply


def called(site: Site, ancestry: Ancestry | None = None) -> Called:
    return Called(site, SIGNATURES.get(site.name, ()), ancestry)


def variants(site: Site, ancestry: Ancestry | None = None) -> Iterator[Variant | Fit]:
    """All that is known to stand in for a call, the likeliest first."""
    for make in (*REGISTRY.get(site.name, ()), *(() if site.name in _PLAIN else REGISTRY.get("*", ()))):
        with contextlib.suppress(Exception):  # arguments that one kind of variant cannot be made of; others can
            made = make(called(site, ancestry))
            writing = _writing_out if site.kwargs.get("out") is not None else _writing
            is_written = writing is _writing_out or _IN_PLACE(site.name)
            yield from (_written_back(each, writing) for each in made) if is_written else made


_IN_PLACE = re.compile(r"[a-z0-9_]*[a-z0-9]_|__i(?!nvert)[a-z]+__").fullmatch


def _written_back(each: Variant | Fit, writing: Callable[[Apply], Apply]) -> Variant | Fit:
    """The same of a call that writes into one of its arguments: what it gives instead is there afterwards."""
    if isinstance(each, Variant):
        return replace(each, apply=writing(each.apply))
    of_value = each.apply
    return replace(each, apply=lambda value: writing(of_value(value)))


def _writing(apply: Apply) -> Apply:
    def run(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = apply(func, (args[0].clone(), *args[1:]), kwargs)
        return args[0].copy_(result) if result.shape == args[0].shape else result

    return run


def _writing_out(apply: Apply) -> Apply:
    def run(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = kwargs["out"]
        result = apply(func, args, {name: value for name, value in kwargs.items() if name != "out"})
        if result.shape != out.shape:
            raise ValueError("it does not fit where the reference writes it")
        return out.copy_(result)

    return run


_PLAIN = {
    "contiguous",
    "clone",
    "detach",
    "to",
    "type",
    "float",
    "double",
    "requires_grad_",
    "item",
    "expand",
    "is_grad_enabled",
}


def other_orders(count: int) -> Iterator[tuple[int, ...]]:
    """The orders of so many pieces, all but their own."""
    return itertools.islice(itertools.permutations(range(count)), 1, None)


def instead(make: Callable[..., Any]) -> Apply:
    """A function of the call's arguments, in place of the call."""
    return lambda func, args, kwargs: make(*args, **kwargs)


def after(make: Callable[..., Any]) -> Apply:
    """A function of the call's result."""
    return lambda func, args, kwargs: make(func(*args, **kwargs))


def before(make: Callable[[Any], Any], place: int = 0) -> Apply:
    """A function of one argument, ahead of the call."""

    def apply(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        changed = list(args)
        changed[place] = make(changed[place])
        return func(*changed, **kwargs)

    return apply
