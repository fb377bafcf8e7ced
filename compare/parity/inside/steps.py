"""Modules that one side calls once for all steps, and the other once for each: hoisted out of a loop, or moved inside.

What a layer does to each step by itself, eager code often does within its loop, and a graph to all steps at once; or
the loop of a graph does it, which has one step at a time. The reference's record is regrouped until its calls are as
many as the port's: one call cut into steps, or the calls of all steps joined. Likewise of lines of many lengths, each
of which eager code runs by itself, and a graph as a batch as wide as the longest.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ..yardstick import EQUAL_TOLERANCE, difference
from .calls import Call, CallId, Calls
from .fixed_size import EndToEnd, fixed_size_layout, layout_of_lines
from .layouts import AnyLayout, Layouts
from .matching import Matching, Node

T = TypeVar("T")
Received = Sequence[Sequence[np.ndarray]]  # by each call of a module of the port
Evidence = dict[tuple[str, str], np.ndarray]
Replayed = Callable[[Calls, CallId], Evidence]


@dataclass(frozen=True)
class Steps:
    """How a tensor holds steps: along an axis, or along the first one together with what is there besides.

    Attributes:
      count: of the steps.
      axis: theirs; where it is merged, 0 or 1 of the two that the first one is.
    """

    count: int
    axis: int
    merged: bool = False

    def cut(self, whole: Any) -> list[Any]:
        """Each step of an array or a tensor.

        Raises:
          ValueError: where it does not hold so many.
        """
        if self.merged:
            sizes = (self.count, -1) if self.axis == 0 else (-1, self.count)
            whole = whole.reshape((*sizes, *whole.shape[1:]))
        elif whole.ndim <= self.axis or whole.shape[self.axis] != self.count:
            raise ValueError(f"{tuple(whole.shape)} holds no {self.count} steps along axis {self.axis}")
        return [whole[(slice(None),) * self.axis + (i,)] for i in range(self.count)]

    def join(self, steps: Sequence[Any]) -> Any:
        """All steps as one."""
        whole = (torch.stack if isinstance(steps[0], torch.Tensor) else np.stack)(list(steps), self.axis)
        return whole.reshape((-1, *whole.shape[2:])) if self.merged else whole


@dataclass(frozen=True)
class LinesOfLengths:
    """Lines laid end to end along the axis in which they differ; of what is as long in all, one behind the other."""

    def cut(self, whole: Any, like: Sequence[Any]) -> list[Any]:
        """Parts as long as these, of an array or a tensor that they make."""
        axis = _differing_axis(like)
        if axis is None:
            return [whole[i] for i in range(len(like))]
        ends = np.cumsum([each.shape[axis] for each in like])
        starts = [0, *ends[:-1]]
        return [whole[(slice(None),) * axis + (slice(a, b),)] for a, b in zip(starts, ends, strict=True)]

    def join(self, lines: Sequence[Any]) -> Any:
        """All as one.

        Raises:
          ValueError: where they differ in several axes.
        """
        axis = _differing_axis(lines)
        is_tensor = isinstance(lines[0], torch.Tensor)
        if axis is None:
            return (torch.stack if is_tensor else np.stack)(list(lines))
        return torch.cat(list(lines), axis) if is_tensor else np.concatenate(lines, axis)

    def lengths(self, lines: Sequence[Any]) -> EndToEnd | None:
        """Of each line; None where all are alike."""
        axis = _differing_axis(lines)
        return None if axis is None else EndToEnd(axis, tuple(line.shape[axis] for line in lines))


def _differing_axis(lines: Sequence[Any]) -> int | None:
    ranks = {line.ndim for line in lines}
    axes = [axis for axis in range(min(ranks)) if len({line.shape[axis] for line in lines}) > 1]
    if len(ranks) > 1 or len(axes) > 1:
        raise ValueError(f"lines of shapes {[tuple(line.shape) for line in lines]} differ in more than one axis")
    return axes[0] if axes else None


@dataclass(frozen=True)
class Regrouped:
    """What was recorded of a module, and how its calls were regrouped."""

    originals: tuple[Call, ...]
    steps: Steps | LinesOfLengths

    @property
    def is_joined(self) -> bool:
        return len(self.originals) > 1

    @property
    def has_lines(self) -> bool:
        return isinstance(self.steps, LinesOfLengths)

    def line_by_line(self, call: Callable[..., Any], arguments: Any) -> Any:
        """What a module gives, called once for each line, of the arguments of all: as it was recorded."""
        assert isinstance(self.steps, LinesOfLengths)
        flat, structure = pytree.tree_flatten(arguments)
        each = [pytree.tree_leaves(call.arguments) for call in self.originals]
        parts = [
            self.steps.cut(x, [leaves[i] for leaves in each]) if _is_tensor(x) else [x] * len(each)
            for i, x in enumerate(flat)
        ]
        given = []
        for line in zip(*parts, strict=True):
            args, kwargs = pytree.tree_unflatten(line, structure)
            given.append(call(*args, **kwargs))
        return _tree_of_all(self.steps, given)

    def again(self, evidence: Evidence, what: str, names: Sequence[str], into: Sequence[CallId]) -> None:
        """Regroups what was seen of the calls as they were recorded."""
        for name in names:
            seen = [evidence.pop((what, f"{name} of {call.id}"), None) for call in self.originals]
            arrays = [array for array in seen if array is not None]
            with contextlib.suppress(ValueError):  # a change that is tried may give other shapes
                if len(arrays) == len(seen):
                    made = [self.steps.join(arrays)] if self.is_joined else self._cut(arrays[0])
                    evidence.update({(what, f"{name} of {call}"): x for call, x in zip(into, made, strict=True)})

    def _cut(self, array: np.ndarray) -> list[np.ndarray]:
        assert isinstance(self.steps, Steps)
        return self.steps.cut(array)


def pairs_of_other_counts(ours: Sequence[Node], theirs: Sequence[Node], loose: Matching) -> dict[str, tuple[str, bool]]:
    """By path in the port, what is matched when the number of calls does not count, and is called once on one side and
    more often on the other: its path in the reference, and whether that is certain, whatever the values are."""
    port, reference = ({node.path: node.calls for node in nodes} for nodes in (ours, theirs))
    found = {}
    for match in loose.matches:
        counts = {port[match.port], reference[match.reference]}
        if len(counts) == 2 and 1 in counts:
            found[match.port] = match.reference, match.how in ("the table", "weights")
    return found


def regrouped(calls: Calls, path: str, received: Received, replayed: Replayed, *, certain: bool) -> Calls:
    """A record with as many calls of a module as the port has of its own; as it was where that cannot be.

    Only what makes of each step by itself what was recorded of all, or of all what was recorded of each, is regrouped.

    Args:
      calls: the record.
      path: of the module in the reference.
      received: by each call of the port's.
      replayed: what the module gives on what was recorded of a call.
      certain: whether the port's is its counterpart; if not, it received the same.
    """
    originals = [call for call in calls.values() if call.id.path == path]
    if not all(call.inputs for call in originals):
        return calls
    joins = len(received) == 1
    tried: list[tuple[float, int, Calls]] = []
    for steps in _ways(originals, len(originals) if joins else len(received)):
        with contextlib.suppress(ValueError, RuntimeError):  # as numpy and PyTorch say that there are no such steps
            made = [_joined(originals, steps)] if joins else _cut(originals[0], steps, calls)
            error = _apart(received, made)
            if error <= EQUAL_TOLERANCE or (certain and error < np.inf):
                found = _with(calls, Regrouped(tuple(originals), steps), made)
                if all(_is_given(replayed, found, call) for call in (made[0], made[-1])):
                    tried.append((error, len(tried), found))
    return min(tried, key=lambda each: each[:2])[2] if tried else calls


def _ways(originals: Sequence[Call], count: int) -> Iterator[Steps | LinesOfLengths]:
    """Batch first, which is most usual, then time first, then others; lines, where their lengths differ."""
    if any(len({call.inputs[name].shape for call in originals}) > 1 for name in _names_of_all(originals)):
        yield LinesOfLengths()
        return
    rank = max((x.ndim for x in originals[0].inputs.values()), default=0) + (len(originals) > 1)
    yield from (Steps(count, axis) for axis in (1, 0, *range(2, rank)))
    yield from (Steps(count, axis, merged=True) for axis in (1, 0))


def _names_of_all(calls: Sequence[Call]) -> list[str]:
    return [name for name in calls[0].inputs if all(name in call.inputs for call in calls)]


def _cut(call: Call, steps: Steps | LinesOfLengths, calls: Calls) -> list[Call]:
    assert isinstance(steps, Steps)

    def each(values: Mapping[str, Any]) -> list[dict[str, Any]]:
        parts = {name: [None] * steps.count if x is None else steps.cut(x) for name, x in values.items()}
        return [{name: part[i] for name, part in parts.items()} for i in range(steps.count)]

    def tree(whole: Any) -> list[Any]:
        leaves, structure = pytree.tree_flatten(whole)
        parts = [steps.cut(x) if _is_tensor(x) else [x] * steps.count for x in leaves]
        return [pytree.tree_unflatten([part[i] for part in parts], structure) for i in range(steps.count)]

    around = call.parent
    follows = around is not None and around.path in calls.regrouped
    tensors = (each(x) for x in (call.inputs, call.outputs, call.cotangents, call.input_gradients))
    fields = zip(*tensors, tree(call.arguments), tree(call.result), strict=True)
    return [
        Call(
            CallId(call.id.path, i),
            call.kind,
            CallId(around.path, i) if around is not None and follows else around,
            inputs=inputs,
            outputs=outputs,
            cotangents=cotangents,
            input_gradients=input_gradients,
            arguments=arguments,
            result=result,
            in_no_grad=call.in_no_grad,
        )
        for i, (inputs, outputs, cotangents, input_gradients, arguments, result) in enumerate(fields)
    ]


def _joined(calls: Sequence[Call], steps: Steps | LinesOfLengths) -> Call:
    def all_of(values: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        names = _same([list(each) for each in values])
        return {name: _all_or_none(steps, [each[name] for each in values]) for name in names}

    def lengths(values: Sequence[Mapping[str, Any]]) -> dict[str, EndToEnd]:
        if not isinstance(steps, LinesOfLengths):
            return {}
        found = {name: steps.lengths([each[name] for each in values]) for name in values[0]}
        return {name: each for name, each in found.items() if each is not None}

    first = calls[0]
    return Call(
        CallId(first.id.path),
        first.kind,
        first.parent,
        inputs=all_of([call.inputs for call in calls]),
        outputs=all_of([call.outputs for call in calls]),
        cotangents=all_of([call.cotangents for call in calls]),
        input_gradients=all_of([call.input_gradients for call in calls]),
        arguments=_tree_of_all(steps, [call.arguments for call in calls]),
        result=_tree_of_all(steps, [call.result for call in calls]),
        in_no_grad=_same([call.in_no_grad for call in calls]),
        lines={"received": lengths([call.inputs for call in calls]), "output": lengths([c.outputs for c in calls])},
    )


def _tree_of_all(steps: Steps | LinesOfLengths, wholes: Sequence[Any]) -> Any:
    flat = [pytree.tree_flatten(whole) for whole in wholes]
    structure = _same([each for _, each in flat])
    leaves = zip(*(each for each, _ in flat), strict=True)
    joined = [steps.join(each) if all(map(_is_tensor, each)) else _same(each) for each in leaves]
    return pytree.tree_unflatten(joined, structure)


def _all_or_none(steps: Steps | LinesOfLengths, arrays: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """Where a gradient reaches some steps alone, the others have zeros."""
    there = next((x for x in arrays if x is not None), None)
    return None if there is None else steps.join([np.zeros_like(there) if x is None else x for x in arrays])


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _same(values: Sequence[T]) -> T:
    if any(each != values[0] for each in values):
        raise ValueError("the calls differ in what they take or give")
    return values[0]


def _apart(received: Received, made: Sequence[Call]) -> float:
    """The largest error of what the port's calls received, of the first tensor that the reference's did."""
    joined = len(made) == 1
    first = [(wanted, call.lines["received"].get(name)) for call in made for name, wanted in _first(call.inputs)]
    pairs = zip(received, first, strict=True)
    return max(min((_error(x, *wanted, is_all=joined) for x in arrays), default=np.inf) for arrays, wanted in pairs)


def _first(named: Mapping[str, np.ndarray]) -> list[tuple[str, np.ndarray]]:
    return list(named.items())[:1]


def _error(port: np.ndarray, wanted: np.ndarray, lines: EndToEnd | None, *, is_all: bool) -> float:
    """In the likeliest layout; of all steps also as the part that counts of what has a fixed size. Infinite where no
    shape fits."""
    layouts = Layouts()
    layout: AnyLayout | None = layouts.fit(port, wanted)
    found = [layout]
    if layout is None and lines is not None:
        found.append(layout_of_lines(port, wanted, lines, layouts.fit))
    if layout is None and is_all:
        found.append(fixed_size_layout(port, wanted, layouts.fit, (), EQUAL_TOLERANCE, given=False))
    errors = (difference(each.to_reference(port), wanted).error for each in found if each is not None)
    return min(errors, default=np.inf)


def _is_given(replayed: Replayed, calls: Calls, call: Call) -> bool:
    """Whether the module gives on it what was recorded; not where it takes no such input."""
    with contextlib.suppress(Exception):
        found = replayed(calls, call.id)
        pairs = [(found["output", name], wanted) for name, wanted in call.outputs.items()]
        return bool(pairs) and all(difference(ours, wanted).equal for ours, wanted in pairs)
    return False


def _with(calls: Calls, how: Regrouped, made: Sequence[Call]) -> Calls:
    first, path = how.originals[0].id, how.originals[0].id.path
    found = Calls(regrouped={**calls.regrouped, path: how}, writers=calls.writers)
    for at, call in calls.items():
        if at == first:
            found.update({each.id: each for each in made})
        elif at.path != path:
            inside = how.is_joined and call.parent is not None and call.parent.path == path
            found[at] = dataclasses.replace(call, parent=made[0].id) if inside else call
    return found
