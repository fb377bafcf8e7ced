"""What rounding does to the judge's answers: how far it moves them, and what it decides."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable

import jax.tree_util as jtu
import numpy as np

from ..case import Inputs
from ..draw import generator
from ..dtypes import HALF_ULP
from ..moved_results import MovedResults, NoExactValues
from ..observation import Observation
from ..quiet import quiet
from ..torch_side import Snapshot, TorchSide
from ..trees import is_floating
from .judge import Judge, Key, Question, Truth, shares_scale
from .yardstick import difference, magnitude

MOVES = 6  # of PyTorch, to see which integers hang on rounding
MOST_BESIDE = 10  # times as many elements as rounding moves: more of them are off for another reason
MOST_UNREST = 1e-6  # of its scale, by which rounding in float64 is taken to move a tensor
FEW = 16  # numbers of which inputs are made
NEAR = 1e-7  # of the largest beside it, by which a value is moved off a kink
NEARBY = 2  # points
NEARER = (1.0, 0.5, 0.25)  # of `NEAR`: what moves smoothly moves by as much less, and at a kink by no less
SHARE_NEARBY = 0.01  # of what a gradient is off, by which the reference's may be another one where there is no kink


class Rounding:
    """Of one judge."""

    def __init__(self, judge: Judge):
        self.judge = judge
        self._near: tuple[Question, list[tuple[Observation, ...]]] | None = None

    @functools.cached_property
    def _moved(self) -> TorchSide:
        """In float64, its parameters moved by half an ulp."""
        side = self.judge.side("float64")
        side.move_parameters(HALF_ULP["float64"], self.judge.seed)
        return side

    def unrest(self, truth: Truth, *, alike: bool = False, finite: bool = False) -> dict[Key, float]:
        """How far rounding alone moves each tensor of such an answer in float64: infinitely far, for an integer, and
        where no number is left.

        There it may part two right answers: a norm over what is constant divides the rounding of its mean by the root
        of epsilon, and norm after norm does it again. Parameters that move keep what is constant constant, so what
        each operation gives is moved, too; but for `alike`, what is equal so that it stays equal. With `finite`, how
        far it moves the elements that stay finite: a difference of what stands in for infinity overflows in some
        elements and is nothing in others.
        """
        question, reference = truth.question, truth.reference
        with quiet():
            answers = _run(self._moved, question), self._run_shaken(question, alike=alike)
        moved, shaken = (_distances(answer, reference, finite=finite) for answer in answers)
        return {key: max(moved.get(key, 0.0), shaken.get(key, 0.0)) for key in moved | shaken}

    def with_unrest(self, truth: Truth, scale: Callable[[Key], float]) -> Truth:
        """The same answer, and how far the rounding of its operations moves each floating tensor in float64, but those
        that it moves by more than `MOST_UNREST` of their scale: there it decides something."""
        with quiet():
            shaken = _distances(self._run_shaken(truth.question), truth.reference)

        floating = {key: error for key, error in shaken.items() if is_floating(truth.reference.get(key))}
        small = {key: error for key, error in floating.items() if error <= MOST_UNREST * scale(key)}
        return dataclasses.replace(truth, unrest=small)

    def is_decided_by_rounding(self, truth: Truth, off: Iterable[Key], answer: Observation) -> bool:
        """Whether rounding of parameters, or of what operations give, moves each of these tensors in float64 by more
        than `MOST_UNREST` of its scale, as it does where it decides something, such as the sign of a sum that is zero
        but for it; and moves about as many of their elements as are off in the answer."""
        question = truth.question
        with quiet():
            moved = [each for each in (_run(self._moved, question), self._run_shaken(question)) if each is not None]

        def decides(key: Key) -> bool:
            reference = truth.reference.find(key)
            if reference is None:  # the port alone has it
                return False
            limit = MOST_UNREST * _scale(truth, key)
            ours, *theirs = (_elements_off(each.find(key), reference, limit) for each in (answer, *moved))
            return 0 < ours <= MOST_BESIDE * max(theirs, default=0)

        return all(map(decides, off))

    def is_at_a_kink(self, truth: Truth, key: Key, ours: np.ndarray) -> bool:
        """Whether a gradient that differs there may do so at a kink or a tie: whether the reference's own is another
        one nearby, where its inputs and what each operation gives are moved off zero and off each other. What changes
        by half as much where they are moved by half changes smoothly. Raises what the reference raises there."""
        reference = truth.reference.get(key)
        allowed = SHARE_NEARBY * np.abs(ours - reference).max(initial=0.0)
        for near in self._nearby(truth.question):
            arrays = [array for each in near if (array := each.find(key)) is not None]
            if len(arrays) < len(near) or any(array.shape != reference.shape for array in arrays):
                return True
            jump, again = (np.abs(_left_at(reference, *pair)).max(initial=0.0) for pair in itertools.pairwise(arrays))
            if not jump <= allowed and not (again <= allowed or again <= jump / 2):
                return True
        return False

    def _nearby(self, question: Question) -> list[tuple[Observation, ...]]:
        """What the reference gives where no value is exact, at each of several points moved there by ever less; kept
        for the last question alone."""
        if self._near is None or self._near[0] is not question:
            found = []
            with quiet():
                for seed in range(NEARBY):
                    with contextlib.suppress(Exception):
                        found.append(self._run_nearer(question, seed))
                        continue
                    # a probability of one that is moved is none
                    found.append(self._run_nearer(question, seed, moves_inputs=False))
            self._near = question, found
        return self._near[1]

    def _run_nearer(self, question: Question, seed: int, *, moves_inputs: bool = True) -> tuple[Observation, ...]:
        def run(amount: float) -> Observation:
            inputs = self._beside(question, seed, amount) if moves_inputs else question.inputs
            return self._run_without_exact_values(question, inputs, seed, amount)

        return tuple(run(share * NEAR) for share in NEARER)

    def _run_without_exact_values(self, question: Question, inputs: Inputs, seed: int, amount: float) -> Observation:
        exact = self.judge.exact
        with _kept(exact), NoExactValues(amount, self.judge.seed + seed):
            return exact.run(inputs, question.mode, question.cotangents)

    def unsteady(self, truth: Truth, key: Key) -> np.ndarray:
        """By how much PyTorch itself gets the elements of an integer output wrong, in the dtype that people run, where
        its inputs and its results are moved in their last digits: float64, of the output's shape."""
        question, wanted = truth.question, truth.reference.get(key)
        found = np.zeros(wanted.shape)
        with quiet():
            for i in range(MOVES):
                with _kept(self.judge.usual), MovedResults(self.judge.dtype, self.judge.seed + i):
                    moved = _run(self.judge.usual, question, self.jittered(question, i))
                array = moved.find(key) if moved else None
                if array is not None and array.shape == wanted.shape:
                    found = np.maximum(found, np.abs(array.astype(float) - wanted.astype(float)))
        return found

    def of_parameters(self, question: Question, reference: Observation) -> dict[Key, float]:
        """How far the smallest change of the parameters moves each tensor in float64: infinitely far, for an integer
        that it changes. Empty where PyTorch raises then."""
        return _distances(_run(self._moved, question), reference)

    def _run_shaken(self, question: Question, *, alike: bool = False) -> Observation | None:
        """What it gives where what each operation gives is moved."""
        with _kept(self.judge.exact), MovedResults("float64", self.judge.seed, alike=alike):
            return _run(self.judge.exact, question)

    def _beside(self, question: Question, index: int, amount: float) -> Inputs:
        """The question's inputs in float64, each floating element moved by this much of the largest, at most."""
        rng = generator(self.judge.case, self.judge.seed, f"beside {question.label}", index)

        def move(leaf: np.ndarray) -> np.ndarray:
            if not is_floating(leaf):
                return leaf
            scale = np.abs(leaf).max(initial=0.0) or 1.0
            return leaf.astype(np.float64) + rng.uniform(-1, 1, leaf.shape) * amount * scale

        return jtu.tree_map(move, question.inputs)

    def jittered_answer(self, question: Question, index: int) -> Observation | None:
        """What PyTorch gives, in the dtype that people run, on `jittered` inputs; None where it raises."""
        return _run(self.judge.usual, question, self.jittered(question, index))

    def jittered(self, question: Question, index: int) -> Inputs:
        """The question's inputs, each floating element moved by up to half an ulp before it is rounded again, but not
        out of the range in which all are: none that is at most one, as a probability is, is more; nor where it is one
        of a few numbers, as the peaks of a heatmap that are asked for by `== 1`, or a mask."""
        rng = generator(self.judge.case, self.judge.seed, f"jitter {question.label}", index)

        def move(leaf: np.ndarray) -> np.ndarray:
            if not is_floating(leaf):
                return leaf
            noise = rng.uniform(-1, 1, leaf.shape) * 2 * HALF_ULP[self.judge.dtype]
            moved = np.asarray(np.where(_is_of_few(leaf), leaf, leaf * (1 + noise)), leaf.dtype)
            if not leaf.size:
                return moved
            return np.clip(moved, np.fmin.reduce(leaf, axis=None), np.fmax.reduce(leaf, axis=None))  # NaN is no end

        return jtu.tree_map(move, question.inputs)


