"""Differences that show in several calls of different functions at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .change import Change, Site
from .exchanged_calls import far_orders, orders
from .known.packed import padding_set_to_zero
from .parts import parts
from .roots import epsilons
from .several_calls import several_calls
from .sites import is_floating, numbers, takes_all
from .variants import Fit, Variant
from .written_out import written_out

LERP = ("lerp", "lerp_")
WITHIN = 1e-9  # of a share, in which another is the same
LIKELY_SHARES = (0.99, 0.9, 0.999, 0.5)


def composites(sites: list[Site]) -> Iterator[tuple[Variant, Change]]:
    """All that is known of this kind, each with the calls that it changes."""
    kinds = (
        _shares,
        _ends,
        orders,
        _detached,
        epsilons,
        _packed,
        written_out,
        several_calls,
        parts,
        far_orders,
    )
    failed: list[Exception] = []
    for make in kinds:
        try:
            yield from make(sites)
        except Exception as error:  # of calls that one kind has not thought of; the others may know them
            failed.append(error)
    if failed:
        raise failed[0]


def _packed(sites: list[Site]) -> Iterator[tuple[Variant, Change]]:
    for variant, calls in padding_set_to_zero(sites):
        yield variant, Change(variant.apply, numbers(calls))


def _detached(sites: list[Site]) -> Iterator[tuple[Variant, Change]]:
    """The gradient stopped by another argument than what is detached: in all calls of a function, and in one."""
    pairs: dict[str, list[tuple[int, int, int]]] = {}
    for stop in sites:
        for call in sites if stop.name in ("detach", "detach_") else ():
            places = [i for i, x in enumerate(call.args) if is_floating(x)]
            there = next((i for i in places if call.args[i] is stop.result), None)
            if there is not None and len(places) > 1:
                pairs.setdefault(call.name, []).append((stop.number, call.number, there))
    for name, same in pairs.items():
        for some in [same, *([pair] for pair in same if len(same) > 1)]:
            at = {there for *_, there in some}
            which = f", which detaches argument {min(at)}" if len(at) == 1 else ", in each of its calls"
            variant = Variant(
                "stop-gradient",
                f"stops the gradient by the other argument of {name} than the reference{which}",
                f"write jax.lax.stop_gradient around that argument of {name} which the reference detaches, alone",
                _detached_elsewhere,
            )
            yield variant, Change(variant.apply, frozenset(number for *numbers, _ in some for number in numbers))


def _detached_elsewhere(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if getattr(func, "__name__", "") in ("detach", "detach_"):
        passed = args[0].clone()
        passed.is_let_through = True
        return passed
    others = (x.detach() if is_floating(x) and not hasattr(x, "is_let_through") else x for x in args)
    return func(*others, **kwargs)


def _ends(sites: list[Site]) -> Iterator[tuple[Variant, Change]]:
    """A tensor that is cut in two at its other end: `[:, :1]` and `[:, 1:]` for `[:, -1:]` and `[:, :-1]`."""
    cut: dict[tuple[int, int], list[Site]] = {}
    for site in sites:
        if (at := _cut_at(site)) is not None:
            cut.setdefault((id(site.args[0]), at), []).append(site)
    for (_, axis), cuts in cut.items():
        if len(cuts) > 1:
            part = _slices(cuts[0])[axis]
            at = part.start or part.stop
            variant = Variant(
                "index",
                f"cuts axis {axis} at its other end: takes the last for the first",
                f"take the elements that the reference takes: the first by [:{at}], the rest by [{at}:]",
                _at_other_end,
            )
            yield variant, Change(variant.apply, frozenset(site.number for site in cuts))


def _cut_at(site: Site) -> int | None:
    """The axis of which a call takes all before or after a number, and all of the others."""
    if site.name != "__getitem__" or not isinstance(site.args[0], torch.Tensor):
        return None
    parts = _slices(site)
    ends = [axis for axis, part in enumerate(parts) if not takes_all(part)]
    if len(ends) != 1 or not isinstance(parts[ends[0]], slice):
        return None
    part = parts[ends[0]]
    numbers = [x for x in (part.start, part.stop) if isinstance(x, int) and x]
    return ends[0] if len(numbers) == 1 and part.step is None else None


def _slices(site: Site) -> tuple[Any, ...]:
    return site.args[1] if isinstance(site.args[1], tuple) else (site.args[1],)


def _at_other_end(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    parts = args[1] if isinstance(args[1], tuple) else (args[1],)
    return func(args[0], tuple(part if takes_all(part) else _turned(part) for part in parts))


def _turned(part: slice) -> slice:
    return slice(None, -part.start) if part.start else slice(-part.stop, None)


def _shares(sites: list[Site]) -> Iterator[tuple[Variant, Change]]:
    """The two shares of a running mean, taken for one another."""
    shares = {site.number: share for site in sites if (share := _share(site)) is not None}
    both = {site.number for site in sites if site.name in LERP and site.number in shares}  # in one number
    for kept in dict.fromkeys(round(share, 12) for share in (*shares.values(), *(1 - shares[n] for n in both))):
        every = [n for n, share in shares.items() if abs(share - kept) < 1e-9 or abs(share + kept - 1) < 1e-9]
        of_each = _of_one_mean([site for site in sites if site.number in every])
        for some in [frozenset(every), *(of_each if len(of_each) > 1 else ())]:
            if kept >= 0.5 and (some & both or any(abs(shares[n] + kept - 1) < 1e-9 for n in some)):
                is_moved = any(site.number in some and site.name.endswith("_") for site in sites)
                of_momentum = "; PyTorch's momentum is the share of what is new" if is_moved else ""
                variant = Variant(
                    "momentum",
                    f"takes the shares {kept:.6g} and {1 - kept:.6g} for one another",
                    f"multiply by {kept:.6g} where the reference does" + of_momentum,
                    _other_share,
                )
                yield variant, Change(variant.apply, some)


def other_shares(sites: list[Site]) -> Iterator[tuple[Fit, frozenset[int]]]:
    """Another number for the two shares of a mean, which are one together, and the numbers of the calls: wherever they
    are, and in one mean."""
    shares = {site.number: share for site in sites if (share := _share(site)) is not None}
    both = {site.number for site in sites if site.name in LERP}  # in one number
    for kept in dict.fromkeys(round(max(share, 1 - share), 12) for share in shares.values()):
        every = [n for n, share in shares.items() if abs(max(share, 1 - share) - kept) < WITHIN]
        fit = Fit(
            "momentum",
            f"takes {{value}} and 1 less that for the shares {kept:.6g} and {1 - kept:.6g}",
            f"take {kept:.6g} and {1 - kept:.6g}, as the reference does",
            kept,
            functools.partial(_with_shares, kept),
            LIKELY_SHARES,
        )
        of_each = _of_one_mean([site for site in sites if site.number in every])
        for some in [frozenset(every), *(of_each if len(of_each) > 1 else ())]:
            of_what = {n: shares[n] > 0.5 for n in some}
            if abs(kept - 0.5) > WITHIN and (some & both or len(set(of_what.values())) == 2):
                yield fit, some


def _with_shares(kept: float, value: float) -> Callable[..., Any]:
    def other(x: Any) -> Any:
        if not isinstance(x, float):
            return x
        return value if abs(x - kept) < WITHIN else 1 - value if abs(x - 1 + kept) < WITHIN else x

    def apply(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return func(*map(other, args), **{k: other(x) for k, x in kwargs.items()})

    return apply


def _of_one_mean(sites: list[Site]) -> list[frozenset[int]]:
    """The numbers of calls that belong to one running mean each: a sum of two products, or in place."""
    found: list[list[Site]] = []
    for site in sites:
        given = [x for x in site.args if isinstance(x, torch.Tensor)]
        same = next((each for each in found if any(x is one.result for one in each for x in given)), None)
        if same is None:
            found.append(same := [])
        same.append(site)
    return [frozenset(site.number for site in same) for same in found]


def _share(site: Site) -> float | None:
    """The number between 0 and 1 that a call multiplies by."""
    if site.name in ("add", "add_", *LERP):
        value = site.kwargs.get("alpha", site.kwargs.get("weight", site.args[2] if len(site.args) > 2 else None))
    elif site.name in ("mul", "mul_", "__mul__", "__rmul__", "__imul__"):
        value = site.args[1]
    else:
        return None
    return float(value) if isinstance(value, float) and 0 < value < 1 else None


def _other_share(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    changed = tuple(1 - x if isinstance(x, float) else x for x in args)
    return func(*changed, **{k: 1 - x if k in ("alpha", "weight") else x for k, x in kwargs.items()})
