"""Scatters: what is added, or set, where several go to one place; tables with several indices."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.utils._pytree as pytree

from ..variants import Called, Variant, after, of, signature

signature("index_add index_copy", "input dim index source")
signature("scatter_add scatter scatter_", "input dim index src")
signature("scatter_reduce index_reduce", "input dim index src reduce include_self")
signature("take_along_dim", "input indices dim")
signature("gather index_select", "input dim index")
signature("index_put", "input indices values accumulate")


@of("index_add", "index_add_", "scatter_add", "scatter_add_")
def added(call: Called) -> Iterator[Variant]:
    fix = "add what goes to one place: x.at[index].add(values), or jax.ops.segment_sum"
    yield Variant("scatter", "sets where the reference adds: the last that goes to a place counts", fix, _set)
    if bool(call.args[0].any()):  # to nothing it would be set
        yield Variant("scatter", "adds the last alone of what goes to one place", fix, _one_alone)
    yield Variant("scatter", "takes the mean of what goes to one place", fix, _mean)
    yield Variant("scatter", "takes the largest of what goes to one place", fix, _reduced("amax"))


@of("index_copy", "index_copy_", "scatter", "scatter_")
def is_set(call: Called) -> Iterator[Variant]:
    fix = "set it: x.at[index].set(values)"
    yield Variant("scatter", "adds where the reference sets", fix, _reduced("sum"))


REDUCES = {"sum": "sum", "mean": "mean", "amax": "largest", "amin": "smallest", "prod": "product"}
NOTHING = {"amax": float("-inf"), "amin": float("inf"), "mean": float("nan"), "prod": 1.0}  # of JAX's segments


@of("scatter_reduce", "scatter_reduce_", "index_reduce", "index_reduce_")
def reduced(call: Called) -> Iterator[Variant]:
    how, with_own = call.get("reduce"), bool(call.get("include_self", True))
    if how in NOTHING:
        yield Variant(
            "empty-group",
            f"has {NOTHING[how]:g} where nothing goes to a place, and the reference what was there before",
            f"give an empty group its value: gm.segment_{how.removeprefix('a')}(..., empty=0), or use jnp.where",
            _empty(NOTHING[how]),
        )
    names = {"index_reduce": ("prod", "mean", "amax", "amin")}.get(call.name.rstrip("_"), tuple(REDUCES))
    for other in names:
        if other != how:
            says = f"takes the {REDUCES[other]} of what goes to one place"
            yield Variant("scatter", says, f"take the {REDUCES[how]}", call.with_(reduce=other))
    did, wanted = ("leaves out", "takes") if with_own else ("takes", "leaves out")
    says = f"{did} what was there before, which the reference {wanted}"
    yield Variant(
        "scatter", says, f"include_self is {with_own} in the reference", call.with_(include_self=not with_own)
    )


def _empty(value: float) -> Callable[[Any, Any, Any], Any]:
    def run(func: Any, args: Any, kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        _, dim, index, values = _arguments(args, kwargs)
        is_met = torch.zeros_like(result).scatter(dim, _spread(index, values, dim), 1.0) != 0
        return torch.where(is_met, result, value)

    return run


@of("index_put", "index_put_")
def put(call: Called) -> Iterator[Variant]:
    adds = bool(call.get("accumulate", False))
    did, wanted = ("sets", "adds") if adds else ("adds", "sets")
    fix = f"write x.at[index].{'add' if adds else 'set'}(values)"
    yield Variant("scatter", f"{did} where the reference {wanted}", fix, call.with_(accumulate=not adds))


@of("bincount")
def counted(call: Called) -> Iterator[Variant]:
    says, fix = "takes as many for each as there are on average", "count them: jnp.bincount(index, length=...)"
    yield Variant("count", says, fix, after(lambda counts: counts.double().mean().expand_as(counts)))
    yield Variant("count", "takes one for each", fix, after(torch.ones_like))


@of("__getitem__")
def looked_up(call: Called) -> Iterator[Variant]:
    """In a table whose axes are as long as each other, such as of pairs: by two indices the other way round."""
    x, index = call.args[0], call.args[1] if len(call.args) > 1 else None
    if not isinstance(x, torch.Tensor) or not isinstance(index, tuple) or len(index) > x.dim():
        return
    given = [place for place, part in enumerate(index) if isinstance(part, torch.Tensor) and part.dtype != torch.bool]
    for first, second in itertools.combinations(given, 2):
        if x.shape[first] == x.shape[second]:
            yield Variant(
                "index-order",
                f"takes the indices of axes {first} and {second} the other way round",
                "index as the reference does, or transpose the table",
                _swapped(first, second),
            )
            if index[first].dim() == index[second].dim() == 1:
                yield Variant(
                    "index-order",
                    f"takes the pairs in the order of their indices of axis {second}, as those of the other triangle",
                    "list the pairs in the reference's order: the lower triangle's is not the upper one's transposed",
                    _along(second, first),
                )


@of("gather", "take_along_dim", "index_select", "__getitem__")
def reordered(call: Called) -> Iterator[Variant]:
    x, result = call.args[0], call.site.result
    index = [each for each in pytree.tree_leaves(call.args[1:]) if isinstance(each, torch.Tensor)]
    if not (index and isinstance(x, torch.Tensor) and isinstance(result, torch.Tensor) and result.shape == x.shape):
        return
    yield Variant(
        "index-missing",
        f"leaves the {'indexing' if call.name == '__getitem__' else call.name} out: takes each where it lies",
        "take those that the reference's indices say, the gradient's way, too",
        lambda func, args, kwargs: args[0].clone(),
    )


@of("gather", "take_along_dim", "index_select")
def taken_by_order(call: Called) -> Iterator[Variant]:
    """Along an axis all of whose places are taken once: by an order, or by its inverse."""
    name = "indices" if call.name == "take_along_dim" else "index"
    x, dim, index = call.args[0], call.get("dim"), call.get(name)
    if isinstance(dim, int) and _is_order(index, x, dim):
        yield Variant(
            "inverse-order",
            "takes by the inverse of the order that the reference takes by",
            "take by the order itself: jnp.argsort of an order is its inverse",
            call.with_(**{name: functools.partial(torch.argsort, dim=0 if index.dim() == 1 else dim)}),
        )


@of("scatter", "scatter_")
def put_by_order(call: Called) -> Iterator[Variant]:
    dim, index, values = (call.get(name) for name in ("dim", "index", "src"))
    if isinstance(dim, int) and isinstance(values, torch.Tensor) and _is_order(index, values, dim):
        yield Variant(
            "inverse-order",
            "takes by the order by which the reference puts each back",
            "take by its inverse, jnp.argsort(order), or set: x.at[order].set(values)",
            lambda func, args, kwargs: _along_order(_arguments(args, kwargs)),
        )


def _along_order(given: tuple[torch.Tensor, int, torch.Tensor, torch.Tensor]) -> torch.Tensor:
    _, dim, index, values = given
    return values.gather(dim, index)


def _is_order(index: Any, x: Any, dim: int) -> bool:
    """Whether an index has each place along an axis of it once, and is not its own inverse."""
    if not isinstance(index, torch.Tensor) or not isinstance(x, torch.Tensor) or index.dtype != torch.long:
        return False
    if index.dim() == 1 and x.dim() > 1:
        index = _spread(index, x, dim % x.dim())
    if index.shape != x.shape:
        return False
    ordered, inverse = index.sort(dim)
    places = torch.arange(index.shape[dim]).reshape([-1 if a == dim % x.dim() else 1 for a in range(x.dim())])
    return bool((ordered == places).all()) and not torch.equal(inverse, index)


@of("gather", "take_along_dim", "index_select")
def beside(call: Called) -> Iterator[Variant]:
    """The next place or the one before, along the axis."""
    index, dim = ("indices" if call.name == "take_along_dim" else "index"), call.get("dim")
    for each in () if dim is None else _beside(call.args[0].shape[dim]):
        yield _taken(each, call.with_(**{"input": functools.partial(each.source, dim=dim), index: each.place}))


@of("__getitem__")
def looked_up_beside(call: Called) -> Iterator[Variant]:
    """Likewise of what is taken by an array of integers, or by several, of which one counts from another place."""
    x, index = call.args[:2]
    parts = index if isinstance(index, tuple) else (index,)
    given = [axis for axis, part in enumerate(parts) if _is_of_places(part)]
    if not isinstance(x, torch.Tensor) or any(part is None or part is Ellipsis for part in parts):
        return
    for axis in given:
        for each in _beside(x.shape[axis]):

            def run(func: Any, args: Any, kwargs: Any, each: _Beside = each, axis: int = axis) -> Any:
                parts = args[1] if isinstance(args[1], tuple) else (args[1],)
                return func(
                    each.source(args[0], dim=axis), (*parts[:axis], each.place(parts[axis]), *parts[axis + 1 :])
                )

            yield _taken(each, run, f", along axis {axis}" if len(given) > 1 else "")


def _is_of_places(part: Any) -> bool:
    return (
        isinstance(part, torch.Tensor) and part.dim() > 0 and not part.is_floating_point() and part.dtype != torch.bool
    )


class _Beside(NamedTuple):
    """What is done, where an element is then taken from, and at which index."""

    says: str
    source: Callable[..., torch.Tensor]
    place: Callable[[torch.Tensor], torch.Tensor]


def _beside(length: int) -> Iterator[_Beside]:
    """A negative index counts from the end, here as in JAX."""

    def usual(x: torch.Tensor, dim: int) -> torch.Tensor:
        return x

    def with_end_again(x: torch.Tensor, dim: int) -> torch.Tensor:
        return torch.cat([x, x.narrow(dim, length - 1, 1).detach()], dim)

    def clipped(i: torch.Tensor, shift: int) -> torch.Tensor:
        return torch.where(i < 0, (i + shift).clamp(min=-length), (i + shift).clamp(0, length - 1)) % length

    def round_the_end(i: torch.Tensor, shift: int) -> torch.Tensor:
        return (i + shift) % length

    says = "takes the element at i+1 for i"
    of_jax = ", and beyond the end the last, without its gradient"
    yield _Beside(says + of_jax, with_end_again, lambda i: torch.where(i < -1, i + 1 + length, i + 1))
    for shift in (1, -1):
        says = f"takes the element at i{shift:+d} for i"
        yield _Beside(f"{says}, and none beyond an end", usual, functools.partial(clipped, shift=shift))
        yield _Beside(f"{says}, round the end", usual, functools.partial(round_the_end, shift=shift))


def _taken(each: _Beside, apply: Callable[[Any, Any, Any], Any], where: str = "") -> Variant:
    fix = "take the element at i: of an index beyond an end JAX says nothing, and x[i] clips it"
    return Variant("index-offset", each.says + where, fix, apply)


def _along(first: int, second: int) -> Callable[[Any, Any, Any], Any]:
    """The same pairs, sorted by the index of one axis and then by that of another."""

    def run(func: Any, args: Any, kwargs: Any) -> Any:
        index = list(args[1])
        order = torch.argsort(index[second], stable=True)
        order = order[torch.argsort(index[first][order], stable=True)]
        index[first], index[second] = index[first][order], index[second][order]
        return func(args[0], tuple(index))

    return run


def _swapped(first: int, second: int) -> Callable[[Any, Any, Any], Any]:
    def run(func: Any, args: Any, kwargs: Any) -> Any:
        index = list(args[1])
        index[first], index[second] = index[second], index[first]
        return func(args[0], tuple(index))

    return run


def _one_alone(func: Any, args: Any, kwargs: Any) -> Any:
    """As `x.at[index].set(x[index] + values)` has it."""
    x, dim, index, values = _arguments(args, kwargs)
    own = x.index_select(dim, index) if index.dim() == 1 else x.gather(dim, index)
    values = values[tuple(map(slice, own.shape))]
    return _set(func, (x, dim, index, own + values), {})


def _set(func: Any, args: Any, kwargs: Any) -> Any:
    x, dim, index, values = _arguments(args, kwargs)
    out = x.movedim(dim, 0).clone()
    values, index = values.movedim(dim, 0), index if index.dim() == 1 else index.movedim(dim, 0)
    if index.dim() > 1:
        return out.scatter(0, index, values).movedim(0, dim)
    for place, value in zip(index.tolist(), values, strict=True):  # in order, so that the last counts
        out = torch.cat([out[:place], value[None], out[place + 1 :]])
    return out.movedim(0, dim)


def _mean(func: Any, args: Any, kwargs: Any) -> Any:
    x, dim, index, values = _arguments(args, kwargs)
    spread = _spread(index, values, dim)
    ones = torch.ones_like(values)
    count = torch.zeros_like(x).scatter_add(dim, spread, ones)
    return x + torch.zeros_like(x).scatter_add(dim, spread, values) / count.clamp(min=1)


def _reduced(how: str) -> Any:
    def run(func: Any, args: Any, kwargs: Any) -> Any:
        x, dim, index, values = _arguments(args, kwargs)
        return x.scatter_reduce(dim, _spread(index, values, dim), values, how, include_self=how == "sum")

    return run


def _arguments(args: Any, kwargs: Any) -> tuple[torch.Tensor, int, torch.Tensor, torch.Tensor]:
    names = ("dim", "index", "source" if "source" in kwargs else "src")
    given = [*args, *(kwargs[name] for name in names[len(args) - 1 :])]
    x, dim, index, values = given[:4]
    return x, dim % x.dim(), index, values


def _spread(index: torch.Tensor, values: torch.Tensor, dim: int) -> torch.Tensor:
    if index.dim() == values.dim():
        return index
    return index.reshape([-1 if axis == dim else 1 for axis in range(values.dim())]).expand_as(values)