def _is_of_few(leaf: np.ndarray) -> np.ndarray:
    """Which elements are whole numbers, but for those of a picture, or are the same as a few others."""
    if np.iscomplexobj(leaf):
        return np.zeros(leaf.shape, bool)
    values, places, counts = np.unique(leaf, return_inverse=True, return_counts=True)
    is_whole = leaf == np.round(leaf)
    is_repeated = (counts[places] > 1).reshape(leaf.shape) & ~is_whole
    if len(values) > FEW:
        is_whole = is_whole & ~is_whole.all()
        is_repeated &= 2 * is_repeated.sum() < leaf.size  # in few digits most are
    return is_whole | is_repeated


def _kept(side: TorchSide) -> contextlib.AbstractContextManager[None]:
    """Afterwards its buffers are as they were, where a run would keep moved ones, and its parameters, which forward may
    write in place, such as those that it holds within bounds."""
    return Snapshot([*side.module.parameters(), *side.module.buffers()], side.module.modules()).restored()


def _run(side: TorchSide, question: Question, inputs: Inputs | None = None) -> Observation | None:
    """What PyTorch gives, here where something is moved; None where it raises, as an index that is moved may lead out
    of a table."""
    with contextlib.suppress(Exception):
        return side.run(question.inputs if inputs is None else inputs, question.mode, question.cotangents)
    return None


