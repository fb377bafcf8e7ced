"""Parameters of which the port holds other numbers than the reference, or the same in another order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from flax import nnx

from graphmode.weights import as_numpy
from graphmode.weights.carry import named_arrays
from graphmode.weights.plan import make_plan

from .change import Change
from .parameters import Make, own_parameters
from .replay import Replay
from .variants import Variant
from .wiring import unused

if TYPE_CHECKING:
    from ..inside.localise import Look

TOLD = 6  # places of an order that are told
MOST_ELEMENTS = 4_000_000  # of a parameter whose order is looked for
FIX = "carry {} as the state_dict has it, and change nothing after it was loaded"
FIX_TRANSFORM = "let the rule's Transform keep the order that the module computes in"


def held_otherwise(look: Look, replay: Replay) -> Iterator[tuple[Variant, Change]]:
    """The module's own parameters with the numbers, or in the order, that the port's variables have.

    A variable that differs from what the `state_dict` would give was changed after it was loaded, or its transform does
    not give back what it took. One whose transform does, and that has the elements in another order than any
    transposition, was carried in that order.
    """
    program = look.port.program(look.question.mode)
    with look.port.context():
        module = nnx.merge(program.graphdef, program.params, program.rest)
        held = named_arrays(module, look.port.case.weights)
        raw = _as_they_lie(module, look)
    own = {name: as_numpy(p.detach()) for name, p in own_parameters(replay).items()}
    other = {n: held[replay.full(n)] for n, p in own.items() if _differ(held.get(replay.full(n)), p)}
    if other:
        orders = [_order(other[name], own[name]) for name in other]
        known = [order is not None for order in orders]
        says = "; ".join(
            _in_words(name, *order) if order else _numbers(name, other[name], own[name])
            for name, order in zip(other, orders, strict=True)
        )
        yield (
            Variant("pieces-order" if all(known) else "weight-values", says, FIX.format(", ".join(other)), unused),
            Change(parameters={name: _holding(array) for name, array in other.items()}),
        )
    carried: dict[str, tuple[int, np.ndarray]] = {}
    for name in own.keys() - other.keys():
        lies = raw.get(replay.full(name))
        order = None if lies is None else _order_of_any_layout(lies, own[name])
        if order is not None:
            carried[name] = order
    if carried:
        says = "; ".join(_in_words(name, *carried[name]) for name in sorted(carried))
        yield (
            Variant("pieces-order", says, FIX_TRANSFORM, unused),
            Change(parameters={name: _ordered(*order) for name, order in carried.items()}),
        )


def _as_they_lie(module: nnx.Module, look: Look) -> Mapping[str, np.ndarray]:
    """By key of the `state_dict`, the arrays of variables that one key makes alone, as the variables hold them."""
    plan, _ = make_plan(module, tuple(look.port.case.weights))
    pairs = ((group.keys[0], group.leaves) for group in plan if len(group.keys) == len(group.leaves) == 1)
    return {key: np.asarray(leaves[0].variable.get_value()) for key, leaves in pairs}


def _differ(one: np.ndarray | None, other: np.ndarray) -> bool:
    return one is not None and one.shape == other.shape and not np.array_equal(one, other, equal_nan=True)


def _order_of_any_layout(lies: np.ndarray, wanted: np.ndarray) -> tuple[int, np.ndarray] | None:
    """The axis, and the order along it, in which an array has another's slices, in the layout that shows it."""
    if lies.ndim != wanted.ndim or lies.size != wanted.size or lies.size > MOST_ELEMENTS:
        return None
    found = None
    for axes in itertools.permutations(range(lies.ndim)):
        turned = lies.transpose(axes)
        if turned.shape == wanted.shape:
            if np.array_equal(turned, wanted):
                return None
            found = found or _order(turned, wanted)
    return found


def _order(found: np.ndarray, wanted: np.ndarray) -> tuple[int, np.ndarray] | None:
    """The axis, and the order along it, in which one array has the slices of another, none of which is there twice."""
    if wanted.size > MOST_ELEMENTS:
        return None
    for axis in range(wanted.ndim):
        ours, theirs = (
            [np.ascontiguousarray(piece).tobytes() for piece in np.moveaxis(each.astype(np.float64), axis, 0)]
            for each in (found, wanted)
        )
        places = {piece: i for i, piece in enumerate(theirs)}
        if len(places) == len(theirs) and set(ours) == set(theirs):
            return axis, np.array([places[piece] for piece in ours])
    return None


def _in_words(name: str, axis: int, order: np.ndarray) -> str:
    first = ", ".join(str(place) for place in order[:TOLD])
    return f"has the elements of {name} along axis {axis} in the order {first}{' ...' if len(order) > TOLD else ''}"


def _numbers(name: str, held: np.ndarray, wanted: np.ndarray) -> str:
    apart = np.abs(np.nan_to_num(held.astype(np.float64), nan=np.inf) - wanted)
    place = np.unravel_index(int(apart.argmax()), apart.shape)
    where = f" at {[int(i) for i in place]}" if place else ""
    return f"holds other numbers in {name} than the reference: {held[place]:.6g} for {wanted[place]:.6g}{where}"


def _holding(array: np.ndarray) -> Make:
    # the gradient goes on to the parameter as if it held those numbers
    return lambda parameter: parameter - parameter.detach() + torch.tensor(array).to(parameter)


def _ordered(axis: int, order: np.ndarray) -> Make:
    return lambda parameter: parameter.index_select(axis, torch.from_numpy(order))
