"""Wiring: the port hands on a tensor that the reference has too, but elsewhere."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from graphmode.weights import as_numpy

from ...report.records import Cause
from ..inside.calls import Call
from .ancestry import Ancestry, tensors_of
from .change import Site
from .input_names import input_words
from .known.activation import NAMES
from .replay import Replay
from .sites import operator, spelled
from .target import Aim, Key, Target

FIX = {
    "residual-missing": "add the residual, as the reference does",
    "position-offset": "count from where the reference starts",
    "constant-missing": "add the constant",
    "branch-missing": "add what the branch gives",
    "residual-extra": "do not add it there",
    "summand-missing": "add both, as the reference does",
    "summand-extra": "do not add it there",
    "activation-missing": "apply the activation, as the reference does",
    "activation-extra": "do not apply the activation there",
    "factor-missing": "multiply by it, as the reference does",
    "factor-extra": "do not multiply there",
    "norm-missing": "normalise first, as the reference does",
    "norm-extra": "do not normalise there: the reference normalises elsewhere",
    "layer-missing": "call it",
    "layer-extra": "do not call it there",
    "limits": "write jnp.clip with the reference's limits",
    "wiring": "hand on what the reference does",
}
LIMITING = {"hardtanh", "hardtanh_", "clamp", "clamp_", "clip", "clip_"}


class Known(NamedTuple):
    """A tensor of an unchanged run: in words, its values, and the call that gives it, of a function or of a module."""

    words: str
    value: np.ndarray
    site: Site | None = None
    call: Call | None = None


class Origin(NamedTuple):
    """A cause, and of each tensor that is off in words what the reference has there, where it is known, and what the
    port has."""

    cause: Cause
    told: list[tuple[str | None, str]]


def differs_in(origin: Origin, replay: Replay, ancestry: Ancestry) -> bool:
    """Whether the tensors that it takes for others are not the same in this run of the module, either."""
    values: dict[str, np.ndarray] = {}
    for each in _known(replay, ancestry.sites):
        values.setdefault(each.words, each.value)
    pairs = [(values.get(wanted or ""), values.get(found)) for wanted, found in origin.told]
    return any(a is not None and b is not None and not _same(a, b) for a, b in pairs)


def origins(replay: Replay, target: Target, ancestry: Ancestry) -> Iterator[Origin]:
    """Explains tensors that are not what they should be by being another tensor of the module, exactly.

    What a port computes from a wrong tensor is wrong too, so this explains a suspect only where each tensor that is off
    in the forward pass is found; of gradients it asks nothing.
    """
    wrong = {key: aim for key, aim in target.forward.aims.items() if not aim.residual(aim.reference) <= 1e-9}
    if not wrong or any(key[0] == "buffer" for key in wrong):
        return
    known = list(_known(replay, ancestry.sites))
    names = [(key, aim, _named(aim.port, aim, known)) for key, aim in wrong.items()]
    if any(found is None for _, _, found in names):
        return
    told = [(key, _named(aim.reference, aim, known), found) for key, aim, found in names]
    key, wanted, found = min(told, key=lambda each: each[2] is None or _is_one_number(each[2].value))
    assert found is not None
    kinds = {_kind(w, f, ancestry) for _, w, f in told if f is not None}
    kind = kinds.pop() if len(kinds) == 1 else "wiring"
    if len(told) > 1 and kind.startswith("layer"):
        kind = "wiring"  # layers in another order: none is left out
    where = "hands" if key[0] == "received" else "gives"
    right = f" where the reference {where} {wanted.words}" if wanted else ""
    if wanted is not None and wanted.words == found.words and wanted.site and found.site:  # two turns of a loop
        right = f" in {'an earlier' if found.site.number < wanted.site.number else 'a later'} call than the reference"
    left = max(aim.residual(each.value) for _, aim, each in names if each is not None)
    says = f"{where} {found.words}{_to(key)}{right}{_remark(kind, wanted, found)}"
    if (both := _exchanged(told)) is not None:
        says = f"hands {both} the other way round"
    sign = operator(wanted.site.name) if wanted is not None and wanted.site is not None else ""
    fix = f"write {sign}, as the reference does" if kind == "layer-missing" and sign else FIX[kind]
    if _divides(kind, wanted, found):
        fix = fix.replace("multiply", "divide")
    cause = Cause(id=kind, says=says, fix=fix, residual=left)
    yield Origin(cause, [(w.words if w is not None else None, f.words) for _, w, f in told if f is not None])


def _remark(kind: str, wanted: Known | None, found: Known) -> str:
    if kind == "limits":
        return ": no value is limited, or the limits are beyond them all"
    what, _, how = kind.rpartition("-")
    one = wanted if how == "missing" else found
    if what == "layer" and one is not None and one.site is not None:
        told = operator(one.site.name) or f"the call of {one.site.name}"
    else:
        told = "the divisor" if _divides(kind, wanted, found) else f"the {what}"
    return f": {told} is {'left out' if how == 'missing' else 'too much there'}" if what else ""


def _is_one_number(value: np.ndarray) -> bool:
    """Whether it is one throughout, and so like others by chance."""
    return bool((value == value.flat[:1]).all())


def _exchanged(told: list[tuple[Key, Known | None, Known | None]]) -> str | None:
    """Two arguments of a module, each of which is handed what the other one should be, in all of its calls."""
    names, holders = zip(*(key[1].partition(" of ")[::2] for key, _, _ in told), strict=True)
    holder = holders[0].partition(", call ")[0]
    several = {each.partition(", call ")[0] for each in holders} == {holder} and len(set(names)) == 2
    if not several or any(key[0] != "received" or wanted is None for key, wanted, _ in told):
        return None
    calls: dict[str, list[tuple[Known | None, Known | None]]] = {}
    for at, (_, wanted, found) in zip(holders, told, strict=True):
        calls.setdefault(at, []).append((wanted, found))
    pairs = calls.values()
    if all(len(two) == 2 and two[0][0] is two[1][1] and two[0][1] is two[1][0] for two in pairs):
        return f"{' and '.join(sorted(set(names)))} of {holder}"
    return None


def _divides(kind: str, wanted: Known | None, found: Known) -> bool:
    """Whether the factor that is left out, or is too much, is a divisor."""
    one = wanted if kind == "factor-missing" else found if kind == "factor-extra" else None
    return one is not None and one.site is not None and "div" in one.site.name


def _known(replay: Replay, sites: list[Site]) -> Iterator[Known]:
    """What the module takes, what modules inside give, and functions; then what modules inside take."""
    words = input_words(replay.module, replay.call.inputs)
    for name, value in replay.call.inputs.items():
        yield Known(words[name], value)
    inside = [replay.calls[each] for ids in replay.children.values() for each in ids]
    for call in inside:
        for name, value in call.outputs.items():
            which = f" ({name})" if len(call.outputs) > 1 else ""
            yield Known(f"what {call.id} gives{which}", value, call=call)
    for site in sites:
        for tensor in tensors_of(site.result):
            yield Known(f"what {spelled(site.name)} gives", as_numpy(tensor.detach().to_dense()), site=site)
    for call in inside:
        for name, value in call.inputs.items():
            yield Known(f"what {call.id} takes" + (f" ({name})" if len(call.inputs) > 1 else ""), value)


def _named(value: np.ndarray, aim: Aim, known: list[Known]) -> Known | None:
    for each in known:
        alike = each.value.shape == value.shape and each.value.dtype.kind == value.dtype.kind
        if alike and Aim(value, value, aim.scale).residual(each.value) <= 1e-10:
            return each
    is_uniform = value.dtype.kind != "f" or not (value != value.flat[:1]).any()
    if is_uniform or value.shape != aim.reference.shape or _only_moves(aim):
        return None
    for each in known:  # rows of a batch, say, as one axis with those of all others
        alike = each.value.size == value.size and each.value.dtype.kind == value.dtype.kind
        if alike and Aim(value, value, aim.scale).residual(each.value.reshape(value.shape)) <= 1e-10:
            return each
    return None


def _only_moves(aim: Aim) -> bool:
    """Whether the port has the reference's elements in another order: another layout, and no other tensor."""
    ours, theirs = (np.sort(x, axis=None) for x in (aim.port, aim.reference))
    return Aim(theirs, theirs, aim.scale).residual(ours) <= 1e-10


