"""One call of a module that goes wrong: the reference's, to be run again, beside what the port shows of its own."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ...report.records import Divergence
from ..inside.calls import CallId
from ..yardstick import difference
from .change import Change, Site
from .every_call import EveryCall, of_call
from .replay import Replay
from .sites import at_same_instructions
from .target import EXPLAINED, TELLING, Aim, Target, target_of, totals_of

if TYPE_CHECKING:
    from ..inside.localise import Look

MOST_CALLS = 16  # of a module, that are run again for each change
FEW_CALLS = 4  # likewise, of one that keeps something from call to call
NUDGES = (1 + 2.0**-51, 1 - 2.0**-50)  # of each parameter: a rounding or two


class WrongCall:
    """A call of a suspect.

    Args:
      look: in which it was seen.
      at: the port's call, which has a counterpart.

    Attributes:
      replay: of the reference's.
      target: what the port shows.
      forward: of that, what the forward pass shows.
      in_part: whether the last change was judged where rounding does not grow.
      is_of_every: whether all calls of the module are run, one after the other.
    """

    def __init__(self, look: Look, at: CallId):
        forced = {look.matches[call] for call in look.run.forced}
        backward = look.question.mode == "forward_backward"
        there = look.matches[at]
        self.replay = Replay(look.judge.module, look.calls, there, forced, backward)
        self.target = target_of(look, at.path, at.number)
        self.in_part = False
        every = [ours for ours, theirs in look.matches.items() if theirs.path == there.path]
        together = 1 < len(every) <= MOST_CALLS and self.target.agrees(self.target.before)
        one_after_another = not together and 1 < len(every) <= FEW_CALLS and self.replay.keeps()
        self.is_of_every = together or one_after_another
        if self.is_of_every:
            seen = [look.matches[each] for each in every]
            calls = [id for id in look.calls if id.path == there.path]  # those too that a transform of the port hides
            unseen = set(calls) - set(seen)
            calls = calls if seen == [id for id in calls if id not in unseen] and calls[0] not in unseen else seen
            self.replay = EveryCall(look.judge.module, look.calls, calls, forced, backward, unseen)
            self.target = totals_of(look, every)  # what is off they make together
        if one_after_another:  # what one leaves, the next takes
            shown = (target_of(look, each.path, each.number).aims.items() for each in every)
            aims = {of_call(key, number): aim for number, found in enumerate(shown) for key, aim in found}
            self.target = Target({**aims, **self.target.aims})

    @property
    def forward(self) -> Target:
        return self.target.forward

    def settle(self) -> bool:
        """Whether there is something to explain, in a module that gives again what was recorded: not where it keeps
        something from call to call, nor where what is off is a dtype alone. What is right and the replay does not show
        is left out of the target; where something is off there, nothing can be explained."""
        base, aims = self.replay.run(Change()), self.target.aims
        for key in [key for key in aims if key not in base]:
            if aims.pop(key).error > EXPLAINED:
                return False
        for key, aim in aims.items():
            if key[0] == "parameter_gradient" and base[key].shape == aim.port.shape:
                # of a tied parameter this is one part: what the port adds to it is what the port adds to the whole
                aims[key] = Aim(base[key] + (aim.port - aim.reference), base[key], aim.scale)
        if not aims or self.target.agrees(self.target.residual(base)):
            return False
        return all(difference(base[key], aim.reference, aim.scale).error <= EXPLAINED for key, aim in aims.items())

    def is_right(self) -> bool:
        """Whether nothing is off in what the replay shows, either: such a call tells what changes would show."""
        base = self.replay.run(Change())
        self.target = Target({key: aim for key, aim in self.target.aims.items() if key in base})
        return bool(self.target.aims) and self.target.agrees(self.target.before + self.target.residual(base))

    def left(self, target: Target, change: Change, *, forward_only: bool = False) -> float:
        """The error that is left in this target with a change, where rounding does not grow to be seen."""
        found = self.replay.run(change, forward_only=forward_only)
        self.in_part, left = False, target.residual(found)
        if target.agrees(left) or target.share_made_right(found) < TELLING:
            return left
        self.in_part = True
        nudged = [change.nudged(self.replay.parameters, by) for by in NUDGES]
        return target.residual_where_stable(found, [self.replay.run(x, forward_only=forward_only) for x in nudged])

    def holds(self, change: Change, *, also_in_part: bool = False) -> bool:
        """Whether a change that was found at another call leaves nothing here, either."""
        with contextlib.suppress(Exception):
            if change.exchanged is not None:
                self.replay.run(Change(), forward_only=True)
                a, b = (self.replay.tensors[i][2].detach() for i in change.exchanged)
                change = replace(change, later=(a, b))
            if also_in_part:
                return self.target.agrees(self.left(self.target, change))
            return self.target.agrees(self.target.residual(self.replay.run(change)))
        return False

    def is_like(self, other: WrongCall) -> bool:
        """Whether the same functions are called on tensors of the same shapes: a change there is one here."""
        return self._shapes() == other._shapes() and self.functions() == other.functions()

    def _shapes(self) -> Any:
        return {name: value.shape for name, value in self.replay.call.inputs.items()}

    @functools.cached_property
    def sites(self) -> list[Site]:
        """The function calls in it."""
        return self.replay.sites()

    def functions(self) -> list[str]:
        """The names of those that are called, in order."""
        return [site.name for site in self.sites]

    def taken_from(self, change: Change, other: WrongCall) -> Change | None:
        """The change that this is here, found at another call, whose loops may have had other turns; None where there
        is none that is the same."""
        if self.functions() == other.functions():
            return change
        return at_same_instructions(change, other.sites, self.sites)


def another_call(look: Look, divergence: Divergence, first: WrongCall) -> WrongCall | None:
    """The last call of the module that goes wrong beside the first, which may be a special one, such as from a state of
    zeros, where different differences do the same. Another layer of stacked ones is another module of the reference."""
    if first.is_of_every:
        return None
    calls = []
    there = look.matches[CallId(divergence.module, divergence.call)].path
    for seen in [*look.forced, *(look.backward.seen if look.backward else ())]:
        at = seen.at if seen.what in ("output", "input_gradient") else seen.around
        wrong = at is not None and at.path == divergence.module and not difference(seen.port, seen.reference).equal
        if at is not None and wrong and at.number != divergence.call and at in look.matches:
            calls += [at] if look.matches[at].path == there else []
    call = WrongCall(look, max(calls, key=lambda at: at.number)) if calls else None
    return call if call is not None and call.settle() else None


class Elsewhere(NamedTuple):
    """Looks at other inputs.

    Attributes:
      second: gives one at another input of the same kind, or None where there is none.
      edges: gives those at edge inputs, where lengths and sizes are others.
      usual: gives one at a random input, or None where the first is at one: an edge is often so plain that much does
        the same there.
      later: gives one on what an earlier call leaves, or None where none leaves anything.
      beside: of a later call, gives those at calls before it and after it.
      further: gives those at inputs of the same kind beside the second.
    """

    second: Callable[[], Look | None]
    edges: Callable[[], Iterable[Look]]
    usual: Callable[[], Look | None] = lambda: None
    later: Callable[[], Look | None] = lambda: None
    beside: Callable[[], Iterable[Look]] = tuple
    further: Callable[[], Iterable[Look]] = tuple


NOWHERE = Elsewhere(lambda: None, tuple)


class Again:
    """The suspect on other inputs, on which a found cause has to hold: one that fits by coincidence fits the first
    alone. Where the suspect is right there, the cause has to make no difference.

    Args:
      first: the call in which causes are found.
      path: of the suspect in the port.
      elsewhere: gives looks at the inputs; asked once a cause was found.
    """

    def __init__(self, first: WrongCall, path: str, elsewhere: Elsewhere):
        self.first, self.path, self.elsewhere = first, path, elsewhere

    @functools.cached_property
    def call(self) -> WrongCall | None:
        """The first that goes wrong on the second input; None where none does, or nothing can be told of it."""
        call = self._wrong(self._second)
        return call if call is not None and call.is_like(self.first) else None

    @functools.cached_property
    def unlike(self) -> WrongCall | None:
        """The call there, where other functions are called in it, as by a loop over the values."""
        call = None if self.call or self.right else self._seen(self._second)
        return call if call is not None and call.functions() != self.first.functions() else None

    @functools.cached_property
    def right(self) -> WrongCall | None:
        """The call there, where the suspect does not go wrong in it; None where it does, or nothing can be told."""
        call = self._right(self._second)
        return call if call is not None and call.is_like(self.first) else None

    @functools.cached_property
    def _second(self) -> Look | None:
        with contextlib.suppress(Exception):  # then all stays as the first input tells it
            return self.elsewhere.second()
        return None

    @functools.cached_property
    def at_edges(self) -> list[WrongCall]:
        """The calls on edge inputs, of whatever shapes."""
        return [call for look in self.elsewhere.edges() if (call := self._seen(look)) is not None]

    @functools.cached_property
    def usual(self) -> WrongCall | None:
        """The call on a random input, where the first is on an edge."""
        with contextlib.suppress(Exception):
            return self._seen(self.elsewhere.usual())
        return None

    @functools.cached_property
    def later(self) -> WrongCall | None:
        """The call on what an earlier one leaves, where the suspect has buffers."""
        if not any(True for _ in self.first.replay.module.buffers()):
            return None
        with contextlib.suppress(Exception):
            return self._seen(self.elsewhere.later())
        return None

    @functools.cached_property
    def beside(self) -> list[WrongCall]:
        """Calls before it and after it, where it is a later one, whether the suspect goes wrong in them or not."""
        with contextlib.suppress(Exception):
            return [call for look in self.elsewhere.beside() if (call := self._seen(look)) is not None]
        return []

    @functools.cached_property
    def further(self) -> list[WrongCall]:
        """The calls on inputs of the same kind beside the second, whether the suspect goes wrong in them or not."""
        with contextlib.suppress(Exception):
            return [call for look in self.elsewhere.further() if (call := self._seen(look)) is not None]
        return []

    def _seen(self, look: Look | None) -> WrongCall | None:
        return self._wrong(look) or self._right(look)

    def _right(self, look: Look | None) -> WrongCall | None:
        with contextlib.suppress(Exception):
            there = self.first.replay.call.id
            at = None if look is None else next((ours for ours, it in look.matches.items() if it == there), None)
            if look is not None and at is not None and at.path == self.path and self.path not in look.suspects:
                call = WrongCall(look, at)
                return call if call.is_right() else None
        return None

    def _wrong(self, look: Look | None) -> WrongCall | None:
        with contextlib.suppress(Exception):
            return self._goes_wrong(look)
        return None

    def _goes_wrong(self, look: Look | None) -> WrongCall | None:
        suspect = None if look is None else look.suspects.get(self.path)
        if look is None or suspect is None or (at := CallId(suspect.path, suspect.call)) not in look.matches:
            return None
        if look.matches[at].path != self.first.replay.call.id.path:
            return None
        call = WrongCall(look, at)
        return call if call.settle() and call.target.before > EXPLAINED else None

    def holds(self, change: Change) -> bool:
        """Whether nothing on the second input, on a random one, in an earlier call or a later one speaks against a
        change."""
        if self.call is not None:
            holds = self.call.holds(change, also_in_part=True)
        else:
            holds = self.right is None or self.right.holds(change)
        others = (call for calls in ((self.unlike, self.usual, self.later), self.beside) for call in calls)
        return holds and all(self._agrees(call, change, untold=False) for call in others)

    def holds_further(self, change: Change) -> bool:
        """Likewise on inputs of the same kind beside the second."""
        return all(self._agrees(call, change, untold=False) for call in self.further)

    def holds_at_edges(self, change: Change) -> bool:
        """Likewise on edge inputs."""
        return all(self._agrees(call, change, untold=True) for call in self.at_edges)

    def _agrees(self, call: WrongCall | None, change: Change, *, untold: bool) -> bool:
        """Whether a change leaves nothing at another call.

        Args:
          call: that one, if there is one.
          change: found at the first.
          untold: what is given where the change cannot be found there, since other functions are called in it, and it
            may fit the first call by chance: one of some turns of a loop alone, or of tensors where integers are off.
        """
        if call is None:
            return True
        there = call.taken_from(change, self.first)
        if there is None:
            tells = not change.is_of_sites_alone and not self.first.target.is_thin
            return untold or tells
        return call.holds(there, also_in_part=True)
