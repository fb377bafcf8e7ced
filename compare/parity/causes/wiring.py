"""What goes where: another tensor of the module in a call, two taken for one another, a gradient that is let through
no further or is multiplied on its way."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from .ancestry import Ancestry, are_equal, is_dense
from .change import Change, Moved, Replaced, Site
from .known.gradient import scaled
from .replay import Replay
from .sites import constructs, instruction, is_floating, source, spelled
from .target import EXPLAINED, Target
from .variants import Fit, Variant

WRITE_IT = "write it where the reference does, before it is read again"
HAND_ON = "hand on what the reference does"
EXCHANGED = "tensors-exchanged"
LET_THROUGH = "let it through: no jax.lax.stop_gradient there"
LOST = "state-lost"
MOST_LOST = 8  # calls, of which each may be the one that loses what it writes
FEW_CALLS = 4
MOST_TAKERS = 8


def rewired(ancestry: Ancestry) -> Iterator[tuple[Variant, Change]]:
    """Another tensor of the module, made earlier, as an argument of a call."""
    tensors = ancestry.tensors
    for site in ancestry.sites:
        for place, given in enumerate(site.args):
            if not is_dense(given) or given.is_complex() or given.dtype == torch.bool:
                continue
            usual = ancestry.words(given)
            for number, (words, made, tensor) in enumerate(tensors):
                if words == usual and given.is_floating_point() and _of_one_line(ancestry, tensor, given):
                    continue  # a loop's turns, which no words tell apart
                if made > site.number or not is_dense(tensor) or tensor.dtype != given.dtype:
                    continue
                fits = tensor.shape == given.shape or _counts(tensor, given)
                if fits and not torch.equal(tensor.expand_as(given), given):
                    change = Change(rewired=(site.number, place, number))
                    if place == 0 and _writes(site):  # into something else, and what it is no matter
                        yield Variant("wiring", _unwritten_by(site, usual, ancestry), WRITE_IT, unused), change
                        break
                    instead = ancestry.as_filled(words, tensor)
                    says = f"gives {instead} to {spelled(site.name)} where the reference gives {usual}"
                    if words == usual:
                        says = f"gives {spelled(site.name)} {_told_apart(ancestry, words, tensor, given)}"
                    yield Variant("wiring", says, HAND_ON, unused), change


def _told_apart(ancestry: Ancestry, words: str, one: torch.Tensor, other: torch.Tensor) -> str:
    lines = [source(maker) if (maker := ancestry.maker(x)) is not None else "" for x in (one, other)]
    if not all(lines) or lines[0] == lines[1]:
        return f"another tensor than the reference does, also {words}"
    return f"{words} at {lines[0]} where the reference gives that at {lines[1]}"


def _of_one_line(ancestry: Ancestry, one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the same instruction makes them, or either is made by none."""
    a, b = ancestry.maker(one), ancestry.maker(other)
    return a is None or b is None or instruction(a) == instruction(b)


def _writes(site: Site) -> bool:
    """Whether it is a method that writes into the tensor that it is called on."""
    return site.name.endswith("_") and not site.name.endswith("__")


def _unwritten_by(site: Site, written: str, ancestry: Ancestry) -> str:
    same = [each.number for each in ancestry.sites if instruction(each) == instruction(site)]
    turn = f", call {same.index(site.number) + 1} of {len(same)}" if len(same) > 1 else ""
    return f"does not write into {written} by {site.name}{turn}"


def _counts(tensor: torch.Tensor, ones: torch.Tensor) -> bool:
    """Whether the one can be laid over the other, all ones, and says which of them count."""
    if not bool((ones == 1).all()) or tensor.dim() > ones.dim():
        return False
    sides = zip(reversed(tensor.shape), reversed(ones.shape), strict=False)
    return all(n in (1, m) for n, m in sides) and bool(((tensor == 0) | (tensor == 1)).all())


def indexed_by(ancestry: Ancestry) -> Iterator[tuple[Variant, Change]]:
    """Indices in place of others as many, such as an edge's source for its target, by several calls one after the
    other."""
    indices = [(number, words, x) for number, (words, _, x) in enumerate(ancestry.tensors) if _is_index(x)]
    for (one, usual, x), (other, words, y) in itertools.permutations(indices, 2):
        takers = ancestry.takers(x)
        if x.shape != y.shape or x.dtype != y.dtype or torch.equal(x, y) or len(takers) > MOST_TAKERS:
            continue
        for first, last in itertools.combinations(takers, 2):
            if first.number >= ancestry.tensors[other][1]:
                others = f"{words} for {usual}" if words != usual else f"other indices, each of which is {words},"
                says = (
                    f"takes {others} in {spelled(first.name)} and {spelled(last.name)}, and what takes it between them"
                )
                change = Change(replaced=(Replaced(one, other, first.number, last.number),))
                yield Variant("wiring", says, HAND_ON, unused), change