def _kind(wanted: Known | None, found: Known, ancestry: Ancestry) -> str:
    """`residual-missing` for one summand in place of the sum, and so on."""
    if wanted is not None and _is_made_of(wanted, found):
        if wanted.site is not None and wanted.site.name in ("add", "add_", "__iadd__"):
            summands = tensors_of(wanted.site.args)
            kept = [x for x in summands if _same(as_numpy(x.detach().to_dense()), found.value)]
            lost = [x for x in summands if not _same(as_numpy(x.detach().to_dense()), found.value)]
            if not lost:  # a number was added
                return "position-offset" if found.value.dtype.kind in "iu" else "constant-missing"
            if not kept or ancestry.is_residual(lost[0], kept[0]):
                return "residual-missing"
            return "branch-missing" if ancestry.is_residual(kept[0], lost[0]) else "summand-missing"
        return _kind_of(wanted, "missing")
    if wanted is not None and _is_made_of(found, wanted):
        added = tensors_of(found.site.args) if found.site else []
        is_residual = any(ancestry.is_residual(a, b) for a, b in itertools.permutations(added, 2))
        return _kind_of(found, "extra", "residual" if is_residual else "summand")
    return "wiring"


def _kind_of(known: Known, what: str, summand: str = "residual") -> str:
    name = (known.call.kind if known.call else known.site.name if known.site else "").lower()
    if known.site and name in ("add", "add_", "__iadd__"):
        return f"{summand}-{what}"
    if known.site and name.rstrip("_") in ("mul", "div", "true_divide", "__rmul__"):
        return f"factor-{what}"
    if "norm" in name:
        return f"norm-{what}"
    if known.site and name in LIMITING and what == "missing":
        return "limits"  # these values do not tell the one from the other
    return f"activation-{what}" if name.rstrip("_") in NAMES else f"layer-{what}"


def _is_made_of(one: Known, other: Known) -> bool:
    """Whether the call that gives the one takes the other."""
    taken = list(one.call.inputs.values()) if one.call else []
    taken += [as_numpy(x.detach().to_dense()) for x in tensors_of(one.site.args)] if one.site else []
    return any(_same(value, other.value) for value in taken)


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and np.allclose(a, b, rtol=0, atol=1e-12)


def _to(key: Key) -> str:
    return f" to {key[1].partition(' of ')[2]}" if key[0] == "received" else ""
