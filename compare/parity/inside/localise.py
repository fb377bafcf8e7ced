"""Where a port goes wrong: the innermost modules that introduce error, forward and backward."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from flax import nnx

from ...case import identity
from ...jax_side import PortSide
from ...report.records import Divergence, Finding, ModuleEvidence
from ...torch_side import TorchSide
from ..causes.change import Change
from ..causes.replay import Replay
from ..judge import Question, largest_beside_inputs
from ..yardstick import Difference, difference, magnitude
from .borders import Backward, Seen
from .calls import ROOT, CallId, Calls, counts
from .holders import LEAST_GRADIENT, Holders
from .matching import Node, match_modules, port_nodes, reference_nodes, stacked_layers, uncounted
from .no_further import going_no_further
from .port_calls import PortRun
from .steps import pairs_of_other_counts, regrouped
from .suspects import Activation, Suspect, What, finding_of, source_of
from .torch_calls import recorded


def named_border(seen: Seen) -> tuple[str, str, CallId | None]:
    """Of a gradient that is seen at the border of a call: what it is, the name of the tensor, and the call in which it
    goes wrong where it does."""
    return seen.what, f"{seen.name} of {seen.at}", seen.at if seen.what == "input_gradient" else seen.around


class Look:
    """A look into both sides of a case on one question; building it runs them.

    Args:
      port, judge: both in float64, with the same weights.
      question: an input on which they differ, say; `inference` is looked at forward only.
      table: the case's `modules`.

    Attributes:
      calls: of the reference's modules, regrouped where one side has a loop that the other has not.
      run: the port's.
      nodes, reference_nodes: the called modules of either side.
      matching, matches: which modules stand for which, and which calls.
      unlike: paths in the port of matched modules that are handed tensors of other shapes than the reference's, or
        begin or end elsewhere, and so are judged as a part of what is around them.
      hidden: of matched modules that are called within a transform, such as `jax.grad`, which hides their values;
        likewise.
      written: of matched modules that write into what they are given, where that is read after them; likewise.
      suspects: the modules that introduce error, by path.
      read_from: by parameter whose gradient is wrong, the call that reads it from outside of the module that holds it,
        where the fault is there.
      holders: which modules named tensors are of.
      outside: what is off although no module introduces it: in the case's `to_model`, `to_reference` or `loss`.
      activations: of every matched call.

    Raises:
      CaseError: where the table names a module that is not there.
    """

    def __init__(
        self,
        port: PortSide,
        judge: TorchSide,
        question: Question,
        table: Mapping[str, str | None] | None = None,
    ):
        self.port, self.judge, self.question, self.table = port, judge, question, table
        with recorded(judge.module) as calls:
            self.observed = judge.run_recorded(question.inputs, question.mode, question.cotangents)
        self.calls: Calls = calls
        self.run = PortRun(port, question)
        kinds = self.run.kinds()
        model = port.model
        self.nodes = port_nodes(model, kinds, port.case.weights)
        layers = stacked_layers(model, kinds, port.case.weights, self._nodes_there())
        self._match(table, layers)
        if self._regroup(table, layers):
            self._match(table, layers)
        self.kinds = {call.path: kind for call, kind in kinds.items()}
        self._called = counts(iter(kinds)), counts(self.calls)
        matches = self.matching.of_calls(list(kinds), list(self.calls))
        self.matches = {at: there for at, there in matches.items() if not self.calls[there].is_read_written}
        self.written = tuple(dict.fromkeys(at.path for at in matches if at not in self.matches))
        self.suspects: dict[str, Suspect] = {}
        self.outside: list[Finding] = []
        self.read_from: dict[str, CallId] = {}
        self.ways: dict[CallId, Any] = {}  # what the search for causes keeps of a call
        self.changed: dict[CallId, list[np.ndarray]] = {}  # what the calls give that its first cause changes
        self.made_of: dict[CallId, Callable[[], list[np.ndarray]]] = {}  # likewise, what is made of it at first
        self.holders = Holders(self)
        self._free = {(seen.at, seen.what, seen.name): seen for seen in self.run.inherited(self.matches, self.calls)}
        self.forced, self.buffers = self.run.forced_forward(self.matches, self.calls)
        judged = set(self.run.forced)
        beside = [at for at in self.matches if at not in judged and at not in self.run.unlike]
        self.matches = {at: there for at, there in self.matches.items() if at in judged}
        self.unlike = tuple(dict.fromkeys(at.path for at in self.run.unlike))
        self.hidden = tuple(dict.fromkeys(at.path for at in beside))
        for seen in self.forced:
            self._judge(seen, difference(seen.port, seen.reference))
        self._handed_out()
        self.activations = tuple(self._activations(self.forced))
        self.backward: Backward | None = None
        self.let_through: list[tuple[CallId, str]] = []
        if question.mode == "forward_backward":
            self._named("buffer", self.buffers, self.observed.buffers, None)
            self._backward()

    def _match(self, table: Mapping[str, str | None] | None, layers: Mapping[str, Sequence[str]]) -> None:
        self.reference_nodes = self._nodes_there()
        self.matching = match_modules(self.nodes, self.reference_nodes, table, layers)

    def _nodes_there(self) -> list[Node]:
        carried = frozenset(key for node in self.nodes for key in node.keys)
        kinds = {call.id: call.kind for call in self.calls.values()}
        return reference_nodes(kinds, list(self.judge.module.state_dict()), carried)

    def _regroup(self, table: Mapping[str, str | None] | None, layers: Mapping[str, Sequence[str]]) -> bool:
        """Makes the calls of modules as many as the port's, which are called once for all steps on one side alone; says
        whether there are any."""
        ours, theirs = self.matching.only_port, self.matching.only_reference
        if not (ours and theirs) and not table:
            return False
        loose = match_modules(uncounted(self.nodes, ours), uncounted(self.reference_nodes, theirs), table, layers)
        pairs = pairs_of_other_counts(self.nodes, self.reference_nodes, loose)
        received = self.run.received(list(pairs)) if pairs else {}
        for path, (there, certain) in pairs.items():
            if all(received[path]):
                self.calls = regrouped(self.calls, there, received[path], self._given_again, certain=certain)
        return bool(self.calls.regrouped)

    def _given_again(self, calls: Calls, at: CallId) -> dict[tuple[str, str], np.ndarray]:
        return Replay(self.judge.module, calls, at, set(), backward=False).run(Change(), forward_only=True)

    def _handed_out(self) -> None:
        """Of outputs that are right in the port's layout, what the case's `to_reference` makes of them, or, where there
        is none, the module that gives them in another shape."""
        made = self.run.handed_out
        if made is None or ROOT not in self.matches or self.suspects:
            return
        ours = made.renamed(self.observed).outputs
        for name, wanted in self.observed.outputs.items():
            found = difference(ours[name], wanted) if name in ours else None
            if found is None or found.equal:
                continue
            if self.port.case.to_reference is identity:
                at = self._giver(wanted)
                self._blame(at.path, finding_of("output", f"{name} of {at}", found), at.number)
            else:
                self.outside.append(finding_of("output", f"{name} after to_reference", found))

    def _giver(self, output: np.ndarray) -> CallId:
        """The innermost call that gives this output of the reference in another shape; the model's, if none does."""

        def gives(seen: Seen) -> bool:
            if seen.what != "output" or seen.at not in forced or not np.array_equal(seen.reference, output):
                return False
            outputs = self.run.borders(seen.at).outputs
            return any(each.layout.shape != output.shape for each in outputs if each.name == seen.name)

        forced = set(self.run.forced)
        found = [seen.at for seen in self.forced if gives(seen)]
        return max(found, key=lambda at: len(at.path.split(".")) if at.path else 0, default=ROOT)

    def _backward(self) -> None:
        try:
            self.backward = backward = self.run.forced_backward(self.matches, self.calls)
        except Exception:
            if not self.suspects:
                raise
            return  # a module that gives another shape has been found; its gradients fit nothing
        freed: set[CallId] = set()
        if free := self._made_up_for(backward):
            again = self.run.forced_backward(self.matches, self.calls, free)
            right = {at for at in free if not self._wrong_inside(again, {at})}
            if right and right != free:
                again = self.run.forced_backward(self.matches, self.calls, right)
            if right and not self._wrong_inside(again, right):
                self.backward, backward, freed = again, again, right
        self.let_through = self._let_through(backward, freed)
        lost = {("input_gradient", at) for at in self._without_effect(backward, freed)}
        lost |= {("received_cotangent", at) for at in self._received_without_effect(backward, freed)}
        seen_so = [replace(x, port=x.reference) if (x.what, x.at) in lost else x for x in backward.seen]
        self.backward = backward = replace(backward, seen=seen_so)
        for seen in sorted(backward.seen, key=lambda seen: self._user_elsewhere(seen) is not None):
            if self._user_elsewhere(seen) not in self.suspects:
                self._judge(seen, self._gradient_error(seen))
        largest = self.largest_gradient
        self._named("parameter_gradient", backward.by_parameters, self.observed.parameter_gradients, largest)

    def _without_effect(self, backward: Backward, free: set[CallId]) -> set[CallId]:
        """The calls inside of the model that are right forward, and give gradients that are not, of which nothing
        comes."""

        def again(giving: set[CallId]) -> Backward:
            return self.run.forced_backward(self.matches, self.calls, free, giving)

        given = [seen for seen in backward.seen if seen.what == "input_gradient"]
        wrong = {seen.at for seen in given if not self._gradient_error(seen).equal}
        inside = {at for at in wrong if at != ROOT and at.path not in self.suspects}
        return going_no_further(backward, inside, again, self.largest_gradient)

    def _received_without_effect(self, backward: Backward, free: set[CallId]) -> set[CallId]:
        """The calls inside of the model that are right, and are handed gradients that are not, of which nothing comes:
        no gradient goes through a kink that they lie on."""

        def again(handed: set[CallId]) -> Backward:
            return self.run.forced_backward(self.matches, self.calls, free | handed)

        handed = [seen for seen in backward.seen if seen.what == "received_cotangent"]
        wrong = {seen.at for seen in handed if not self._gradient_error(seen).equal}
        inside = {at for at in wrong if at != ROOT and at.path not in self.suspects}
        return going_no_further(backward, inside, again, self.largest_gradient, "received_cotangent")

    def _let_through(self, backward: Backward, free: set[CallId]) -> list[tuple[CallId, str]]:
        """The inputs of calls by which the reference takes no gradient, where all gradients are right as soon as the
        port takes none by them either."""
        if not backward.passed or self._is_right(backward):
            return []
        again = self.run.forced_backward(self.matches, self.calls, free, stopping=True)
        return list(dict.fromkeys(backward.passed)) if self._is_right(again) else []

    def _is_right(self, backward: Backward) -> bool:
        return not self.wrong_gradients(backward)

    def wrong_gradients(self, backward: Backward) -> set[tuple[str, str, CallId | None]]:
        """What is wrong of a backward pass: what it is, the name of the tensor, and the call in which it went wrong;
        of gradients by parameters no call."""
        largest = LEAST_GRADIENT * self.largest_gradient
        named = self.observed.parameter_gradients
        wrong = {named_border(seen) for seen in backward.seen if not self._gradient_error(seen).equal}
        for name, found in backward.by_parameters.items():
            if name in named and not difference(found, named[name], max(magnitude(named[name]), largest)).equal:
                wrong.add(("parameter_gradient", name, None))
        return wrong

    def _user_elsewhere(self, seen: Seen) -> str | None:
        """Of a gradient that a call receives, the module that the reference makes this call in, where the port makes it
        elsewhere: that of a bias of positions, which each layer has, or all are handed. It goes wrong where that does.
        """
        parent = self.calls[self.matches[seen.at]].parent
        user = None if parent is None else self.matching.to_port(parent.path)
        around = seen.around.path if seen.around is not None else ""
        return user if seen.what == "received_cotangent" and user not in ("", around) else None

    def _made_up_for(self, backward: Backward) -> set[CallId]:
        """Calls that receive another gradient than the reference's, and make another one of the right one: what is
        around them may do what they do in the reference, as where it masks the rows of padding."""
        received = [seen for seen in backward.seen if seen.what == "received_cotangent"]
        apart = {seen.at for seen in received if not self._gradient_error(seen).equal}
        return {at for at in apart if self._wrong_inside(backward, {at})}

    def _wrong_inside(self, backward: Backward, calls: set[CallId]) -> bool:
        """Whether gradients that these calls give, or their parameters', are wrong."""
        given = [seen for seen in backward.seen if seen.what == "input_gradient" and seen.at in calls]
        paths = {at.path for at in calls}
        named = {k: v for k, v in self.observed.parameter_gradients.items() if self.holders.path(k) in paths}
        ours = backward.by_parameters
        largest = LEAST_GRADIENT * self.largest_gradient
        errors = [difference(ours[k], v, max(magnitude(v), largest)) for k, v in named.items() if k in ours]
        return not all(each.equal for each in [*map(self._gradient_error, given), *errors])

    def _gradient_error(self, seen: Seen) -> Difference:
        scale = max(magnitude(seen.reference), LEAST_GRADIENT * self.largest_gradient)
        return difference(seen.port, seen.reference, scale)

    @functools.cached_property
    def largest_gradient(self) -> float:
        """The largest magnitude in any parameter's gradient of the reference; without parameters, in an input's."""
        kinds = self.observed.parameter_gradients, self.observed.input_gradients
        return largest_beside_inputs(*({name: magnitude(x) for name, x in named.items()} for named in kinds))

    def calls_beyond(self, path: str) -> int | None:
        """How many more times the port calls this module of the reference than that does; None where it has none."""
        ours, theirs = self._called
        port = self.matching.to_port(path)
        if port is None:
            return None
        return ours[port] - sum(theirs[each] for each in self.matching.layers.get(port, [path]))

    def _judge(self, seen: Seen, found: Difference) -> None:
        if found.equal:
            return
        gives = seen.what in ("output", "input_gradient")
        if gives and self.question.mode == "forward_backward" and self.holders.is_misled(seen.at):
            return  # told as the buffer
        finding = finding_of(seen.what, f"{seen.name} of {seen.at}", found)
        if gives:
            self._blame(seen.at.path, finding, seen.at.number)
        elif seen.around is None:
            self.outside.append(finding)
        else:
            self._blame(seen.around.path, finding, seen.around.number)

    def _named(
        self,
        what: What,
        ours: Mapping[str, np.ndarray],
        theirs: Mapping[str, np.ndarray],
        largest: float | None,
    ) -> None:
        """Gradients of parameters, and buffers, each the fault of the called module that holds it."""
        for name, wanted in theirs.items():
            if name not in ours:
                continue
            scale = None if largest is None else max(magnitude(wanted), LEAST_GRADIENT * largest)
            found = difference(ours[name], wanted, scale)
            if found.equal or (scale is not None and self.holders.cancels(name, found.error * scale)):
                continue
            if what == "buffer" and (writer := self.holders.writer_elsewhere(name)) is not None:
                self._blame(writer, finding_of(what, name, found), 0)
                continue
            at = self.holders.call(name)
            if what == "parameter_gradient" and at is not None and self.holders.is_misled(at):
                continue  # told as the buffer
            users = [self.holders.path(alias) for alias in self.holders.aliases(name)]
            guilty = next((path for path in users if path in self.suspects), users[0])
            if what == "parameter_gradient" and (user := self.holders.user_around(name)) is not None:
                self.read_from[name] = user
                self._blame(user.path, finding_of(what, name, found), user.number)
                continue
            number = at.number if at is not None and at.path == guilty else 0
            self._blame(guilty, finding_of(what, name, found), number)

    def _blame(self, path: str, finding: Finding, call: int) -> None:
        suspect = self.suspects.setdefault(path, Suspect(path, call))
        suspect.findings.append(finding)
        suspect.call = min(suspect.call, call)

    def divergences(self) -> list[Divergence]:
        """The suspects as a report has them, in the order in which the reference calls them; inner ones first."""
        order = {call.path: i for i, call in reversed(list(enumerate(self.calls)))}

        def first(path: str) -> tuple[int, int]:
            there = self.matching.to_reference(path)
            return (len(order) if there is None else order.get(there, len(order))), -path.count(".")

        suspects = [self.suspects[path] for path in sorted(self.suspects, key=first)]
        found = [self.divergence(each.path, each.call, each.findings) for each in suspects]
        case = self.port.case
        has_own = case.loss is not None or any(f is not identity for f in (case.to_model, case.to_reference))
        if self.outside and (has_own or not found):  # else an output's narrower dtype rounds what it is sent back
            found.append(
                Divergence(
                    mode=self.question.mode, input=self.question.label, module="", findings=self.outside, outside=True
                )
            )
        return found

    def modules(self) -> list[ModuleEvidence]:
        """Every called module of either side, the port's first, in the order of their first calls."""
        by_path: dict[str, list[Activation]] = {}
        for each in self.activations:
            by_path.setdefault(each.module, []).append(each)
        nodes = {node.path: node for node in self.nodes}
        there = {node.path: node for node in self.reference_nodes}
        found = []
        for match in self.matching.matches:
            seen = by_path.get(match.port, [])
            worst = max((each.introduced for each in seen), key=lambda d: d.error, default=None)
            found.append(
                ModuleEvidence(
                    port=match.port,
                    reference=match.reference,
                    kind=nodes[match.port].kind,
                    reference_kind=there[match.reference].kind,
                    how=match.how,
                    calls=nodes[match.port].calls,
                    inherited=max((each.inherited.error for each in seen), default=None),
                    introduced=None if worst is None else worst.error,
                    equal=match.port not in self.suspects,
                    index=() if worst is None else worst.index,
                    port_value="" if worst is None else worst.port,
                    reference_value="" if worst is None else worst.reference,
                )
            )
        found += [
            ModuleEvidence(port=n.path, reference=None, kind=n.kind, calls=n.calls) for n in self.matching.only_port
        ]
        return found + [
            ModuleEvidence(port=None, reference=n.path, reference_kind=n.kind, calls=n.calls)
            for n in self.matching.only_reference
        ]

    def divergence(self, path: str, call: int, findings: list[Finding], dtype: str = "") -> Divergence:
        """What is off in a call of a module of the port, as a report has it."""
        at = self.matches.get(CallId(path, call))
        there = self.matching.to_reference(path) if at is None else at.path
        received = [
            difference(seen.port, seen.reference).error
            for (at, what, _), seen in self._free.items()
            if what == "received" and at == CallId(path, call)
        ]
        return Divergence(
            mode=self.question.mode,
            input=self.question.label,
            module=path,
            reference=there or "",
            kind=self.kinds.get(path, ""),
            reference_kind=next((c.kind for c in self.calls.values() if c.id.path == there), ""),
            call=call,
            source=source_of(self._by_path.get(path)),
            findings=findings,
            inherited=max(received, default=None),
            dtype=dtype,
        )

    def _activations(self, forced: Sequence[Seen]) -> Iterable[Activation]:
        for seen in forced:
            own = self._free.get((seen.at, "output", seen.name))
            if seen.what == "output" and own is not None:
                yield Activation(
                    module=seen.at.path,
                    reference=self.matches[seen.at].path,
                    call=seen.at.number,
                    tensor=seen.name,
                    inherited=difference(own.port, own.reference),
                    introduced=difference(seen.port, seen.reference),
                )

    @functools.cached_property
    def _by_path(self) -> dict[str, nnx.Module]:
        return {".".join(map(str, path)): module for path, module in nnx.iter_modules(self.port.model, graph=True)}
