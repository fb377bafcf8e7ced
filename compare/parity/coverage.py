"""What the inputs of a case do not cover: differences that no verdict on them could show."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax.tree_util as jtu
import numpy as np

from graphmode.weights import as_numpy

from ..draw import input_name
from ..trees import is_floating

if TYPE_CHECKING:
    import torch

    from .judge import Question, Truth

    Later = Callable[[Question], Sequence[Mapping[str, np.ndarray]]]

NAMED = 3  # of the tensors that one warning is about
STRICT = ("<", ">=")  # what is equal is on the upper side
NARROW = 0.01  # of the largest of what is limited at zero: likewise
NEARLY = 0.9  # of the way to the nearest value above a limit, where another is tried
FAR = 0.25  # of a number that is compared with: so far apart may the nearest values on either side of it lie


@dataclass
class Sides:
    """On which sides of their kinks the reference's activations were entered, modules and functions.

    Attributes:
      kinks: by the module's path, or a function and the line that calls it, where its branches meet.
      seen: by the same and kink, whether an input was below it, and whether one was above.
      entered: by the mode and the inputs of the reference, and then by the same and kink, what entered there; all in
        short.
      compared: by the sign, the line and the number that floats are compared with, the nearest to it of those on its
        lower side, and of those on its upper one; what is equal to it is on the side that the sign puts it on.
      limited: by the function, the line and its limit, the same of what is limited; what is equal to it is on its lower
        side.
      padding: by the path of an embedding that has a padding_idx, that, and whether an input held it.
      largest: of what is limited, without its sign, by the same as `limited`.
    """

    kinks: dict[str, tuple[str, tuple[float, ...]]] = field(default_factory=dict)
    seen: dict[tuple[str, float], tuple[bool, bool]] = field(default_factory=dict)
    entered: dict[int, dict[tuple[str, float], set[int]]] = field(default_factory=dict)
    compared: dict[tuple[str, str, float], tuple[float, float]] = field(default_factory=dict)
    limited: dict[tuple[str, str, float], tuple[float, float]] = field(default_factory=dict)
    padding: dict[str, tuple[int, bool]] = field(default_factory=dict)
    largest: dict[tuple[str, str, float], float] = field(default_factory=dict)
    _now: dict[tuple[str, float], set[int]] | None = None

    @contextlib.contextmanager
    def watched(self, module: torch.nn.Module) -> Iterator[None]:
        """Notes what enters the activations inside, and the functions that have limits."""
        from .function_limits import WatchedLimits

        handles = [
            module.register_forward_pre_hook(self._start, with_kwargs=True),
            module.register_forward_hook(self._end, always_call=True),
        ]
        for path, child in module.named_modules():
            kinks = _kinks(child)
            if kinks:
                self.kinks[path] = type(child).__name__, kinks
                handles.append(child.register_forward_pre_hook(self._hook(path, kinks)))
            if isinstance(getattr(child, "padding_idx", None), int):
                handles.append(child.register_forward_pre_hook(self._padding_hook(path, child.padding_idx)))
        try:
            with WatchedLimits(self._note_limit, self._note_compared, self._note_limited):
                yield
        finally:
            for handle in handles:
                handle.remove()

    def _start(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A run begins; on inputs that were there before in this mode, steps may have moved its weights, and nothing is
        kept."""
        given = hash((module.training, *map(_short, jtu.tree_leaves((args, kwargs)))))
        self._now = None if given in self.entered else self.entered.setdefault(given, {})

    def _end(self, *_: Any) -> None:
        self._now = None

    def _note_limit(self, function: str, place: str, x: torch.Tensor, limit: float) -> None:
        at = f"{function} {place}"  # several may stand in one line
        self.kinks.setdefault(at, (function, ()))
        self._note(at, x, (limit,))

    def _note_compared(self, sign: str, place: str, x: torch.Tensor, number: float) -> None:
        values = x.detach()
        _narrow(self.compared, (sign, place, number), values, values < number if sign in STRICT else values <= number)

    def _note_limited(self, function: str, place: str, x: torch.Tensor, limit: float) -> None:
        values, at = x.detach(), (function, place, limit)
        _narrow(self.limited, at, values, values <= limit)
        self.largest[at] = max(self.largest.get(at, 0.0), float(values.abs().max()))

    def _note(self, path: str, x: torch.Tensor, kinks: tuple[float, ...]) -> None:
        low, high = (float(end) for end in x.detach().aminmax())
        for kink in kinks:
            below, above = self.seen.get((path, kink), (False, False))
            self.seen[path, kink] = below or low < kink, above or high > kink
            if self._now is not None:
                self._now.setdefault((path, kink), set()).add(_short(x))

    def _hook(self, path: str, kinks: tuple[float, ...]) -> Any:
        def note(_: torch.nn.Module, args: tuple[Any, ...]) -> None:
            if args and is_floating(args[0]) and args[0].numel():
                self._note(path, args[0], kinks)

        return note

    def _padding_hook(self, path: str, row: int) -> Any:
        def note(_: torch.nn.Module, args: tuple[Any, ...]) -> None:
            if args and hasattr(args[0], "detach"):
                was_there = self.padding.get(path, (row, False))[1]
                self.padding[path] = row, was_there or bool((args[0] == row).any())

        return note

    def padding_warnings(self) -> Iterator[str]:
        missed: dict[int, list[str]] = {}
        for path, (row, was_there) in self.padding.items():
            if not was_there:
                missed.setdefault(row, []).append(path or "the model itself")
        for row, paths in missed.items():
            yield (
                f"no input of {listed(paths)} holds {row}, its padding_idx: whether that row gets no gradient cannot "
                "be told; add an input that holds it"
            )

    def warnings(self) -> Iterable[str]:
        from .function_limits import CLAMPS

        missed: dict[tuple[str, float, str, bool], list[str]] = {}
        for (path, kink), (below, above) in self.seen.items():
            for side, was_there in (("below", below), ("above", above)):
                if not was_there:
                    about = self.kinks[path][0], kink, side, self._is_constant(path, kink)
                    missed.setdefault(about, []).append(path.removeprefix(f"{about[0]} ") or "the model itself")
        alike: dict[tuple[bool, bool], dict[str, list[str]]] = {}  # what the same is said of: sides by what has them
        for (kind, kink, side, constant), paths in missed.items():
            sides = alike.setdefault((kind in CLAMPS, constant), {})
            sides.setdefault(f"{kind} {listed(paths)}", []).append(f"{side} {kink:g}")
        for (limits, constant), of in alike.items():
            other = "another limit, or none" if limits else "another activation"
            advice = (
                "what enters is the same for every input, as a parameter or a count of calls is, and only other "
                "weights, sizes or a later state get there"
                if constant
                else "add an edge input that gets there (larger, smaller or negated inputs)"
            )
            places = "; of ".join(f"{name} is {' or '.join(sides)}" for name, sides in of.items())
            yield f"no input of {places}: what is done there cannot be told from {other}; {advice}"
        yield from self._numbers()

    def _numbers(self) -> Iterable[str]:
        """What another number in a comparison would not be told by."""
        for (sign, place, number), (low, high) in self.compared.items():
            sides = ("below", "at least") if sign in STRICT else ("at most", "above")
            for side, nearest in zip(sides, (low, high), strict=True):
                if not np.isfinite(nearest):
                    yield (
                        f"nothing that is compared by {sign} {number:g} at {place} is {side} that on any "
                        "of the case's inputs: what is done then is not seen; add an edge input that gets there"
                    )

    def number_warnings(self, is_told: Callable[[str, float, float], bool]) -> Iterable[str]:
        """What another number in a comparison would not be told by, though there are values on either side of it."""
        for (sign, place, number), (low, high) in self.compared.items():
            # counts that are held against one of them: nothing lies between
            are_neighbours = high - low == 1 and float(low).is_integer() and float(number).is_integer()
            if not number or not FAR * abs(number) < high - low < np.inf or are_neighbours:
                continue
            others = {end: number + NEARLY * (end - number) for end in (low, high)}
            least, most = (number if is_told(place, number, other) else end for end, other in others.items())
            if least < most:
                yield (
                    f"what is compared by {sign} {number:g} at {place} comes no nearer to that than {low:g} and "
                    f"{high:g}: a port with another number between {least:g} and {most:g} would pass; add edge inputs "
                    "that come near to it on either side"
                )

    def limit_warnings(self, is_told: Callable[[str, float, float], bool]) -> Iterable[str]:
        """What another limit would not be told by, though some of what is limited gets beyond it."""
        for (function, place, limit), (low, high) in self.limited.items():
            between = low + 1 if float(low).is_integer() and float(high).is_integer() else None  # counts, as of a mask
            is_near = high - low <= (FAR * abs(limit) if limit else NARROW * self.largest[function, place, limit])
            if not np.isfinite(high - low) or is_near or between in (limit, high):
                continue
            if not is_told(place, limit, limit + NEARLY * (high - limit)):
                yield (
                    f"what {function} at {place} limits at {limit:g} comes no nearer to that than {low:g} and "
                    f"{high:g}, and nothing shows what the limit makes of it: a port with another number between the "
                    "two would pass; add edge inputs that come near to it on either side"
                )

    def _is_constant(self, path: str, kink: float) -> bool:
        """Whether the same entered there on several inputs of the reference."""
        entered = [run[path, kink] for run in self.entered.values() if (path, kink) in run]
        return len(entered) > 1 and all(run == entered[0] for run in entered)


