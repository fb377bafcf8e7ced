"""The pair of modules to shrink: the first that introduces error, and still does when it is run by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import torch
from flax import nnx

from graphmode.weights import as_numpy

from ...case import Case, CaseError
from ...errors import describe_briefly
from ...functional_dropout import functional_dropout_off
from ...observation import Named
from ...report.records import Divergence
from ...trees import named_leaves
from ..diagnosis import questions
from ..examination import Examination
from ..inside.calls import CallId
from ..inside.fixed_size import FixedSizeLayout
from ..inside.layouts import AnyLayout, Complement, Layout
from ..inside.localise import Look
from ..inside.packed import PackedLayout
from ..yardstick import EQUAL_TOLERANCE, Difference, magnitude
from .pair import SMALLEST, Call, From, Key, ModulePair, Spec, To, replaced

KINDS = ("output", "buffer", "input_gradient", "parameter_gradient")
KEPT = 1e-4  # of the first error: what is left of it may be smaller, but no mere rounding


class _Unsuitable(Exception):
    """A call that cannot be written down: the module around it is taken instead."""


@dataclass
class Failure:
    """A pair of modules that differ on these inputs, in one tensor.

    Attributes:
      pair: the modules.
      kind, reference_kind: their classes.
      inputs: in the reference's layout, by name.
      key: of the tensor that is judged.
      floor: what its error is a fraction of, at least.
      error: of the first inputs.
      was_finite: whether the reference's tensor is.
    """

    pair: ModulePair
    kind: str
    reference_kind: str
    inputs: Named
    key: Key
    floor: float
    error: float
    was_finite: bool

    def off(self, inputs: Named) -> Difference | None:
        """How far the port is off on these inputs; None where it is not, or they are none that both sides take."""
        try:
            answer = self.pair.run(inputs, backward=self.key[0] != "output")
            found = answer.off(self.key, self.floor)
            finite = np.isfinite(answer.reference[self.key]).all() if answer.reference[self.key].size else False
        except Exception:
            return None
        if found.error <= self.least or (self.was_finite and not finite):
            return None
        return found

    @property
    def least(self) -> float:
        """An error that counts as the same fault."""
        return max(EQUAL_TOLERANCE, min(self.error, 1.0) * KEPT)


@functional_dropout_off()
def find_failure(case: Case, *, seed: int, variant: str, dtype: str = "float32") -> Failure:
    """Checks a port and gives the innermost pair of modules that differs by itself.

    Raises:
      CaseError: where the port is equal, or no pair of modules differs by itself.
    """
    exam = Examination(case, seed=seed, dtype=dtype, locate=False, hasty=True)

    def build(dtype: str) -> Any:
        return exam.port_side(variant, dtype)

    parity = exam.verdict("jax", variant, build)
    if parity.equal:
        more = "" if parity.precise else ", though not as precise, which is no matter of one input"
        raise CaseError(f"case {case.name!r}: the port {variant!r} is equal{more}: there is nothing to shrink")
    why: list[str] = []
    for question in questions(exam, parity.tensors):
        try:
            look = Look(exam.port_side(variant, "float64"), exam.judge.exact, question, case.modules)
        except Exception as error:
            why.append(f"{question.label!r} in {question.mode}: {describe_briefly(error)}")
            continue
        for divergence in look.divergences():
            for at in _outwards(divergence, look):
                try:
                    found = _failure(case, look, at, seed, variant, dtype)
                except Exception as error:
                    why.append(f"{at.path or 'the model'}: {describe_briefly(error)}")
                    continue
                if found is not None:
                    return found
                why.append(f"{at.path or 'the model'}: it does not differ when it is run by itself")
    told = "; ".join(dict.fromkeys(why)) or "only steps of training differ, which `lockstep` looks into"
    raise CaseError(f"case {case.name!r}: no module of the port {variant!r} could be taken out: {told}")


def _outwards(divergence: Divergence, look: Look) -> Iterator[CallId]:
    """The call, then those around it, of those that have a counterpart."""
    path = divergence.module
    number = divergence.call
    while True:
        if CallId(path, number) in look.matches:
            yield CallId(path, number)
        if not path:
            return
        path, number = path.rpartition(".")[0], 0


def _failure(case: Case, look: Look, at: CallId, seed: int, variant: str, dtype: str) -> Failure | None:
    there = look.matches[at]
    theirs, inputs = _reference_call(look, there)
    ours, constants = _port_call(look, at)
    outputs = () if not at.path else tuple(_to(p.name, p.index, p.layout) for p in look.run.borders(at).outputs)
    if at.path and not outputs:
        raise _Unsuitable("its outputs have no counterpart")
    spec = Spec(variant, at.path, there.path, look.question.mode, seed, theirs, ours, outputs, dtype)
    pair = ModulePair(case, spec)
    inputs = {**inputs, **constants}
    backward = look.question.mode != "inference"
    answer = pair.run(inputs, backward=backward)
    gradients = [magnitude(array) for (kind, _), array in answer.reference.items() if kind.endswith("gradient")]
    size = max(gradients, default=0.0)
    for kind in KINDS:
        for key in answer.reference:
            if key[0] != kind or key not in answer.port:
                continue
            floor = SMALLEST * (size if kind.endswith("gradient") else magnitude(answer.reference[key]))
            off = answer.off(key, floor)
            if not off.equal:
                finite = bool(np.isfinite(answer.reference[key]).all())
                kinds = look.kinds.get(at.path, ""), look.calls[there].kind
                return Failure(pair, *kinds, inputs, key, floor, off.error, finite)
    return None


def _reference_call(look: Look, there: CallId) -> tuple[Call, Named]:
    """How the reference calls the module, and with what."""
    inputs: Named = {}

    def taken(tree: Any) -> Any:
        names = {id(leaf): name for name, leaf in named_leaves(tree).items()}

        def each(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return _literal(leaf)
            name = names.get(id(leaf), "input")
            while name in inputs:
                name += "'"  # as `recorded` names them
            inputs[name] = as_numpy(leaf).copy()
            return From(name)

        return replaced(tree, each)

    args, kwargs = look.calls[there].arguments
    return Call(taken(args), taken(kwargs)), inputs


def _port_call(look: Look, at: CallId) -> tuple[Call, Named]:
    """How the port calls it: with the reference's inputs, and with arrays of its own."""
    found: list[tuple[Any, Any]] = []

    def note(call: CallId, module: nnx.Module, run: Any, args: Any, kwargs: Any) -> Any:
        if call == at:
            found.append((args, kwargs))
        return run(module, *args, **kwargs)

    look.run.watch(note)
    pairs = {pair.index: pair for pair in look.run.borders(at).inputs}
    constants: Named = {}
    number = iter(range(10**6))

    def each(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array | np.ndarray):
            return _literal(leaf)
        index = next(number)
        if index in pairs:
            layout = pairs[index].layout
            if not isinstance(layout, Layout):
                raise _Unsuitable(f"it takes {_KINDS[type(layout)]}, which a port has in another form")
            if layout.flat is not None:
                raise _Unsuitable("it takes an image where the reference's takes one that is flattened")
            merged = tuple(layout.origin[axis] for axis in layout.axes) != layout.shape
            plain = layout.axes == tuple(range(len(layout.axes)))
            return From(pairs[index].name, None if plain else layout.axes, layout.shape if merged else None)
        name = f"port {len(constants)}"
        constants[name] = np.asarray(leaf)
        return From(name)

    args, kwargs = found[0]
    return Call(replaced(tuple(args), each), replaced(dict(kwargs), each)), constants


_KINDS = {
    PackedLayout: "a packed sequence",
    FixedSizeLayout: "a tensor as long as its values say",
    Complement: "a mask of the opposite meaning",
}


def _to(name: str, index: int, layout: AnyLayout) -> To:
    if not isinstance(layout, Layout):
        raise _Unsuitable(f"it gives {_KINDS[type(layout)]}, which a port has in another form")
    return To(name, index, layout.axes, tuple(layout.origin[axis] for axis in layout.axes) != layout.shape)


def _literal(leaf: Any) -> Any:
    if leaf is None or type(leaf) in (bool, int, float, str):
        return leaf
    raise _Unsuitable(f"it is called with a {type(leaf).__name__}, which cannot be written down")
