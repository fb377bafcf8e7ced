"""A module that introduces error, in words: where, why, what to write instead, and the evidence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .records import Astray, Cause, Divergence, Finding
from .wording import count

_BORDERS = (("received", "to_model"), ("output", "to_reference"), ("received_cotangent", "loss"))
MOST_NAMED = 6  # modules
NAMES_AXES = re.compile(r"\bax[ei]s \(?-?\d|\border \(\d")
OPTIMIZER = "the optimizer"  # in the place of a module's path


def place(divergence: Divergence) -> str:
    """`"layer2.1.bn2 (BatchNorm2d at model.py:20)"`."""
    d = divergence
    if d.outside:
        return f"no module: {border(d)}"
    kind = f" ({d.kind} at {d.source})" if d.source else f" ({d.kind})" if d.kind else ""
    return f"{d.module or 'the model itself'}{kind}"


def border(divergence: Divergence) -> str:
    """The functions of the case that an error outside of all modules can arise in: `"the case's to_model"`."""
    wrong = {finding.what for finding in divergence.findings}
    if divergence.causes:
        return "the case's loss"  # which alone is looked into
    functions = [name for what, name in _BORDERS if what in wrong] or [name for _, name in _BORDERS]
    if "loss" in functions and "to_reference" not in functions:
        functions.insert(-1, "to_reference")  # whose gradient it is, too
    return f"the case's {' or '.join(functions)}"


def happens(divergence: Divergence) -> str:
    """`"error arises in"`, or that digits are lost."""
    return f"digits are lost in {divergence.dtype} in" if divergence.dtype else "error arises in"


def alike(divergences: Sequence[Divergence]) -> list[list[Divergence]]:
    """Those of modules of one class that have the same causes, or leave the reference's way at the same lines."""
    found: dict[tuple[str, ...], list[Divergence]] = {}
    for each in divergences:
        same = [f"{cause.id}: {said(cause)}" for cause in each.causes]
        if not same and each.astray is not None:
            same = [*each.astray.port, *each.astray.reference]
        key = (each.kind, each.source, *same) if each.source and same else (str(id(each)),)
        found.setdefault(key, []).append(each)
    return list(found.values())


def told(divergence: Divergence, others: Sequence[Divergence] = ()) -> Iterator[str]:
    """A divergence in a few lines: place, cause, fix and evidence; others that are like it by their names alone."""
    d = divergence
    if d.outside:
        yield f"no module introduces the error: it arises in {border(d)}"
    else:
        there = f", the reference's {d.reference}" if d.reference and d.reference != d.module else ""
        yield f"{happens(d)} {place(d)}{there}, on {d.input!r} in {d.mode}"
    if others:
        named, more = [each.module or "the model itself" for each in others[:MOST_NAMED]], len(others) - MOST_NAMED
        yield f"  likewise in {', '.join(named)}{f' and {more} more' if more > 0 else ''}"
    if d.causes:
        for i, cause in enumerate(d.causes):
            yield f"  {'or ' if i else ''}cause ({cause.id}): {said(cause)}"
            yield f"  fix: {cause.fix}"
        if d.astray is not None:
            yield f"  {ports_line(d.astray)}"
    elif not d.outside:
        yield f"  cause: {unexplained(d)}"
        if d.astray is not None:
            yield f"  {leaves(d.astray)}"
    for finding in d.findings[:3]:
        yield f"  {evidence(finding)}"
    if len(d.findings) > 3:
        yield f"  and {count(len(d.findings) - 3, 'further tensor')}"


def said(cause: Cause) -> str:
    """What the port does, and on which line the reference does otherwise."""
    axes = ", whose axes are meant" if NAMES_AXES.search(cause.says) else ""
    return f"{cause.says} (the reference's line is {cause.reference}{axes})" if cause.reference else cause.says


def unexplained(divergence: Divergence) -> str:
    """What is said in place of a cause."""
    if divergence.cut_short:
        long = f"in {divergence.tried_s:.0f} s, when" if divergence.tried_s else "before"
        return f"none found {long} the time was over; not all of the known ones were tried"
    return "none of the known ones explains it"


def leaves(found: Astray) -> str:
    """Where the port leaves the reference's way, and which lines of the reference it has no counterpart of there."""
    if found.gradient:
        told = f"{_GRADIENT[found.gradient]} at {where(found)}"
        return f"{told}; the reference makes that value at {', '.join(found.reference)}" if found.reference else told
    if found.whole:
        return f"{ports_line(found)}; what that does inside is not seen in the reference"
    told = f"leaves the reference's way at {where(found)}: from there on it has none of the reference's values"
    return f"{told}; without a counterpart: {', '.join(found.reference)}" if found.reference else told


_GRADIENT = {
    "stops": "stops the gradient where the reference's goes on,",
    "through": "lets the gradient through where the reference's does not go,",
    "differs": "its gradient leaves the reference's: right of what is made there, wrong of what that is made of,",
}


def ports_line(found: Astray) -> str:
    """The port's line of a cause; where the reference computes in one function, the one where that is begun."""
    if found.whole:
        return f"the port writes out what is one function in the reference, {found.whole}, from {where(found)} on"
    return f"the port's line: {where(found)}"


def where(found: Astray) -> str:
    """The lines of the port."""
    place = ", ".join(found.port)
    return f"{place}, in {found.handed}, which hands this module what comes of it" if found.handed else place


_WORDS = {
    "received": "what it hands to a module inside",
    "output": "its output",
    "received_cotangent": "the gradient that it sends back to a module inside",
    "input_gradient": "the gradient by its input",
    "parameter_gradient": "the gradient by its parameter",
    "buffer": "its buffer",
    "update": "its update",
}


def evidence(finding: Finding) -> str:
    """One tensor that is off, with both values."""
    size = "" if finding.error is None else f"off by {finding.error:.2g} of its scale"
    values = (
        f" at {list(finding.index)}: {finding.port_value} for {finding.reference_value}" if finding.port_value else ""
    )
    note = f", {finding.note}" if finding.note else ""
    return f"{_WORDS[finding.what]}, {finding.tensor}, is {size or 'off'}{values}{note}"