def _narrow(
    found: dict[tuple[str, str, float], tuple[float, float]],
    at: tuple[str, str, float],
    values: torch.Tensor,
    lower: torch.Tensor,
) -> None:
    """Keeps the nearest of those on the lower side, and of the others."""
    low, high = found.get(at, (-np.inf, np.inf))
    below, above = values[lower], values[~lower & ~values.isnan()]
    low = max(low, float(below.max())) if below.numel() else low
    high = min(high, float(above.min())) if above.numel() else high
    found[at] = low, high


def coverage_warnings(
    truths: Sequence[Truth],
    state_dict: Mapping[str, np.ndarray],
    parameters: Sequence[str],
    sides: Sides,
    without_effect: Callable[[Truth, Sequence[str]], Sequence[str]] = lambda _, names: names,
    is_told: Callable[[str, float, float], bool] = lambda *_: True,
    later: Later = lambda _: (),
    mixed: Sequence[Truth] = (),
) -> list[str]:
    """One line for each thing that cannot be told, with what input would tell it.

    Args:
      truths: the judge's answers to every question.
      state_dict: its weights.
      parameters: which of them learn.
      sides: what its activations were seen to do.
      without_effect: of parameters without a gradient, those without which the answer would be the same.
      is_told: whether the answers tell another limit, or number to compare with, in a line from its own.
      later: the outputs of further calls, one after the other, the last of them on the question's own inputs.
      mixed: answers to inputs of the check's own that mix masks which are of one value in the case's.
    """
    truths = [truth for truth in truths if not truth.question.is_timed]
    first_mode = truths[0].question.mode if truths else ""
    asked = [truth for truth in truths if truth.question.mode == first_mode]
    randoms = [truth for truth in asked if truth.question.is_random]
    same = len(randoms) > 1 and all(_equal(t.question.inputs, randoms[0].question.inputs) for t in randoms[1:])
    found: list[str] = []
    if same:
        found.append(
            f"all {len(randoms)} random inputs are the same, since inputs ignores its generator: {len(randoms)} draws "
            "tell what one does; draw them from the generator that it is given"
        )
    elif len(randoms) > 1:
        found += _constant_outputs(truths, later)
    found += _constant_inputs([*asked, *mixed])
    found += _batch_of_one(asked)
    found += _zero_gradients([t for t in truths if t.question.mode == "forward_backward"], without_effect)
    if any(truth.question.mode == "forward_backward" for truth in truths):
        found += sides.padding_warnings()
    found += _symmetric(state_dict, parameters)
    found += sides.warnings()
    found += sides.number_warnings(is_told)
    found += sides.limit_warnings(is_told)
    return found


