"""Every call of the port's modules beside the reference's: what each inherits, and what each introduces.

Forcing: a module that has a counterpart runs on the reference's own inputs and hands on the reference's own outputs;
backward, it receives the reference's cotangents and hands on the reference's input gradients. So whatever is off where
a module receives something arose in the module around it, and whatever is off where it gives something arose in itself.

Everything runs operation by operation (`jax.disable_jit`), which makes a scan a Python loop of numbered calls. A call
within `jax.vmap` is one, of all lanes; `jax.checkpoint` lets its function run as it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from flax import nnx

from ...case import identity
from ...jax_side import PortSide
from ...observation import Observation
from ...trees import named_leaves
from ..judge import Question
from ..yardstick import difference
from .borders import Backward, Borders, Forward, Matches, Seen, What, giving_others
from .calls import Call, CallId, Calls, is_inside
from .cut_short import CutShort
from .hooking import handed, is_array, kept_in_memory, numbered, taken_apart
from .lanes import all_lanes
from .layouts import Layouts, Pair, are_among, are_exchanged, complement_of, is_added_to, pair, says_the_same
from .numbers import HandedNumbers
from .other_borders import beginning_elsewhere, ending_elsewhere
from .packed import is_lengths, unpacked
from .port_backward import BackwardPass


class _MadeUpForError(Exception):
    """A call gives the right shape by itself, and another one when calls inside hand on what the reference gives."""

    def __init__(self, parts: list[CallId]):
        super().__init__()
        self.parts = parts


class PortRun:
    """The port on one question, call by call.

    Args:
      side: the port, in float64 mostly.
      question: whose inputs it runs on, and in which mode.
      layouts: what is known of the port's from an earlier run.

    Attributes:
      cut_short: the loops of `gm.while_loop` that `max_steps` ends, by their lines; `inherited` comes first.
      handed_out: what the case's `to_reference` made of the reference's own outputs, in `forced_forward`.
      made_in: by call, the one that makes it; found by `kinds`.
      numbers: that modules are handed as arguments.
      unlike: calls that the port hands tensors of other shapes than the reference does, though all before them is
        right, found by `forced_forward`: it works on all lines at once, say, or on as many as there is room for; or
        that begin or end elsewhere, and give what no activation has gone through yet. That is no error yet. They are
        not compared, but run as a part of what is around them, which is.
    """

    def __init__(self, side: PortSide, question: Question, layouts: Layouts | None = None):
        self.side, self.question = side, question
        self.program = side.program(question.mode)
        self.batch = side.place(question.inputs, question.mode, question.cotangents)
        self.layouts = layouts or Layouts()
        self.made_in: dict[CallId, CallId | None] = {}
        self._borders: dict[CallId, Borders] = {}
        self._fits: set[CallId] = set()  # that give the reference's shapes when each has its own inputs
        self._misfits: list[CallId] = []  # that do not, though all before them is right
        self._righted: list[CallId] = []  # `unlike`, which were handed what is right in place of what is wrong
        self._hidden: set[CallId] = set()  # whose parameters are of a transform such as `jax.grad`, or of a later step
        self._parameters = {
            ".".join(map(str, path)): x.get_raw_value() for path, x in nnx.to_flat_state(self.program.params)
        }
        self._complemented: set[str] = set()  # modules that are handed masks of the opposite meaning
        self._as_they_are: set[str] = set()  # of them those that read the reference's
        self._exchanged: set[str] = set()  # modules that are handed the reference's values in another order
        self._in_place: set[str] = set()  # of them those that are right with each in its place
        self.numbers = HandedNumbers()
        self.unlike: list[CallId] = []
        self.cut_short: dict[str, int] = {}
        self.handed_out: Observation | None = None

    def borders(self, at: CallId) -> Borders:
        """Of a call that has a counterpart; `forced_forward` comes first."""
        return self._borders[at]

    def watch(self, note: Any) -> None:
        """Runs the port freely, each call through `note(call, module, run, args, kwargs)`."""
        self._forward(note)

    def received(self, paths: Sequence[str]) -> dict[str, list[list[np.ndarray]]]:
        """The arrays that each call of these modules receives, without any forcing; none where they cannot be seen."""
        found: dict[str, list[list[np.ndarray]]] = {path: [] for path in paths}

        def note(call: CallId, module: nnx.Module, run: Any, args: Any, kwargs: Any) -> Any:
            if call.path in found:
                lanes = all_lanes(taken_apart((args, kwargs))[0])
                found[call.path].append([] if _any_traced(lanes) else [np.asarray(x) for x in lanes])
            return run(module, *args, **kwargs)

        self._forward(note)
        return found

    def kinds(self) -> dict[CallId, str]:
        """The class of each called module, in the order of the calls, without any forcing."""
        found: dict[CallId, str] = {}
        open_calls: list[CallId] = []

        def note(call: CallId, module: nnx.Module, run: Any, args: Any, kwargs: Any) -> Any:
            found[call] = type(module).__name__
            self.made_in[call] = open_calls[-1] if open_calls else None
            open_calls.append(call)
            given = run(module, *args, **kwargs)
            open_calls.pop()
            return given

        self._forward(note)
        return found

    def inherited(self, matches: Matches, calls: Calls) -> Iterator[Seen]:
        """What each call gives when each has its own inputs, as the port computes them."""
        with CutShort() as cut:
            seen, _ = self._walk(matches, calls, forced=False)
        self.cut_short = cut.places
        return iter(seen)

    def forced_forward(self, matches: Matches, calls: Calls) -> Forward:
        """What each call receives and gives when all before it are right, and the buffers after the run by name.

        A call may give another shape than the reference's, and what is around it may make up for that, as where a
        convolution is padded before it, or cut after it. That takes the reference's output for no more than it takes
        another one: it fails, or gives another shape than it does of its own. Then such calls are `unlike`, too.

        A mask that is True where the reference's is False is no error of who makes it, as long as who reads it does
        so likewise; nor is it read wrongly where what reads it is right with the reference's. So it is with arguments
        in another order.
        """
        found = self._forced_forward(matches, calls)
        if wrong := self._complemented & giving_others(found[0]):
            # and what is around those hands a mask on to them as it is
            wrong |= {path for path in self._complemented if any(is_inside(each, path) for each in wrong)}
            self._as_they_are = wrong
            found = self._forced_forward(matches, calls)
            if neither := wrong & giving_others(found[0]):
                self._as_they_are = wrong - neither
                found = self._forced_forward(matches, calls)
        if wrong := self._exchanged & giving_others(found[0]):
            self._in_place = wrong
            found = self._forced_forward(matches, calls)
            if neither := wrong & giving_others(found[0]):
                self._in_place = wrong - neither
                found = self._forced_forward(matches, calls)
        found = self.numbers.settled(found, lambda: self._forced_forward(matches, calls))
        return self._within_its_own_borders(matches, calls, found)

    def _within_its_own_borders(self, matches: Matches, calls: Calls, found: Forward) -> Forward:
        """The same, with modules that begin or end elsewhere in the port as parts of what is around them.

        In float64 alone, where what is off is wrong: the digits that a module loses do not vanish around it.
        """
        if self.side.dtype != "float64":
            return found
        taken: set[str] = set()

        def with_parts(paths: Collection[str]) -> Forward | None:
            return self._without(matches, calls, {*taken, *paths})

        settled, is_last = found, True
        for elsewhere in (beginning_elsewhere, ending_elsewhere):
            tried = elsewhere(settled[0], with_parts)
            again = with_parts(tried) if tried else None
            if tried and again is not None:
                settled, is_last = again, True
                taken |= tried
            else:
                is_last = is_last and tried is None
        if not is_last:  # what is kept of a run is of the last one
            settled = with_parts(()) or self._forced_forward(matches, calls)
        self.unlike += [at for at in matches if at.path in taken and at not in self.unlike]
        return settled

    def _without(self, matches: Matches, calls: Calls, paths: Collection[str]) -> Forward | None:
        """The run in which calls of these modules are parts of what is around them; None where it fails."""
        with contextlib.suppress(Exception):
            return self._forced_forward({at: there for at, there in matches.items() if at.path not in paths}, calls)
        return None

    def _forced_forward(self, matches: Matches, calls: Calls) -> Forward:
        made_up_for: list[CallId] = []
        while True:
            self._misfits.clear()
            self._borders.clear()
            self._righted.clear()
            self.unlike[:] = made_up_for
            try:
                found = self._walk(matches, calls, forced=True)
                if not (parts := list(self._righted)):
                    return found
            except Exception as error:
                parts = error.parts if isinstance(error, _MadeUpForError) else list(self._misfits)
                if not parts:
                    raise
            made_up_for += parts
            matches = {at: there for at, there in matches.items() if at not in parts}

    @property
    def forced(self) -> list[CallId]:
        """The calls that handed on the reference's values."""
        return list(self._borders)

    def _walk(self, matches: Matches, calls: Calls, *, forced: bool) -> Forward:
        seen: list[Seen] = []
        running: list[tuple[CallId, Borders]] = []

        def note(at: CallId, module: nnx.Module, run: Any, args: Any, kwargs: Any) -> Any:
            lanes, put_in = taken_apart((args, kwargs))
            received = all_lanes(lanes)
            if at not in matches or at in self._hidden or _any_traced(received):
                return run(module, *args, **kwargs)
            if self._has_other_parameters(at, module):
                self._hidden.add(at)
                return run(module, *args, **kwargs)
            call = calls[matches[at]]
            around, within = running[-1] if running else (None, Borders())
            borders = Borders(around=around)
            receiving = self._compared(at, around, "received", received, call, borders.inputs, outer=within.inputs)
            given_to_it = list(receiving)
            if forced:
                _merge_repeated(call, borders.inputs)
            if forced and around is not None and any(one.port.shape != one.reference.shape for one in given_to_it):
                self.unlike.append(at)
                return run(module, *args, **kwargs)
            seen.extend(given_to_it)
            if forced:
                args, kwargs = put_in(handed(lanes, call.inputs, borders.inputs))
                seen.extend(self.numbers.apart(call, module, at, around, args, kwargs))
                args, kwargs = self.numbers.given(call, module, at, args, kwargs)
            running.append((at, borders))
            try:
                outputs = run(module, *args, **kwargs)
            finally:
                running.pop()
            lanes, put_out = taken_apart(outputs)
            given = all_lanes(lanes)
            if _any_traced(given):
                self._hidden.add(at)
                seen[:] = [one for one in seen if one.at != at]
                return outputs
            names = self._names(outputs) if at == CallId("", 0) else ()
            fitting = self._compared(at, around, "output", given, call, borders.outputs, names, borders.inputs)
            made_of_it = list(fitting)
            if forced:
                call.give_once([each.name for each in borders.outputs])
            if (
                forced
                and around is not None
                and _of_another_structure(call, given_to_it, made_of_it, more=len(given) - len(borders.outputs))
            ):
                self.unlike.append(at)
                if not all(difference(one.port, one.reference).equal for one in given_to_it):
                    self._righted.append(at)
                seen[:] = [one for one in seen if one.what != "received" or at not in (one.at, one.around)]
                for inner in (each for each in self._borders.values() if each.around == at):
                    inner.around = around
                return outputs
            seen.extend(made_of_it)
            fits = all(one.port.shape == one.reference.shape for one in made_of_it)
            if not forced:
                self._fits.update([at] if fits else [])
                return outputs
            if not fits:
                parts = [call for call in self._misfits if call.path != at.path and is_inside(call.path, at.path)]
                if parts and at in self._fits:
                    raise _MadeUpForError(parts)
                self._misfits.append(at)
            self._borders[at] = borders
            return put_out(handed(lanes, call.outputs, borders.outputs))

        outputs, state = self._forward(note)
        if forced:
            self.handed_out = self.side.observe(outputs, None)
        return seen, self.side.named_state(self.question.mode, state)

    def _has_other_parameters(self, at: CallId, module: nnx.Module) -> bool:
        """Than the model has, as in a model that trains itself: what such a call gives is not of its own making.

        A slice of stacked parameters is the model's.
        """
        for path, variable in nnx.to_flat_state(nnx.state(module, nnx.Param)):
            own = self._parameters.get(".".join([*filter(None, [at.path]), *map(str, path)]))
            value = variable.get_raw_value()
            if own is None or value is own or isinstance(value, jax.core.Tracer) or value.shape != own.shape:
                continue
            if not jnp.array_equal(value, own, equal_nan=True):
                return True
        return False

    def _compared(
        self,
        at: CallId,
        around: CallId | None,
        what: What,
        ours: list[Any],
        call: Call,
        into: list[Pair],
        names_of_ours: Sequence[str] = (),
        received: Sequence[Pair] | None = None,
        outer: Sequence[Pair] = (),
    ) -> Iterator[Seen]:
        arrays, whole = [np.asarray(x) for x in ours], call.inputs if what == "received" else call.outputs
        theirs, packings = unpacked(whole)
        in_place = what == "received" and at.path in self._in_place
        lines = call.lines[what]
        into += pair(arrays, theirs, self.layouts, names_of_ours, packings, received, outer, lines, in_place)
        if what == "received" and len(arrays) == len(theirs) and are_exchanged(into, theirs):
            self._exchanged.add(at.path)
        if what == "received" and at.path not in self._as_they_are:
            into[:] = [self._read_as_handed(at, each, arrays[each.index], theirs[each.name]) for each in into]
        for each in into:
            given, wanted = each.layout.to_reference(arrays[each.index]), theirs[each.name]
            if is_lengths(each.name, whole) and difference(given, wanted).equal:
                continue  # the reference has them as indices, which nothing can be held against
            another_form = what == "received" and not difference(given, wanted).equal and says_the_same(given, wanted)
            yield Seen(at, around, what, each.name, wanted if another_form else given, wanted)
        # where as many are left on both sides, shapes differ: each stands for the one of its name, or in its place
        paired = {each.name for each in into}
        names = [n for n in theirs if n not in paired and n not in packings and not is_lengths(n, whole)]
        places = [i for i in range(len(arrays)) if all(i != each.index for each in into)]
        if len(names_of_ours) == len(arrays) and set(names) <= {names_of_ours[i] for i in places}:
            places = [list(names_of_ours).index(name) for name in names]
        # one of another shape and of another kind stands for no other: as padded rows and counts for lists
        pairs = [(arrays[place], theirs[name]) for name, place in zip(names, places, strict=False)]
        are_others = any(_kind(x) != _kind(wanted) and not says_the_same(x, wanted) for x, wanted in pairs)
        if len(names) != len(places) or (what == "received" and are_others):
            if what == "received":
                yield from _of_another_form(at, around, {n: theirs[n] for n in names}, [arrays[i] for i in places])
            return
        for name, place in zip(names, places, strict=True):
            wanted, usual = theirs[name], self.layouts.usual(theirs[name])
            array = arrays[place]
            if what == "received" and (says_the_same(array, wanted) or is_added_to(array, wanted)):
                continue
            into.append(Pair(name, place, usual))
            given = array.transpose(np.argsort(usual.axes)) if array.ndim == wanted.ndim else array
            yield Seen(at, around, what, name, given, wanted)

    def _read_as_handed(self, at: CallId, one: Pair, port: np.ndarray, reference: np.ndarray) -> Pair:
        """Of a mask of the opposite meaning, the pair that says so; others as they are."""
        complement = complement_of(one, port, reference)
        if complement is None:
            return one
        self._complemented.add(at.path)
        return replace(one, layout=complement)

    def _names(self, outputs: Any) -> list[str]:
        """Of the model's outputs, in the order of their leaves, where the verdict compares them by these names."""
        if self.side.case.to_reference is not identity:
            return []
        leaves, structure = jtu.tree_flatten(outputs)
        named = named_leaves(jtu.tree_unflatten(structure, list(range(len(leaves)))))
        places = {place: name for name, place in named.items()}
        return [places[i] for i, leaf in enumerate(leaves) if is_array(leaf) and i in places]

    def forced_backward(
        self,
        matches: Matches,
        calls: Calls,
        free: Collection[CallId] = (),
        giving: Collection[CallId] = (),
        *,
        stopping: bool = False,
    ) -> Backward:
        """The same of the backward pass. `forced_forward` comes first: it finds the layouts.

        Calls that are `free` receive what the port's own backward pass makes of the right gradients around them, and
        those that are `giving` hand on the gradients that they give. Where it is `stopping`, no gradient goes on by
        inputs by which the reference takes none.

        Where a module cuts the gradient, nothing would reach what comes before; so each tensor at a border also enters
        a sum whose own gradient is zero, and what gets none is seen to get zeros.
        """
        try:
            return BackwardPass(self, matches, calls, free, giving, stopping=stopping).run(reaching=True)
        except jax.errors.UnexpectedTracerError:  # a module is called within a transform, whose values do not leave it
            return BackwardPass(self, matches, calls, free, giving, stopping=stopping).run(reaching=False)

    def around(self, at: CallId) -> CallId | None:
        """The judged call that a call is made in, where it is judged itself."""
        return self._borders[at].around if at in self._borders else None

    def own_gradients(self, matches: Matches, calls: Calls, path: str) -> dict[str, np.ndarray]:
        """Of the gradients of parameters, the part that the calls of this module make of the right ones."""
        return BackwardPass(self, matches, calls, alone=path).run(reaching=False).by_parameters

    def _forward(self, note: Any) -> Any:
        """Runs the model forward, each call through `note`; gives its outputs, and the state after it."""
        with self.side.context(), jax.disable_jit(), kept_in_memory():
            program = self.program
            given = program.params, program.rest, *self.batch.call
            return program.forward(*given, through=numbered(note), with_heads=False)[1]


