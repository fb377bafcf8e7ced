"""What is tried on a module that goes wrong, in order: the next stage only where those before it found nothing."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any, TypeGuard

import torch

from ...report.records import Cause
from . import known  # noqa: F401  (registers the variants)
from .ancestry import Ancestry, tensors_of
from .autograd_functions import own_function
from .call_order import other_order
from .carried import held_otherwise
from .change import Change, Site
from .composite import composites, other_shares
from .dropout import dropout_on
from .exchanged_calls import LAYOUTS
from .extra import extra_activations, extra_factors, extra_given
from .held import buffer_variants, own_buffers
from .known.gradient import kept_on, kept_on_and_on, stops_gradients
from .known.mask import chooses, compares_distances, compares_integers
from .later import rewired_in_turns, taken_later
from .limit import LateError, Limit
from .loops import not_carried, one_turn_behind
from .origins import Origin, differs_in, origins
from .parameters import own_parameters, parameter_variants, read_from_inside
from .rotary import rotations
from .sites import constructs, groups, instruction, numbers, widest_first, written_in
from .stale import lost, stale, written_too_late
from .tables import has_tables, tables
from .target import EXPLAINED
from .trial import Trial
from .variants import Fit, Variant, variants
from .ways import Ways
from .wiring import exchanged, indexed_by, moved, multiplied, rewired, stopped, stopped_before, unused, unwritten
from .wrong_call import WrongCall

if TYPE_CHECKING:
    from ..inside.localise import Look

CHANGES = 8  # at a construct, about
LONG_S = 4.0  # that these take, from which on it is found first where the two sides part
PARTING_S = 20.0  # for where the two sides part
MOST_PARTING = 8  # instructions
MOST_ENDS = 8  # calls where they part, of which each may be given something else
FEW_CALLS = 4  # of a module, in each of which another one may be called
FEW_SIBLINGS = 40  # pairs, that are tried before the calls of functions
KINDS = ("missing", "usual", "guess")  # of variants
MOST = 3  # causes that are told, where an input cannot tell them apart


class Search:
    """What is tried, in order: the next stage only where those before it found nothing.

    Args:
      trial: which knows what is a cause.
      look: in which the module goes wrong.
      run_s: that a run of it takes.
      both: gives the ways of the port and of the reference through it; None where there are none.
      within: code of the reference whose calls are tried; all where empty.
    """

    def __init__(
        self,
        trial: Trial,
        look: Look,
        run_s: float,
        both: Callable[[], Ways | None],
        within: frozenset[CodeType] = frozenset(),
    ):
        self.trial, self.look, self.run_s, self.both, self.within = trial, look, run_s, both, within
        self.replay, self.target = trial.replay, trial.target
        trial.both = both
        self._has_tried_tables = False  # early, of a module that takes long

    def causes(self) -> list[Cause]:
        self.ancestry = Ancestry(self.replay)
        self.trial.sites = self.ancestry.sites
        sites = [site for site in self.ancestry.sites if self._is_tried(site)]
        stages = (
            self._dropout,
            self._call_order,
            self._where_they_part,
            self._moved,
            self._not_carried,
            self._origins,
            self._called,
            self._read,
            self._soon_called,
            self._rotated,
            self._kept_on,
            self._single,
            self._composites,
            self._behind,
            self._elsewhere,
            self._unwritten,
            self._stale,
            self._modes,
            self._together,
            self._buffers,
            self._fits,
            self._tables,
            self._borders,
            self._rewired,
            self._extra,
            self._exchanged,
            self._parameters,
            self._held,
            self._perhaps_called,
            self._turns,
        )
        failed: list[Exception] = []
        for stage in stages:
            try:
                stage(sites)
            except Exception as error:  # of code that no stage has thought of; the others may know it
                failed.append(error)
            if self.trial.found or self.trial.is_over:
                break
        self.trial.found = self.trial.found or self.trial.choices[:1]
        if failed and not self.trial.found:
            raise failed[0]
        return _likeliest(self.trial)[:MOST]

    def _is_tried(self, site: Site) -> bool:
        return not self.within or any(code in self.within for code, *_ in site.place)

    def _dropout(self, sites: list[Site]) -> None:
        cause = dropout_on(self.target)
        again = self.trial.again.call if cause is not None else None
        if cause is not None and (not is_off_forward(again) or dropout_on(again.target) is not None):
            self.trial.add(cause)

    def _call_order(self, sites: list[Site]) -> None:
        cause = other_order(self.replay, self.target)
        again = self.trial.again.call if cause is not None else None
        if cause is not None and (not is_off_forward(again) or other_order(again.replay, again.target) is not None):
            self.trial.add(cause)

    def _where_they_part(self, sites: list[Site]) -> None:
        """Of a module whose changes are too many to be tried in time: what is tried by call, where the port leaves the
        reference's way."""
        if CHANGES * len(constructs(sites)) * self.run_s < LONG_S:
            return
        self._tables(sites)
        near = self._parting()
        self.trial.limit = self.trial.limit.anew()
        parting = [site for site in sites if instruction(site) in near]
        self._elsewhere(parting)
        parting = self._with_takers(parting)
        for stage in (self._single, self._composites, self._together, self._stale, self._fits):
            if parting and not self.trial.found and not self.trial.is_over:
                stage(parting)
        ends = _ends(constructs(parting))
        if len(ends) <= MOST_ENDS:
            self._until_found(extra_given(self.ancestry, ends))

    def _parting(self) -> frozenset[Any]:
        """The first instructions of the reference that make what the port never has, of what it has."""
        both = self.both()
        found: dict[Any, None] = {}
        with contextlib.suppress(LateError):  # what was found by then is among the first, which say most
            for each in both.never(Limit(PARTING_S)) if both is not None else ():
                found[each.instruction] = None
                if len(found) == MOST_PARTING:
                    break
        return frozenset(found)

    def _tables(self, sites: list[Site]) -> None:
        if self._has_tried_tables:
            return
        self._has_tried_tables = True
        if has_tables(self.replay) and (both := self.both()) is not None:
            self.trial.limit = self.trial.limit.anew()
            self._until_found(tables(self.replay, both))

    def _origins(self, sites: list[Site]) -> None:
        found = list(origins(self.replay, self.target, self.ancestry))
        if found and self.trial.elsewhere is not None:
            found = _also_of(self.trial.elsewhere, found)
        if found:
            found = self._also_again(found)
        for each in found:
            self.trial.add(each.cause)

    def _also_again(self, found: list[Origin]) -> list[Origin]:
        """Those of the causes that hold on the second input and in other calls, too."""
        again = self.trial.again
        if is_off_forward(again.call):
            found = _also_of(again.call, found)
        others = [again.right] if again.call is None and again.right is not None else []
        further = again.further if found and self.target.is_thin else ()
        for call in (*others, *again.beside, *further):
            if is_off_forward(call):
                found = _also_of(call, found)
            else:
                there = Ancestry(call.replay)
                found = [each for each in found if not differs_in(each, call.replay, there)]
        return found

    def _called(self, sites: list[Site]) -> None:
        """A module inside called in place of its like beside it, as where a loop is over the same one twice."""
        for left_out, instead in self._siblings():
            fewer, more = self.look.calls_beyond(left_out), self.look.calls_beyond(instead)
            if (fewer is None or fewer < 0) and more is not None and more > 0:
                self._try_called(left_out, instead)

    def _read(self, sites: list[Site]) -> None:
        for variant in read_from_inside(self.replay, self.ancestry):
            self.trial.vary(variant.id, variant.says, variant.fix, Change(parameters=variant.parameters))

    def _soon_called(self, sites: list[Site]) -> None:
        """Likewise in a port that has no modules to count the calls of, or whose calls match none: soon where few are
        to be tried."""
        if self._few_siblings():
            self._uncounted()

    def _perhaps_called(self, sites: list[Site]) -> None:
        if not self._few_siblings():
            self._uncounted()

    def _few_siblings(self) -> bool:
        return sum(1 for _ in self._siblings()) <= FEW_SIBLINGS

    def _uncounted(self) -> None:
        for left_out, instead in self._siblings():
            if self.look.calls_beyond(left_out) is None is self.look.calls_beyond(instead):
                self._try_called(left_out, instead)

    def _siblings(self) -> Iterator[tuple[str, str]]:
        for path, other in itertools.permutations(self.replay.inside, 2):
            if self.trial.is_over:
                return
            if path.rpartition(".")[0] == other.rpartition(".")[0] and self.replay.are_alike(path, other):
                yield path, other

    def _try_called(self, left_out: str, instead: str) -> None:
        says = f"calls {instead} where the reference calls {left_out}"
        fix, called = f"call {left_out} there", (left_out, instead)
        self.trial.vary("layer-repeated", says, fix, Change(called=called))
        count = sum(call.path == left_out for call in self.look.calls)
        for number in range(count) if 1 < count <= FEW_CALLS and not self.trial.found else ():
            told = f"{says}, in call {number + 1} of it"
            self.trial.vary("layer-repeated", told, fix, Change(called=called, called_in=number))

    def _single(self, sites: list[Site]) -> None:
        """A call in another form, in all turns of the loop and all modules that it is in, or in one of those; first
        wherever its line is called from.

        Where one explains it, another number in it may do so as well, and is told too.
        """

        # masks and choices by one first: where the places that they compare are counted from, and which part of a
        # condition is taken, say less; and a backward of its own, since what lacks it may stop the gradient of what
        # it is given
        def place(same: list[Site]) -> int:
            compares = compares_integers(same[0]) or compares_distances(same[0])
            return 0 if compares or chooses(same[0]) or own_function(same[0].func) else 1

        told = sorted(widest_first(sites), key=place)
        for kinds in self._kinds():
            for same in told:
                self._varied(same, kinds)
                if any(map(_leaves_out, self.trial.found)):
                    self.trial.found.sort(key=_leaves_out, reverse=True)
                    return  # a number there would say no more
                if self.trial.found:
                    rest, self.trial.found = self.trial.found[MOST - 1 :], self.trial.found[: MOST - 1]
                    self._fits_of([same])
                    self.trial.found += rest
                    return

    def _together(self, sites: list[Site]) -> None:
        """One variant at all calls of a function: a port that is wrong once is often wrong alike elsewhere."""
        tried = [numbers(same) for same in constructs(sites)]
        untried = [same for same in groups(sites) if numbers(same) not in tried]
        for kinds in self._kinds():
            for same in untried:
                self._varied(same, kinds)
            if self.trial.found:
                return

    def _kinds(self) -> Sequence[Collection[str]]:
        """Of variants, as they are tried: what is left out is plainer than what comes to the same, such as a mask that
        holds everywhere."""
        if is_off_forward(self.trial.call):
            return {"missing"}, {"usual"}, {"guess"}
        return {"missing", "usual"}, {"guess"}

    def _turns(self, sites: list[Site]) -> None:
        """A single turn of a loop, if there is more to tell it by than a few integers."""
        if self.trial.has_little_evidence:
            return
        for same in constructs(sites):
            for site in same if len(same) > 1 else ():
                self._varied([site])
                if self.trial.found:
                    return

    def _varied(self, same: list[Site], kinds: Collection[str] = KINDS) -> None:
        for variant in self._of(same[0]):
            if isinstance(variant, Variant) and _kind(variant) in kinds:
                change = Change(variant.apply, numbers(same))
                self.trial.vary(variant.id, variant.says, variant.fix, change, variant.by, variant.known)

    def _modes(self, sites: list[Site]) -> None:
        """The module's own switch between training and evaluation, the other way."""
        training, other = ("training", "evaluation") if self.replay.module.training else ("evaluation", "training")
        says = f"does in {training} what the reference does in {other}"
        fix = (
            "let it follow self.training or use_running_average, which train() and eval() switch; deterministic is the "
            "switch of dropout alone, which is off in both here"
        )
        self.trial.vary("mode", says, fix, Change(other_mode=True))

    def _rotated(self, sites: list[Site]) -> None:
        self._each(rotations(sites))

    def _composites(self, sites: list[Site]) -> None:
        self._each(composites(sites))

    def _parameters(self, sites: list[Site]) -> None:
        for variant in parameter_variants(self.replay):
            if self.trial.is_over:
                return
            self.trial.vary(variant.id, variant.says, variant.fix, Change(parameters=variant.parameters))
        numbers = {**own_parameters(self.replay), **own_buffers(self.replay)}
        for name, parameter in () if self.trial.found else numbers.items():
            if not parameter.is_floating_point():
                continue
            says = f"has {{value}} in all of {name}, which holds other numbers"
            fit = Fit("parameter-constant", says, f"load {name}", parameter.detach().mean().item(), unused, (0.25,))
            for learnt in (True, False):
                self.trial.fit(fit, functools.partial(_constant, name, learnt))

    def _buffers(self, sites: list[Site]) -> None:
        self._each(buffer_variants(self.replay))

    def _stale(self, sites: list[Site]) -> None:
        self._until_found(written_too_late(self.replay, sites))
        self._until_found(stale(self.replay, sites))
        self._until_found(lost(self.replay, sites))
        if any(cause.id == "buffer-not-written" for cause in self.trial.found):
            self._modes(sites)  # in evaluation nothing is written, either

    def _held(self, sites: list[Site]) -> None:
        self._each(held_otherwise(self.look, self.replay))

    def _fits(self, sites: list[Site]) -> None:
        single = constructs(sites)
        self._fits_of(single + [same for same in groups(sites) if same not in single])
        for fit, shares in other_shares(sites):
            self.trial.fit(fit, functools.partial(_with_number, fit, shares))

    def _fits_of(self, groups: list[list[Site]]) -> None:
        for same in groups:
            for fit in self._of(same[0]):
                if isinstance(fit, Fit):
                    self.trial.fit(fit, functools.partial(_with_number, fit, numbers(same)))

    def _kept_on(self, sites: list[Site]) -> None:
        """Where gradients alone are off, what stops them, before all else."""
        if is_off_forward(self.trial.call) or not any(map(stops_gradients, sites)):
            return
        for same in widest_first([site for site in sites if stops_gradients(site)]):
            self._varied(same)
        if not self.trial.found:
            self._each(kept_on(sites))
        if not self.trial.found:
            self._each(kept_on_and_on(sites))

    def _with_takers(self, sites: list[Site]) -> list[Site]:
        """The calls, those that take what they give, laid out anew or not, and all of a function that is no module's:
        a port may write it in another way, of which it has the result alone."""
        helpers = {code for site in sites if (code := written_in(site)) is not None}
        found = {site.number: site for site in sites}
        waiting = list(sites)
        while waiting:
            for tensor in tensors_of(waiting.pop().result):
                for site in self.ancestry.takers(tensor):
                    if site.number not in found:
                        found[site.number] = site
                        waiting += [site] if site.name in LAYOUTS else []
        found |= {site.number: site for site in self.ancestry.sites if written_in(site) in helpers}
        return list(found.values())

    def _moved(self, sites: list[Site]) -> None:
        self._each(moved(self.replay, self.target, sites))

    def _not_carried(self, sites: list[Site]) -> None:
        self._each(not_carried(self.ancestry))

    def _behind(self, sites: list[Site]) -> None:
        self._each(one_turn_behind(self.ancestry))

    def _elsewhere(self, sites: list[Site]) -> None:
        self._until_found(taken_later(self.ancestry, sites))
        self._until_found(rewired_in_turns(self.ancestry, sites))

    def _rewired(self, sites: list[Site]) -> None:
        self._until_found(rewired(self.ancestry))
        if not self.trial.found:
            self._each(indexed_by(self.ancestry))

    def _exchanged(self, sites: list[Site]) -> None:
        self._each(exchanged(self.ancestry))

    def _borders(self, sites: list[Site]) -> None:
        self._each(stopped(self.replay))
        if not self.trial.found:
            self._each(stopped_before(self.replay))
        for fit, change in multiplied():
            self.trial.fit(fit, change)

    def _unwritten(self, sites: list[Site]) -> None:
        self._each(unwritten(self.replay))

    def _extra(self, sites: list[Site]) -> None:
        turns = _ends([same for same in constructs(sites) if len(same) > 1])
        self._until_found(extra_activations(self.replay, sites))
        self._until_found(extra_given(self.ancestry, turns))
        for fit, scaled_by in extra_factors(self.replay, sites):
            if self.trial.found or self.trial.is_over:
                return
            self.trial.fit(fit, scaled_by)

    def _until_found(self, tried: Iterable[tuple[Variant, Change]]) -> None:
        self._each(itertools.takewhile(lambda _: not self.trial.found, tried))

    def _each(self, tried: Iterable[tuple[Variant, Change]]) -> None:
        for variant, change in tried:
            if self.trial.is_over:
                return
            self.trial.vary(variant.id, variant.says, variant.fix, change)

    def _of(self, site: Site) -> Iterator[Variant | Fit]:
        with contextlib.suppress(StopIteration):
            for each in variants(site, self.ancestry):
                if self.trial.is_over:
                    return
                yield each