def nan_notes(truths: Sequence[Truth]) -> Iterable[str]:
    """What of the reference's outputs is NaN on random inputs: there the port is only asked to give NaN too."""
    counts: dict[tuple[str, str], list[int]] = {}
    for truth in truths:
        if not truth.question.is_random or truth.question.is_timed:
            continue
        for name, array in truth.reference.outputs.items():
            found = counts.setdefault((truth.question.mode, name), [0, 0])
            found[1] += array.size
            if array.dtype.kind in "fc":
                found[0] += int(np.isnan(array).sum())
    told = set()
    for (mode, name), (missing, total) in counts.items():
        if missing and name not in told:
            told.add(name)
            yield (
                f"{mode}: the reference's output {name} is NaN in {missing} of {total} elements on the random inputs, "
                "and no value is compared there; draw inputs for which the reference is defined"
            )


def _constant_outputs(truths: Sequence[Truth], later: Later = lambda _: ()) -> Iterable[str]:
    """Those with the same elements for every input, in each mode, and in later calls."""
    firsts = list({truth.question.mode: truth.question for truth in reversed(truths)}.values())
    by_mode: dict[str, list[Mapping[str, np.ndarray]]] = {}
    for truth in truths:
        by_mode.setdefault(truth.question.mode, []).append(truth.reference.outputs)
    for name in next(iter(by_mode.values()))[0]:
        if all(_is_constant(name, outputs) for outputs in by_mode.values()):
            calls = [[by_mode[first.mode][0], *later(first)] for first in firsts]
            if any(len(each) > 1 and not _is_constant(name, each) for each in calls):
                continue
            yield (
                f"the output {name} is the same for every input: a port that returns it as a constant would pass; add "
                "an input for which it is another"
            )