def _left_at(reference: np.ndarray, far: np.ndarray, near: np.ndarray) -> np.ndarray:
    """By how much it differs from the reference where nothing is moved, by two that are moved: one half as far."""
    return (near - reference) - (far - near)


def _scale(truth: Truth, key: Key) -> float:
    shared = truth.shared_scale(key) if shares_scale(key[0]) else 0.0
    return max(shared, magnitude(truth.reference.get(key)))


def _distances(answer: Observation | None, reference: Observation, *, finite: bool = False) -> dict[Key, float]:
    """The largest absolute difference in each tensor, or of its `finite` elements: infinite for integers that differ.
    Empty without an answer."""
    found: dict[Key, float] = {}
    for kind, name, array in answer.tensors() if answer else ():
        beside = reference.get((kind, name))
        if finite and is_floating(array) and array.shape == beside.shape:
            array = np.where(np.isfinite(array), array, beside)
        found[kind, name] = difference(array, beside, 1.0).error
    return found


def _elements_off(array: np.ndarray | None, reference: np.ndarray, limit: float) -> int:
    """How many elements differ: integers at all, others by more than a limit; all of them where there is none."""
    if array is None or array.shape != reference.shape:
        return reference.size
    if not is_floating(reference):
        return int((array != reference).sum())
    with np.errstate(invalid="ignore"):
        near = (np.abs(array - reference) <= limit) | (array == reference) | (np.isnan(array) & np.isnan(reference))
    return int((~near).sum())
