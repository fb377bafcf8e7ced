"""Differences in arguments that belong together: a reduction and the axes that it keeps, transforms of one length,
limits that stand for each other's."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .change import Change, Site
from .known.fourier import ALONG_ONE
from .sites import constructs, is_floating, numbers
from .variants import SIGNATURES, Variant

REDUCTIONS = ("sum", "mean", "amax", "amin", "prod", "logsumexp", "var", "std", "norm", "linalg_vector_norm")
RESTORES = ("view", "reshape", "unsqueeze", "__getitem__")
MOST_PAIRS = 40  # of calls whose numbers are exchanged
MOST_RANK = 6
MOST_BETWEEN = 4  # calls from a reduction to what puts its axes back


def several_calls(sites: list[Site]) -> Iterator[tuple[Variant, Change]]:
    """All that is known of this kind, each with the calls that it changes."""
    yield from _kept_axes(sites)
    yield from _transform_lengths(sites)
    yield from _exchanged_numbers(sites)
    yield from _complements(sites)
    yield from _over_padding(sites)


def _argument(site: Site, name: str) -> Any:
    names = SIGNATURES.get(site.name, ())
    if name in site.kwargs:
        return site.kwargs[name]
    place = names.index(name) if name in names else len(site.args)
    return site.args[place] if place < len(site.args) else None


def _kept_axes(sites: list[Site]) -> Iterator[tuple[Variant, Change]]:
    """Other axes of a reduction whose axes a later call puts back, as `x.sum((2, 3)).sqrt().view(n, c, 1, 1)` does."""
    takers = {id(x): site for site in reversed(sites) for x in site.args[:2] if isinstance(x, torch.Tensor)}
    for site in sites:
        dims = _argument(site, "dim")
        if site.name not in REDUCTIONS or dims is None or not is_floating(site.args[0]):
            continue
        x = site.args[0]
        usual = sorted({dim % x.dim() for dim in ([dims] if isinstance(dims, int) else dims)})
        kept = tuple(1 if axis in usual else length for axis, length in enumerate(x.shape))
        then = _restored(site, takers)
        if (
            then is None
            or not is_floating(then.result)
            or tuple(then.result.shape) != kept
            or site.result.dim() == x.dim()
            or x.dim() > MOST_RANK
        ):
            continue
        for other in itertools.combinations(range(x.dim()), len(usual)):
            if list(other) != usual:
                variant = Variant(
                    "axis",
                    f"reduces over axes {other}, and keeps them",
                    f"reduce over axes {tuple(usual)}",
                    _over(other),
                )
                yield variant, Change(variant.apply, frozenset((site.number, then.number)))


def _restored(site: Site, takers: dict[int, Site]) -> Site | None:
    """The call that lays anew what a call gives, or what others make of it element by element."""
    given, seen = site.result, 0
    while (then := takers.get(id(given))) is not None and seen < MOST_BETWEEN:
        if then.name in RESTORES:
            return then
        others = [each for each in then.args if isinstance(each, torch.Tensor) and each is not given]
        if others or not is_floating(then.result) or then.result.shape != given.shape:
            return None
        given, seen = then.result, seen + 1
    return None


def _over(axes: tuple[int, ...]) -> Callable[..., Any]:
    def apply(func: Any, args: Any, kwargs: Any) -> Any:
        if getattr(func, "__name__", "") in RESTORES:
            return args[0].clone()
        names = SIGNATURES[func.__name__]
        given = {**dict(zip(names[1:], args[1:], strict=False)), **kwargs}
        return func(args[0], **{**given, "dim": axes, "keepdim": True})

    return apply


def _transform_lengths(sites: list[Site]) -> Iterator[tuple[Variant, Change]]:
    """No zeros behind what is transformed, in all transforms of a length: what is convolved so goes round."""
    by_length: dict[int, list[Site]] = {}
    for site in sites:
        n = _argument(site, "n")
        if site.name.removeprefix("fft_") in ALONG_ONE and isinstance(n, int):
            by_length.setdefault(n, []).append(site)
    for n, same in by_length.items():
        lengths = {site.args[0].shape[_argument(site, "dim") or -1] for site in same if "irfft" not in site.name}
        for length in sorted(each for each in lengths if each < n):
            variant = Variant(
                "fft-length",
                f"transforms at length {length}, without the zeros up to {n}: what is convolved so goes round",
                f"give each of them n={n}",
                _of_length(length),
            )
            yield variant, Change(variant.apply, numbers(same))


def _of_length(length: int) -> Callable[..., Any]:
    def apply(func: Any, args: Any, kwargs: Any) -> Any:
        given = {**dict(zip(("n", "dim", "norm"), args[1:], strict=False)), **kwargs}
        return func(args[0], **{**given, "n": length})

    return apply


def _exchanged_numbers(sites: list[Site]) -> Iterator[tuple[Variant, Change]]:
    """The numbers of two calls of one function, each for the other's, as a height and a width."""
    by_name: dict[str, list[list[Site]]] = {}
    for same in constructs(sites):
        if (
            same[0].name != "__getitem__"
            and _numbers(same[0])
            and all(_numbers(site) == _numbers(same[0]) for site in same)
        ):
            by_name.setdefault(same[0].name, []).append(same)
    pairs = (pair for same in by_name.values() for pair in itertools.combinations(same, 2))
    different = ((a, b) for a, b in pairs if _numbers(a[0]) != _numbers(b[0]) and _form(a[0]) == _form(b[0]))
    for one, other in itertools.islice(different, MOST_PAIRS):
        first, second = _numbers(one[0]), _numbers(other[0])
        if len(first) != len(second):
            continue
        changed = [(a, b) for a, b in zip(first, second, strict=True) if a != b]
        variant = Variant(
            "constants-exchanged",
            f"takes {_listed(b for _, b in changed)} for {_listed(a for a, _ in changed)} in one call of "
            f"{one[0].name}, and the other way round in another",
            f"give each call of {one[0].name} its own",
            _others({first: second, second: first}),
        )
        yield variant, Change(variant.apply, numbers([*one, *other]))