def _is_index(x: torch.Tensor) -> bool:
    return not x.is_floating_point() and not x.is_complex() and x.dtype != torch.bool


def exchanged(ancestry: Ancestry) -> Iterator[tuple[Variant, Change]]:
    """Two tensors of the module, each in place of the other; of what one function gives also where the one is laid over
    the other."""
    for (i, (one, _, a)), (j, (other, _, b)) in itertools.combinations(enumerate(ancestry.tensors), 2):
        fit = a.shape == b.shape or (one == other and _lie_over_one_another(a, b))
        if fit and a.dtype == b.dtype and not are_equal(a, b):
            says = f"takes {one} for {other}, and the other way round"
            if one == other:
                says = f"takes two tensors for one another, each of which is {one}"
            change = Change(exchanged=(i, j), later=(a.detach(), b.detach()))
            yield Variant(EXCHANGED, says, HAND_ON, unused), change


def _lie_over_one_another(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether they have the same number of elements, or one, along each axis."""
    return all(1 in (n, m) or n == m for n, m in zip(reversed(a.shape), reversed(b.shape), strict=False))


def moved(replay: Replay, target: Target, sites: list[Site]) -> Iterator[tuple[Variant, Change]]:
    """A module inside, called elsewhere, as a norm before a block or after its sum, that receives what is wrong; and
    all of its kind, each called on its own."""
    wrong = {path: shape for path in replay.children if (shape := _wrong_shape(replay, target, path)) is not None}
    for path, shape in wrong.items():
        for site in sites:
            if is_floating(site.result):
                for order in _axis_orders(site.result.shape, shape):
                    change = Change(moved=(Moved(path, site.number, order),))
                    yield _moved(path, f"what {spelled(site.name)} gives"), change
        for other, first in _given_first(replay).items():
            if other != path:
                for order in _axis_orders(first.shape, shape):
                    yield _moved(path, f"what {other} is given"), Change(moved=(Moved(path, other, order),))
    for paths in _of_one_kind(replay, wrong):
        shape, several = wrong[paths[0]], ", ".join(paths)
        for same in constructs(sites):
            if len(same) == len(paths) and is_floating(same[0].result):
                for order in _axis_orders(same[0].result.shape, shape):
                    each = tuple(Moved(path, site.number, order) for path, site in zip(paths, same, strict=True))
                    yield _moved(several, f"what {spelled(same[0].name)} gives in each turn"), Change(moved=each)
        given = _given_first(replay)
        for others in _of_one_kind(replay, given):
            if len(others) == len(paths) and not set(others) & set(paths):
                for order in _axis_orders(given[others[0]].shape, shape):
                    each = tuple(Moved(path, other, order) for path, other in zip(paths, others, strict=True))
                    yield _moved(several, f"what {', '.join(others)} are given"), Change(moved=each)


def _wrong_shape(replay: Replay, target: Target, path: str) -> tuple[int, ...] | None:
    """Of what a module is given and gives, if that is one shape, it is called once, and receives what is wrong."""
    calls = replay.children[path]
    call = replay.calls[calls[0]]
    shapes = [x.shape for x in (*call.inputs.values(), *call.outputs.values())]
    received = [target.aims.get(("received", f"{name} of {call.id}")) for name in call.inputs]
    if len(calls) > 1 or len(received) != 1 or shapes[1:] != shapes[:1]:
        return None
    return shapes[0] if received[0] is not None and received[0].error > EXPLAINED else None


def _given_first(replay: Replay) -> dict[str, np.ndarray]:
    """By the path of a module inside the first tensor that it is given."""
    calls = {path: replay.calls[ids[0]].inputs for path, ids in replay.children.items()}
    return {path: next(iter(inputs.values())) for path, inputs in calls.items() if inputs}


def _of_one_kind(replay: Replay, paths: Iterable[str]) -> list[list[str]]:
    """Modules beside each other of one class, where there are several, in the order of their calls."""
    found: dict[Any, list[str]] = {}
    for path in paths:
        found.setdefault((type(replay.model.get_submodule(path)), path.rpartition(".")[0]), []).append(path)
    return [several for several in found.values() if len(several) > 1]


def _axis_orders(shape: Sequence[int], wanted: Sequence[int]) -> Iterator[tuple[int, ...] | None]:
    """The orders of axes in which a tensor of one shape has the other's: as it is, or channels last for first."""
    if tuple(shape) == tuple(wanted):
        yield None
    axes = range(len(shape))
    for order in ((0, *axes[2:], 1), (0, len(shape) - 1, *axes[1:-1])) if len(shape) > 2 else ():
        if tuple(shape[axis] for axis in order) == tuple(wanted) and len(shape) == len(wanted):
            yield order


def _moved(path: str, on: str) -> Variant:
    says = f"calls {path} on {on}, and not where the reference calls it"
    fix = f"call {path} where the reference does: before a block, or after its sum"
    return Variant("module-order", says, fix, unused)


def unwritten(replay: Replay) -> Iterator[tuple[Variant, Change]]:
    """A buffer, or all of them, that the call computes anew and does not write."""
    written = replay.written()
    for names in [[name] for name in written] + [written][: len(written) > 1]:
        full = ", ".join(map(replay.full, names))
        says = f"does not write what it computes for {full}"
        fix = f"write it: self.{names[0].rpartition('.')[2]}[...] = ..., and carry the state out of the step"
        yield Variant("buffer-not-written", says, fix, unused), Change(unwritten=frozenset(names))
    full = ", ".join(map(replay.full, written))
    for words, lost in _lost_calls(replay) if written else ():
        says = f"loses what {words} of its {replay.count} calls writes into {full}"
        fix = "call the module itself and no copy (nnx.clone, nnx.merge), or write the copy's state back: nnx.update"
        yield Variant(LOST, says, fix, unused), Change(unwritten=frozenset(written), unwritten_in=lost)


def _lost_calls(replay: Replay) -> Iterator[tuple[str, frozenset[int]]]:
    """Some of several calls, in words and by their numbers; those first that a transform of the port hides."""
    count = replay.count
    if 1 < count <= MOST_LOST:
        for number in sorted(range(count), key=lambda number: number not in replay.hidden):
            yield f"call {number + 1}", frozenset([number])
    if count > 2:
        yield "each but the first", frozenset(range(1, count))
        yield "each but the last", frozenset(range(count - 1))


def stopped(replay: Replay) -> Iterator[tuple[Variant, Change]]:
    """The gradient stopped at the module's own border."""
    for name in replay.call.cotangents:
        says = f"stops the gradient at its output {name}"
        yield Variant("stop-gradient", says, LET_THROUGH, unused), Change(output=lambda x: x.detach())
    for path, calls in replay.children.items():
        names = list(replay.calls[calls[0]].outputs)
        for name in ["", *(names if len(names) > 1 else ())]:
            says = f"stops the gradient by what {path} gives" + (f" ({name})" if name else "")
            yield Variant("stop-gradient", says, LET_THROUGH, unused), Change(cut=(path, name))


def stopped_before(replay: Replay) -> Iterator[tuple[Variant, Change]]:
    """The gradient stopped on its way to a module inside, in all of its calls or in one."""
    for path, calls in replay.children.items():
        says = f"stops the gradient by what {path} is given"
        yield Variant("stop-gradient", says, LET_THROUGH, unused), Change(cut_before=(path, None))
        for call in calls if 1 < len(calls) <= FEW_CALLS else ():
            told = f"{says} in call {call.number + 1}"
            yield Variant("stop-gradient", told, LET_THROUGH, unused), Change(cut_before=call)


def multiplied() -> Iterator[tuple[Fit, Callable[[float], Change]]]:
    """The gradient multiplied there."""
    for change, words in ((_at_output, "its output"), (_at_input, "its input")):
        says = f"multiplies the gradient by {words} by {{value}}"
        yield Fit("gradient-scale", says, "leave it as it is", 1.0, unused), change


def unused(*_: Any) -> Any:
    raise NotImplementedError("a change of the module's border, and of no call")


def _at_output(value: float) -> Change:
    return Change(output=lambda x: scaled(x, value))


def _at_input(value: float) -> Change:
    return Change(input=lambda x: scaled(x, value))