def _any_traced(arrays: Sequence[Any]) -> bool:
    return any(isinstance(x, jax.core.Tracer) for x in arrays)


def _kind(x: np.ndarray) -> str:
    """Numbers with digits, whole ones, or truth values."""
    return {"c": "f", "u": "i"}.get(x.dtype.kind, x.dtype.kind)


def _of_another_form(
    at: CallId, around: CallId | None, theirs: Mapping[str, np.ndarray], ours: Sequence[np.ndarray]
) -> Iterator[Seen]:
    """The floating tensor that the reference hands, and the port's in its place does not hold: neither is a layout of
    the other, and whoever receives it is not to blame."""
    for name, wanted in theirs.items():
        if wanted.dtype.kind != "f" or not wanted.ndim:
            continue
        dense = [x for x in ours if x.dtype.kind == "f" and x.size > wanted.size]
        if dense and not any(are_among(x, wanted) for x in dense):
            yield Seen(at, around, "received", name, dense[0], wanted)
            return


def _merge_repeated(call: Call, pairs: Sequence[Pair]) -> None:
    """Of a tensor that the reference hands in several places, such as queries, keys and values, and the port in fewer,
    no place's own gradient can be compared, but that of all."""
    layouts = {each.name: each.layout for each in pairs}
    for first in call.inputs:
        again = [name for name in call.inputs if name.rstrip("'") == first.rstrip("'") and name not in call.merged]
        same = [name for name in again if np.array_equal(call.inputs[name], call.inputs[first])]
        paired = [name for name in same if name in layouts]
        alike = all(layouts[name] == layouts.get(first) for name in paired)
        if same[:1] == [first] == paired[:1] and len(paired) < len(same) and alike:
            call.merge(same)


def _of_another_structure(call: Call, received: list[Seen], given: list[Seen], more: int) -> bool:
    """Whether what a call gives cannot be compared, and what it received does not tell that this is its fault; or is
    something else than the reference's, and of both sides there is `more` besides; or is what the reference's adds to
    an input that the port adds it to elsewhere."""
    if not given:
        return bool(call.outputs)
    inputs, known = unpacked(call.inputs)[0], {one.name for one in received}
    missing = [x for name, x in inputs.items() if name not in known]
    if not missing:
        return False
    wrong = [one for one in given if not difference(one.port, one.reference).equal]
    if any(one.port.shape != one.reference.shape for one in wrong):
        return True
    if more and len(wrong) == len(given) < len(unpacked(call.outputs)[0]):
        return True
    return bool(wrong) and all(any(_is_all_but(x, one) for x in missing) for one in wrong)


def _is_all_but(missing: np.ndarray, one: Seen) -> bool:
    """Whether the reference's is the port's, and this added to it."""
    if missing.dtype.kind != "f" or one.port.dtype.kind != "f" or missing.shape != one.reference.shape:
        return False
    return difference(one.port + missing, one.reference).equal
