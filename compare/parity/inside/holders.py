"""Buffers and gradients of parameters, which have a name and no call: whose they are, and whose fault."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..causes.change import Change
from ..causes.changed import Evidence
from ..causes.every_call import EveryCall
from ..yardstick import difference, magnitude
from .calls import CallId, is_inside

if TYPE_CHECKING:
    from .localise import Look

ROUNDING = 2.0**-50  # of a gradient, a sum of which may be off by so much
LEAST_GRADIENT = 1e-3  # of the largest of the model: an error of 1e-13 of that is rounding, as of a bias before a norm


class Holders:
    """The modules that hold the named tensors of the reference, and those that write and read them from elsewhere.

    Args:
      look: at both sides.
    """

    def __init__(self, look: Look):
        self.look = look
        self._own: dict[str, Mapping[str, np.ndarray]] = {}
        self._recorded: dict[str, Evidence] = {}

    def path(self, name: str) -> str:
        """The path in the port of the called module that holds this tensor of the reference."""
        return self._holders(name)[0]

    def call(self, name: str) -> CallId | None:
        """The call of that module, where it is called once; of stacked layers, that of the layer."""
        calls = self.calls(name)
        return calls[0] if len(calls) == 1 else None

    def calls(self, name: str) -> list[CallId]:
        """All calls of that module, in order."""
        there = self._holders(name)[1]
        return [ours for ours, theirs in self.look.matches.items() if theirs.path == there]

    def _holders(self, name: str) -> tuple[str, str]:
        """In the port and in the reference."""
        apart = {*self.look.unlike, *self.look.hidden, *self.look.written}
        known = {theirs: ours for ours, theirs in self.look.matching.every if ours not in apart}
        path = name
        while path and path not in known:
            path = path.rpartition(".")[0]
        return known.get(path, ""), path

    def aliases(self, name: str) -> list[str]:
        """All names of a tensor of the reference, this one first: a tied weight's gradient is the sum of its uses."""
        tensors = dict(self.look.judge.module.named_parameters(remove_duplicate=False))
        if name not in tensors:
            return [name]
        return [name, *(other for other, tensor in tensors.items() if tensor is tensors[name] and other != name)]

    def writer_elsewhere(self, name: str) -> str | None:
        """The module that writes a buffer of another one in the reference, as a model does that keeps an average of its
        weights; None where the module that holds it does, or several do."""
        paths = {self.look.matching.to_port(path) for path in self.look.calls.writers.get(name, ())}
        path = paths.pop() if len(paths) == 1 else None
        return None if path is None or is_inside(path, self.path(name)) else path

    def writer(self, name: str) -> str:
        """The module that a buffer's values are of: the one that writes it from elsewhere, or the one that holds it."""
        elsewhere = self.writer_elsewhere(name)
        return self.path(name) if elsewhere is None else elsewhere

    def is_misled(self, at: CallId) -> bool:
        """Whether a call reads a buffer that another module has written before it, and wrongly."""
        there = self.look.matches[at]
        if not self.look.calls.writers or not there.path:
            return False
        ours, theirs = self.look.buffers, self.look.observed.buffers
        names = [f"{there.path}.{name}" for name in self.look.calls[there].held]
        wrong = [n for n in names if n in ours and n in theirs and not difference(ours[n], theirs[n]).equal]
        return any(self.writer_elsewhere(name) is not None for name in wrong)

    def cancels(self, name: str, error: float) -> bool:
        """Whether so much is the rounding of gradients that come to the module that holds a parameter, whose sum is
        next to nothing."""
        calls = (self.look.calls[self.look.matches[at]] for at in self.calls(name) if at in self.look.matches)
        reached = (x for call in calls for x in call.cotangents.values() if x is not None)  # some lead nowhere
        sizes = [np.abs(x).max(initial=0.0) for x in reached]
        return error <= ROUNDING * max(filter(np.isfinite, sizes), default=0.0)

    def user_around(self, name: str) -> CallId | None:
        """The call around the module that holds a parameter, where its calls add to the gradient what the reference's
        do: then the rest comes of what reads the parameter from outside, as the head of a model of words does."""
        calls = self.calls(name)
        around = self.look.run.around(calls[0]) if calls else None
        if around is None or len(self.aliases(name)) > 1:
            return None
        path = calls[0].path
        if path not in self._own:
            self._own[path] = self.look.run.own_gradients(self.look.matches, self.look.calls, path)
        wanted = self.look.observed.parameter_gradients[name]
        scale = max(magnitude(wanted), LEAST_GRADIENT * self.look.largest_gradient)
        if not difference(self._own[path][name], self.gradient_by_calls(name), scale).equal:
            return None
        made = self.look.run.made_in.items()
        # a part of it may be called from outside, too
        callers = {user for at, user in made if user and at.path != path and is_inside(at.path, path)}
        callers = {user for user in callers if not is_inside(user.path, path)}
        return callers.pop() if len(callers) == 1 else around

    def gradient_by_calls(self, name: str) -> np.ndarray:
        """What the calls of the module that holds a parameter add to its gradient in the reference."""
        there = [self.look.matches[at] for at in self.calls(name)]
        if there[0].path not in self._recorded:
            forced = {self.look.matches[at] for at in self.look.run.forced}
            every = EveryCall(self.look.judge.module, self.look.calls, there, forced, backward=True)
            self._recorded[there[0].path] = every.run(Change())
        found = self._recorded[there[0].path]
        return found.get(("parameter_gradient", name), self.look.observed.parameter_gradients[name])
