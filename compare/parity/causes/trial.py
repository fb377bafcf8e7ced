"""One known difference tried on the reference's module: whether it gives what the port gives, and not by chance."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from graphmode.weights import as_numpy

from ...report.records import Cause
from .change import WRITES, Change, Site
from .fit import plain, solve
from .limit import Limit
from .port_way import Step
from .sites import is_floating, source
from .target import EXPLAINED
from .variants import Fit
from .ways import Ways
from .wrong_call import Again, WrongCall

IN_PART = " (judged before rounding grows: what follows is chaotic)"
OF_A_CHOICE = ", or something else by which the same is chosen: nothing but a choice hangs on it here"
NEARLY, FAR = 1e-3, 30.0  # of a value: what only a choice does not tell from it, and what a choice does
BEYOND = 1009  # from an integer: no index or class is as far
ORDER = "calls-order"
LITTLE = 1e-9  # of a value: what is made of it is another then, but where it only chooses
NOTHING = 1e-9  # a number that was found to be smaller may as well be zero
ROUNDED = 3e-7  # of a number: as near lies what float32 makes of it
PLAIN_DIGITS = 3  # of a number that somebody may have written
CLEARLY = 4  # digits
COMPARES = ("lt", "le", "gt", "ge")
NOUGHT = ("scale", "exponent", "factor", "mean")  # families that may make a divisor nought, and anything infinite
FEW = 4  # kinds of change in integers, that arithmetic is not told from
ARITHMETIC = frozenset(
    {
        "activation",
        "constant",
        "exponent",
        "factor",
        "function",
        "limits",
        "repeat",
        "residual",
        "scale",
        "summand",
        "tensors",
        "wiring",
    }
)  # families of causes


class Trial:
    """The causes of a wrong call that are found one after the other.

    Args:
      call: of the reference's module that goes wrong, settled.
      limit: of the search.
      elsewhere: a later wrong call of the module, where there is one.
      again: the same call on another input.
      only: ids of those that are tried; all where empty.

    Attributes:
      sites: the function calls of an unchanged run of the module.
      both: gives the ways of the port and of the reference through the call; None where there are none.
      found: causes, of different ids.
      choices: those that would do, and much else would: nothing but what is chosen hangs on them.
    """

    def __init__(
        self,
        call: WrongCall,
        limit: Limit,
        elsewhere: WrongCall | None,
        again: Again,
        only: frozenset[str] = frozenset(),
    ):
        self.call, self.limit, self.elsewhere, self.again, self.only = call, limit, elsewhere, again, only
        self.replay, self.target, self.forward = call.replay, call.target, call.forward
        self.sites: list[Site] = []
        self.both: Callable[[], Ways | None] = lambda: None
        self.found: list[Cause] = []
        self.choices: list[Cause] = []
        self.changed: dict[str, list[np.ndarray]] = {}  # what the changed calls give, by what the cause says
        self.made_of: dict[str, Callable[[], list[np.ndarray]]] = {}  # likewise, what is made of it at first
        self._lengths: dict[str, int] = {}  # of the numbers in those, by id

    @property
    def is_over(self) -> bool:
        return self.limit.is_over

    def vary(
        self,
        id: str,
        says: str,
        fix: str,
        change: Change,
        by: frozenset[str] = frozenset(),
        known: float | None = None,
    ) -> None:
        """Adds a cause where this change makes the reference give what the port gives; `by` and `known` are as of a
        `Variant`."""
        if not self._is_tried(id):
            return
        left = self._residual(change)
        if (
            self.target.explains(left)
            and not self._is_by_chance(id)
            and self._holds_elsewhere(id, change)
            and not self._is_refuted(id, change, by)
            and (known is None or not self._compares_with(change, known))
            and not self._may_be_any_other(change)
        ):
            told = says + self._where(change)
            self._take(Cause(id=id, says=told, fix=fix, residual=left, reference=self._source(change)), change)

    def fit(self, fit: Fit, change: Callable[[float], Change]) -> None:
        """Adds a cause where the change by some number does, with that number."""
        if not self._is_tried(fit.id):
            return
        which = self.forward if self.forward.aims and self.forward.before > EXPLAINED else self.target

        def left(value: float) -> np.ndarray | None:
            with contextlib.suppress(Exception):  # a number that the function refuses
                return which.vector(self.replay.run(change(value), forward_only=which is self.forward))
            return None

        value = solve(left, fit.known, fit.likely, self.limit)
        if value is None:
            return
        if abs(value) < NOTHING and self.target.explains(self._residual(change(0.0))):
            value = 0.0
        value = plain(value, lambda v: self.target.explains(self._residual(change(v))))
        residual = self._residual(change(value))
        if abs(value - fit.known) <= ROUNDED * abs(fit.known) or (self.found and abs(value) < ROUNDED):
            return  # the rounding of a constant; or nothing, and that it is left out has been told
        if not self.target.explains(residual) or self._is_by_chance(fit.id):
            return
        again = self.again.call
        if self.target.kinds_of_error(*[again.target] if again else []) < 2 and not _is_plain(value):
            return  # one number makes any one number right
        if not _is_plain(value) and self._gives_one_number(change(value)):
            return  # likewise, in a tensor of a single number
        if self._holds_elsewhere(fit.id, change(value)) and not self._is_refuted(fit.id, change(value)):
            words = {"value": f"{value:.12g}", "known": _spelled(fit.known)}
            length = len(words["value"])
            if length > min(self._lengths.values(), default=length) + CLEARLY:
                return
            self._drop(longer_than=length + CLEARLY)
            if all(cause.id != fit.id for cause in self.found):
                self._lengths[fit.id] = length
            cause = Cause(
                id=fit.id,
                says=fit.says.format(**words) + self._where(change(value)),
                fix=fit.fix.format(**words),
                residual=residual,
                reference=self._source(change(value)),
            )
            self._take(cause, change(value))

    def _take(self, cause: Cause, change: Change) -> None:
        self.changed[cause.says] = self.replay.changed(change)
        self.made_of[cause.says] = functools.partial(self.replay.made_of, change)
        if self._is_of_a_choice(change):
            self.choices.append(replace(cause, says=cause.says + OF_A_CHOICE))
        else:
            self.add(cause)

    def _is_of_a_choice(self, change: Change) -> bool:
        """Whether what the changed calls give only decides what is chosen, as scores do of which the largest is looked
        for: much else would lead to the same."""
        apply = change.apply
        if apply is None or self.forward.before <= EXPLAINED or not self._gives_floats(change):
            return False
        # what nothing takes is no choice: then much more changes nothing, either
        return self._explains_about(change, NEARLY) and not self._explains_about(change, FAR)

    def _explains_about(self, change: Change, much: float) -> bool:
        """Whether it does with what the changed calls give multiplied by random numbers, so far from one."""
        with contextlib.suppress(Exception):
            found = self.replay.run(self._about(change, much), forward_only=True)
            return self.forward.explains(self.forward.residual(found))
        return False

    @staticmethod
    def _about(change: Change, much: float) -> Change:
        """The same, and what it gives is multiplied by random numbers, so far from one."""
        noise, apply = torch.Generator().manual_seed(0), change.apply
        assert apply is not None

        def about(x: torch.Tensor) -> torch.Tensor:
            if not isinstance(x, torch.Tensor) or not x.is_floating_point():
                return x
            return x * (1 + much * torch.randn(x.shape, generator=noise, dtype=torch.float64).to(x))

        def apply_about(func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            return pytree.tree_map(about, apply(func, args, kwargs))

        return replace(change, apply=apply_about)

    def _gives_one_number(self, change: Change) -> bool:
        """Whether the changed calls give tensors of several elements, which are all the same."""
        results = [site.result for site in self.sites if site.number in change.sites]
        several = [x for x in results if isinstance(x, torch.Tensor) and x.numel() > 1]
        return bool(several) and all(bool((x == x.flatten()[0]).all()) for x in several)

    def _gives_floats(self, change: Change) -> bool:
        """Not where it writes: then more hangs on it than what it gives."""
        changed = [site for site in self.sites if site.number in change.sites]
        return all(is_floating(site.result) and not WRITES.fullmatch(site.name) for site in changed)

    def add(self, cause: Cause) -> None:
        """Takes it among the found ones, unless one of its id, or one that says the same, is there."""
        if self._is_tried(cause.id) and all(cause.id != one.id and cause.says != one.says for one in self.found):
            self.found.append(cause)

    def _is_tried(self, id: str) -> bool:
        return (not self.only or id in self.only) and not (id.partition("-")[0] in NOUGHT and self.target.is_boundless)

    def _drop(self, longer_than: int) -> None:
        """Lets numbers go that have clearly more digits than another one that does as well."""
        long = {id for id, length in self._lengths.items() if length > longer_than}
        self._lengths = {id: length for id, length in self._lengths.items() if id not in long}
        self.found = [cause for cause in self.found if cause.id not in long]

    def _residual(self, change: Change) -> float:
        """What is left with this change; the forward pass alone where that settles it."""
        with contextlib.suppress(Exception):  # a variant that the shapes do not admit
            if self.forward.aims:
                left = self.call.left(self.forward, change, forward_only=True)
                if not self.forward.agrees(left) or len(self.forward.aims) == len(self.target.aims):
                    return left
                if self.forward.before > EXPLAINED and self.replay.of_other_length:
                    return left  # of other rows than those that were recorded no gradient can be held against another
            return self.call.left(self.target, change)
        return np.inf

    def _is_by_chance(self, id: str) -> bool:
        """Whether a few integers are all the evidence, and so much arithmetic is tried that some gives them."""
        return _is_arithmetic(id) and self.has_little_evidence

    @property
    def has_little_evidence(self) -> bool:
        """Whether a few integers are all that tells a cause from another, on the second input, too."""
        if self.target.kinds_of_change() >= FEW:
            return False
        again = self.again.call
        return again is None or self.target.kinds_of_change(again.target) < FEW

    def _is_refuted(self, id: str, change: Change, by: frozenset[str] = frozenset()) -> bool:
        """Whether the port shows that it does not do so, though it gives what it would: where all that comes of it is
        what is chosen, two ways of choosing are often alike. It does not compare the number so, or has what the changed
        arithmetic gives unchanged."""
        sites = [site for site in self.sites if site.number in change.sites]
        results = [site.result for site in sites]
        if by and any(isinstance(x, torch.Tensor) and x.numel() > 1 for x in results):
            return False
        refutable = by or ((_is_arithmetic(id) or id == ORDER) and self._is_discrete(change))
        both = self.both() if refutable else None
        if both is None:
            return False
        if by:
            given = [x for site in sites for x in site.args if isinstance(x, torch.Tensor)]
            there = [step for step in both.own if step.operation.eqn.primitive.name in by]
            return not any(_is_given(step, as_numpy(x)) for step in there for x in given)
        telling = [as_numpy(x) for x in results if is_floating(x) and bool((x != x.flatten()[:1]).any())]
        return any(map(both.own_values.have_whole, telling))

    def _compares_with(self, change: Change, known: float) -> bool:
        """Whether the port compares what the changed calls compare with this number, and with no other."""
        both = self.both()
        compared = [site.args[0] for site in self.sites if site.number in change.sites]
        if both is None or not compared or not all(isinstance(x, torch.Tensor) for x in compared):
            return False
        values = np.concatenate([as_numpy(x).ravel() for x in compared])
        with_numbers = [
            float(np.asarray(other).flat[0])
            for step in both.own
            if step.operation.eqn.primitive.name in COMPARES
            for x, other in (step.given, step.given[::-1])
            if np.size(other) and (np.asarray(other) == np.asarray(other).flat[0]).all() and _has_all(x, values)
        ]
        return bool(with_numbers) and np.allclose(with_numbers, known, rtol=ROUNDED, atol=0)

    def _may_be_any_other(self, change: Change) -> bool:
        """Whether integers far above and far below those that the changed calls give do as well, as of one that is only
        asked to be equal to another: of which it is not equal to, and why, that tells nothing."""
        changed = [site for site in self.sites if site.number in change.sites]
        if change.apply is None or not all(
            _is_integer(site.result) and not WRITES.fullmatch(site.name) for site in changed
        ):
            return False
        apply = change.apply

        def beyond(by: int) -> Change:
            return replace(change, apply=lambda func, args, kwargs: apply(func, args, kwargs) + by)

        return bool(changed) and all(self.target.explains(self._residual(beyond(by))) for by in (BEYOND, -BEYOND))

    def _is_discrete(self, change: Change) -> bool:
        """Whether what the changed calls give may be another by a little, and the same comes of it."""
        usual = functools.partial(replace, change, apply=lambda func, args, kwargs: func(*args, **kwargs))
        if change.apply is None or self.forward.before <= EXPLAINED or not self._gives_floats(change):
            return False
        with contextlib.suppress(Exception):
            before = self.replay.run(usual(), forward_only=True)
            after = self.replay.run(self._about(usual(), LITTLE), forward_only=True)
            return all(np.array_equal(x, after[key], equal_nan=x.dtype.kind == "f") for key, x in before.items())
        return False

    def _holds_elsewhere(self, id: str, change: Change) -> bool:
        """Whether it explains another call of the module that goes wrong, too, and other inputs."""
        if self.elsewhere is not None and not self.call.in_part and not self.elsewhere.holds(change):
            return False
        if not self.again.holds(change) or (_is_arithmetic(id) and not self.again.holds_at_edges(change)):
            return False
        return not self.target.is_thin or self.again.holds_further(change)

    def _source(self, change: Change) -> str:
        """Where the calls are that it changes, if one line makes them all."""
        lines = {source(site) for site in self.sites if site.number in change.sites}
        return lines.pop() if len(lines) == 1 else ""

    def _where(self, change: Change) -> str:
        """What is said of where the changed calls are, and how far they were judged."""
        within = {site.backward for site in self.sites if site.number in change.sites}
        name = within.pop() if len(within) == 1 else ""
        return (f", in the backward of {name}" if name else "") + (IN_PART if self.call.in_part else "")


def _is_integer(x: Any) -> bool:
    return (
        isinstance(x, torch.Tensor) and not x.dtype.is_floating_point and not x.is_complex() and x.dtype != torch.bool
    )


def _is_given(step: Step, value: np.ndarray) -> bool:
    return any(np.size(x) == value.size and np.allclose(np.asarray(x).flatten(), value.flatten()) for x in step.given)


def _spelled(number: float) -> str:
    """A number, or where it is one that every dtype has its own of, how to have it in the one that people run."""
    limits = np.finfo(np.float64)
    name = next((name for name in ("eps", "tiny", "max", "min") if number == getattr(limits, name)), "")
    return f"jnp.finfo(x.dtype).{name}, which is {number:.6g} in float64" if name else f"{number:.12g}"


def _has_all(x: Any, values: np.ndarray) -> bool:
    """Whether these are all among the elements of an array."""
    elements = np.sort(np.asarray(x, np.float64).ravel())
    if not elements.size:
        return False
    near = np.clip(np.searchsorted(elements, values - 1e-12 * np.abs(values)), 0, elements.size - 1)
    return np.allclose(elements[near], values)


def _is_arithmetic(id: str) -> bool:
    return id.partition("-")[0] in ARITHMETIC


def _is_plain(value: float) -> bool:
    return float(f"{value:.{PLAIN_DIGITS}g}") == value