def _ends(constructs: Iterable[list[Site]]) -> list[Site]:
    """The first turn and the last of each."""
    return [site for same in constructs for site in (same[0], *same[1:][-1:])]


def _likeliest(trial: Trial) -> list[Cause]:
    """Of the causes that do as well as each other, those that say what is likelier, if any."""
    at_kinks = [cause for cause in trial.found if cause.id == "kink-gradient"]
    if at_kinks and trial.forward.before <= EXPLAINED:
        return at_kinks  # what gives another value elsewhere would have been seen
    ids = {cause.id for cause in trial.found}
    # what scales a loss scales its gradient; and what is flat has no gradient that could be stopped
    less = {"gradient-scale"} | ({"stop-gradient"} if "backward-missing" in ids else set())
    return [cause for cause in trial.found if cause.id not in less] or trial.found


def _leaves_out(cause: Cause | Variant) -> bool:
    """Whether it is the plainest cause of all: that something is not there."""
    return cause.id.endswith("-missing")


def _kind(variant: Variant) -> str:
    return "guess" if variant.is_guess else "missing" if variant.leaves_out or _leaves_out(variant) else "usual"


def is_off_forward(call: WrongCall | None) -> TypeGuard[WrongCall]:
    return call is not None and call.forward.before > EXPLAINED


def _also_of(call: WrongCall, found: list[Origin]) -> list[Origin]:
    """Those of the causes that a tensor in place of another is there, too."""
    ids = {each.cause.id for each in origins(call.replay, call.target, Ancestry(call.replay))}
    return [each for each in found if each.cause.id in ids]


def _constant(name: str, learnt: bool, value: float) -> Change:
    """A parameter that holds that number, or the number in its place, which no gradient goes to."""
    if learnt:
        return Change(parameters={name: lambda parameter: parameter - parameter.detach() + value})
    return Change(parameters={name: lambda parameter: torch.full_like(parameter, value)})


def _with_number(fit: Fit, at: frozenset[int], value: float) -> Change:
    return Change(fit.apply(value), at)
