"""Parameters that a port may hold or use otherwise: transposed, flipped, in pieces of another order, or another's."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch

from .ancestry import Ancestry
from .replay import Replay
from .variants import other_orders

Make = Callable[..., torch.Tensor]  # of the parameter


@dataclass(frozen=True)
class ParameterVariant:
    """Other parameters, by name below the module."""

    id: str
    says: str
    fix: str
    parameters: Mapping[str, Make]


def own_parameters(replay: Replay) -> dict[str, torch.nn.Parameter]:
    """Those that the module holds itself, or in modules that the port has not, by name below it."""
    return {n: p for n, p in replay.parameters.items() if is_own(replay, n)}


def is_own(replay: Replay, name: str) -> bool:
    """Whether what has this name below the module is in none of the modules inside that the port has, too."""
    return not any(_below(replay, name, path) for path in replay.children)


def parameter_variants(replay: Replay) -> Iterator[ParameterVariant]:
    """Of the module's own parameters."""
    own = own_parameters(replay)
    yield from _gates(own)
    for name, parameter in own.items():
        yield from _of_one(name, parameter)
    for name, second in itertools.combinations(own, 2):
        if own[name].shape == own[second].shape:
            yield ParameterVariant(
                "swapped-weights",
                f"swaps {name} and {second}",
                "carry each into its own place",
                {name: _always(own[second]), second: _always(own[name])},
            )
    for name in own:
        yield from _of_others(replay, name, "carry each into its own place")
    layers = {n.rpartition(".")[0] for n in own}
    for layer in layers:
        mine = {n: p for n, p in own.items() if n.rpartition(".")[0] == layer}
        for path, module in replay.model.named_modules():
            theirs = dict(module.named_parameters(recurse=False))
            names = {n.rpartition(".")[2] for n in mine}
            if (
                names == set(theirs)
                and len(names) > 1
                and all(
                    theirs[n.rpartition(".")[2]].shape == p.shape and theirs[n.rpartition(".")[2]] is not p
                    for n, p in mine.items()
                )
            ):
                yield ParameterVariant(
                    "swapped-weights",
                    f"uses the weights of {path}",
                    "carry each into its own place",
                    {n: _always(theirs[n.rpartition(".")[2]]) for n in mine},
                )


def read_from_inside(replay: Replay, ancestry: Ancestry) -> Iterator[ParameterVariant]:
    """Another parameter in place of one that the module reads, and that is of a module inside which the port has too: a
    table of words that makes a head."""
    for name, parameter in replay.parameters.items():
        if not is_own(replay, name) and ancestry.takers(parameter):
            yield from _of_others(replay, name, f"read {name} there, as the reference does")


def _of_others(replay: Replay, name: str, fix: str) -> Iterator[ParameterVariant]:
    parameter = replay.parameters[name]
    for there, other in replay.model.named_parameters():
        if other is not parameter and other.shape == parameter.shape:
            yield ParameterVariant("swapped-weights", f"uses {there} for {name}", fix, {name: _always(other)})


def _gates(own: Mapping[str, torch.Tensor]) -> Iterator[ParameterVariant]:
    """The parts of several parameters that belong together, all in one other order: gates of a recurrence by hand."""
    groups: dict[tuple[int, str], list[str]] = {}
    for name, parameter in own.items():
        if parameter.dim():
            path, _, last = name.rpartition(".")
            for prefix in dict.fromkeys((f"{path}.", f"{path}.{last.split('_')[0]}")):
                groups.setdefault((parameter.shape[0], prefix), []).append(name)
    several = dict.fromkeys(tuple(names) for names in groups.values() if len(names) > 1)
    for names in sorted(several, key=len):
        for count in (3, 4):
            if own[names[0]].shape[0] % count or own[names[0]].shape[0] == count:
                continue
            for order in other_orders(count):
                yield ParameterVariant(
                    "gate-order",
                    f"takes the {count} parts of {', '.join(names)} in the order {order}",
                    "take them in order",
                    {name: _in_order(order) for name in names},
                )


def _in_order(order: tuple[int, ...], axis: int = 0) -> Make:
    return lambda w: torch.cat([w.chunk(len(order), axis)[i] for i in order], axis)


def _of_one(name: str, p: torch.Tensor) -> Iterator[ParameterVariant]:
    def variant(id: str, says: str, fix: str, make: Make) -> ParameterVariant:
        return ParameterVariant(id, says.format(name), fix.format(name), {name: make})

    for a, b in itertools.combinations(range(p.dim()), 2):
        if p.shape[a] == p.shape[b]:
            yield variant(
                "weight-transposed",
                f"swaps axes {a} and {b} of {{}}",
                "give {} the transform of its layout",
                lambda w, a=a, b=b: w.transpose(a, b),
            )
    for axis in range(p.dim()):
        if p.shape[axis] > 1:
            yield variant(
                "weight-flipped", f"reverses axis {axis} of {{}}", "leave its order", lambda w, axis=axis: w.flip(axis)
            )
        for count in (2, 3, 4):
            if p.shape[axis] % count == 0 and p.shape[axis] > count:
                for order in other_orders(count):
                    yield variant(
                        "pieces-order",
                        f"takes the {count} parts of {{}} along axis {axis} in the order {order}",
                        "take them in order",
                        _in_order(order, axis),
                    )
    for parts in (2, 3, 4, 5, 6, 7, 8, 16):
        for axis in range(p.dim()):
            if p.shape[axis] % parts == 0 and 1 < parts < p.shape[axis]:
                yield variant(
                    "weight-interleaved",
                    f"takes axis {axis} of {{}} as [n, {parts}] where it is [{parts}, n]",
                    "keep the order of its elements",
                    lambda w, k=parts, a=axis: _regrouped(w, k, a),
                )
    for axis, by in itertools.product(range(p.dim()), (1, -1)):
        if p.shape[axis] > 2:
            yield variant(
                "pieces-order",
                f"rolls axis {axis} of {{}} by {by}",
                "take them in order",
                lambda w, axis=axis, by=by: w.roll(by, axis),
            )
    yield variant("parameter-missing", "does not use {} (zero)", "use {}", torch.zeros_like)
    yield variant("parameter-missing", "does not use {} (one)", "use {}", torch.ones_like)
    yield variant("parameter-twice", "uses {} twice", "use {} once", lambda w: w + w)
    yield variant("sign", "has the sign of {} turned", "keep its sign", torch.neg)
    yield variant("scale-plus-one", "adds 1 to {}", "use {} as it is", lambda w: w + 1)


def _regrouped(w: torch.Tensor, parts: int, axis: int) -> torch.Tensor:
    order = torch.arange(w.shape[axis]).reshape(parts, -1).T.reshape(-1)
    return w.index_select(axis, order)


def _always(other: torch.Tensor) -> Make:
    return lambda _: other


def _below(replay: Replay, name: str, path: str) -> bool:
    inside = path[len(replay.path) :].lstrip(".")
    return name.startswith(f"{inside}.")