def _is_constant(name: str, outputs: Sequence[Mapping[str, np.ndarray]]) -> bool:
    """Whether an output of one mode has the same elements throughout; of one that is not there, there are none."""
    first, *others = [each[name] for each in outputs if name in each] or [np.empty(0)]
    if not outputs[0].keys() >= {name}:
        return True
    return bool(first.size and others) and all(
        np.array_equal(other, first, equal_nan=is_floating(first)) for other in others
    )


def _constant_inputs(asked: Sequence[Truth]) -> Iterable[str]:
    """Masks and numbers that have one value in all inputs."""
    values: dict[str, set[Any]] = {}
    kinds: dict[str, str] = {}
    for truth in asked:
        for path, leaf in jtu.tree_leaves_with_path(truth.question.inputs):
            array = np.asarray(leaf)
            if array.dtype.kind in "iub" and array.size:
                name = input_name(path)
                kinds[name] = array.dtype.kind
                values.setdefault(name, set()).update((array.min().item(), array.max().item()))
    for name, seen in values.items():
        if len(seen) > 1:
            continue
        (value,) = seen
        if kinds[name] == "b":
            yield (
                f"{name} is {value} in every element of every input: a port that ignores the mask, or reads it the "
                "other way round, may not be told; add an edge input that mixes True and False"
            )
        else:
            yield (
                f"{name} is {value} in every element of every input: a port that ignores it, or has it built in, is "
                "not told; add an input with other values"
            )


def _batch_of_one(asked: Sequence[Truth]) -> Iterable[str]:
    leaves = [np.asarray(leaf) for truth in asked for leaf in jtu.tree_leaves(truth.question.inputs)]
    batched = [leaf for leaf in leaves if leaf.ndim > 1]
    if batched and all(leaf.shape[0] == 1 for leaf in batched):
        yield (
            "the first axis of every input has length 1: a port that mixes the examples of a batch, or loses the axis, "
            "is not told; add an input with a batch of 2 or more"
        )


def _zero_gradients(
    asked: Sequence[Truth], without_effect: Callable[[Truth, Sequence[str]], Sequence[str]]
) -> Iterable[str]:
    if not asked:
        return
    gradients = [t.reference.parameter_gradients for t in asked]
    zero = [name for name in gradients[0] if gradients[0][name].size and not any(g[name].any() for g in gradients)]
    if zero and (zero := list(without_effect(asked[0], zero))):
        yield (
            f"the gradient of {listed(zero)} is exactly zero on every input: these inputs do not exercise it, and a "
            "port that uses it wrongly, or not at all, may not be told; add an input on which an output depends on it"
        )


def _symmetric(state_dict: Mapping[str, np.ndarray], parameters: Sequence[str]) -> Iterable[str]:
    symmetric = []
    for name in parameters:
        array = state_dict.get(name)
        if array is None or array.ndim < 2 or array.shape[0] != array.shape[1] or array.shape[0] < 2:
            continue
        if np.array_equal(array, np.swapaxes(array, 0, 1)):
            symmetric.append(name)
    if symmetric:
        yield (
            f"{listed(symmetric)} is its own transpose: a port that transposes it passes; let the reference start "
            "from weights that are not symmetric (torch.manual_seed is called before it is built)"
        )


def _equal(a: Any, b: Any) -> bool:
    ours, theirs = jtu.tree_leaves(a), jtu.tree_leaves(b)
    return len(ours) == len(theirs) and all(
        x.shape == y.shape and x.tobytes() == y.tobytes() for x, y in zip(ours, theirs, strict=True)
    )


def _short(value: Any) -> int:
    """The same number for the same value."""
    array = as_numpy(value) if hasattr(value, "detach") else np.asarray(value)
    return hash((array.shape, array.tobytes()))


def _kinks(module: torch.nn.Module) -> tuple[float, ...]:
    """Where the branches of an activation module meet."""
    from torch import nn

    if isinstance(module, nn.Hardtanh):  # ReLU6 is one
        return float(module.min_val), float(module.max_val)
    if isinstance(module, nn.Hardswish | nn.Hardsigmoid):
        return -3.0, 3.0
    if isinstance(module, nn.Threshold):
        return (float(module.threshold),)
    if isinstance(module, nn.ReLU | nn.LeakyReLU | nn.PReLU | nn.RReLU | nn.ELU | nn.CELU | nn.SELU):
        return (0.0,)
    return ()


def listed(names: Sequence[str]) -> str:
    """The first few of them, and how many more there are."""
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