def _complements(sites: list[Site]) -> Iterator[tuple[Variant, Change]]:
    """A share and what is left of it to one, each for the other: `z * h + (1 - z) * q` for `(1 - z) * h + z * q`."""
    for same in constructs(sites):
        if same[0].name != "__rsub__" or same[0].args[1] != 1:
            continue
        of = {id(x) for site in same for x in (site.args[0], site.result)}
        factors = [
            (site.number, place)
            for site in sites
            if site.name in ("mul", "__mul__", "__rmul__") and len([x for x in site.args[:2] if id(x) in of]) == 1
            for place in (0, 1)
            if id(site.args[place]) in of
        ]
        if len(factors) < 2 * len(same):
            continue
        variant = Variant(
            "gate-swapped",
            "takes a share and one minus it for one another",
            "multiply each side by what the reference multiplies it by",
            _Complemented([place for _, place in sorted(factors)]),
        )
        yield variant, Change(variant.apply, frozenset(number for number, _ in factors))


class _Complemented:
    """Takes one minus a factor of each of some products in order, of which these places are it."""

    def __init__(self, places: list[int]):
        self.places, self.count = places, 0

    def __call__(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        place = self.places[self.count % len(self.places)]
        self.count += 1
        return func(*args[:place], 1 - args[place], *args[place + 1 :], **kwargs)


def _over_padding(sites: list[Site]) -> Iterator[tuple[Variant, Change]]:
    """Sums over rows that end early, divided by how long the longest could be in place of the lengths."""
    sums = {id(site.result): site for site in sites if site.name == "sum" and is_floating(site.result)}
    for same in constructs(sites):
        pairs = [(sums[id(s.args[0])], s) for s in same if s.name == "div" and id(s.args[0]) in sums]
        if len(pairs) < len(same) or not all(_are_lengths(by.args[1], _summed(total)) for total, by in pairs):
            continue
        variant = Variant(
            "count",
            "divides by as many as are summed up, padding among them, for the lengths",
            "divide by the lengths",
            _ByAll(),
        )
        yield variant, Change(variant.apply, frozenset(site.number for pair in pairs for site in pair))


def _summed(site: Site) -> int:
    """How many elements are summed up to each."""
    return site.args[0].numel() // max(site.result.numel(), 1)


def _are_lengths(x: Any, most: int) -> bool:
    if not isinstance(x, torch.Tensor) or not x.numel() or most < 2:
        return False
    return bool(((x == x.round()) & (x > 0) & (x <= most)).all())


class _ByAll:
    """Divides a sum by as many as were summed up in the last call."""

    def __init__(self) -> None:
        self.count = 1

    def __call__(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func.__name__ == "div":
            return args[0] / self.count
        total = func(*args, **kwargs)
        self.count = args[0].numel() // max(total.numel(), 1)
        return total


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _numbers(site: Site) -> tuple[float, ...]:
    """Those that a call is given beside tensors."""
    if not any(isinstance(x, torch.Tensor) for x in site.args):
        return ()
    return tuple(x for x in pytree.tree_leaves((site.args, site.kwargs)) if _is_number(x))


def _form(site: Site) -> str:
    """How the arguments of a call lie."""
    return str(pytree.tree_structure(pytree.tree_map(lambda x: 0, (site.args, site.kwargs))))


def _listed(values: Any) -> str:
    return ", ".join(f"{value:.6g}" for value in values)


def _others(instead: dict[tuple[float, ...], tuple[float, ...]]) -> Callable[..., Any]:
    def apply(func: Any, args: Any, kwargs: Any) -> Any:
        leaves, structure = pytree.tree_flatten((args, kwargs))
        given = iter(instead[tuple(x for x in leaves if _is_number(x))])
        args, kwargs = pytree.tree_unflatten([next(given) if _is_number(x) else x for x in leaves], structure)
        return func(*args, **kwargs)

    return apply
