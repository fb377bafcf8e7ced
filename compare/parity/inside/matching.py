"""Which module of the port stands for which of the reference: by weights, by name, by order and kind."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from flax import nnx

from graphmode.weights import Rename, Stack, Stacked, WeightRule
from graphmode.weights.plan import Group, make_plan

from ...case import CaseError
from .calls import CallId, counts

How = Literal["the table", "the root", "layers", "weights", "name", "order"]


@dataclass(frozen=True)
class Node:
    """A module of either side that was called.

    Attributes:
      path: dotted; empty for the model.
      kind: its class.
      calls: how often it was called.
      keys: of the `state_dict`, that it and the modules inside hold.
    """

    path: str
    kind: str
    calls: int
    keys: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]


@dataclass(frozen=True)
class Match:
    """A module of the port, the one of the reference that it stands for, and how that was found."""

    port: str
    reference: str
    how: How


@dataclass
class Matching:
    """The matches of two trees.

    Attributes:
      matches: in the order of the port's first calls.
      only_port, only_reference: called modules without a counterpart.
      layers: of modules of the port that stand for several of the reference, one in each call, all of those; `matches`
        has the first.
    """

    matches: list[Match] = field(default_factory=list)
    only_port: list[Node] = field(default_factory=list)
    only_reference: list[Node] = field(default_factory=list)
    layers: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def of_calls(self, port: Sequence[CallId], reference: Sequence[CallId]) -> dict[CallId, CallId]:
        """Calls of the port to those of the reference: the first to the first, the second to the second."""
        known = {match.port: match.reference for match in self.matches}
        there = set(reference)
        counted: Counter[str] = Counter()
        pairs = {}
        for call in port:
            if call.path in known:
                path = self.layers[call.path][call.number] if call.path in self.layers else known[call.path]
                pairs[call] = CallId(path, counted[path])
                counted[path] += 1
        return {ours: theirs for ours, theirs in pairs.items() if theirs in there}

    @property
    def every(self) -> list[tuple[str, str]]:
        """Each module of the port with each one of the reference that it stands for."""
        return [(m.port, there) for m in self.matches for there in self.layers.get(m.port, [m.reference])]

    def to_reference(self, port: str) -> str | None:
        return next((match.reference for match in self.matches if match.port == port), None)

    def to_port(self, reference: str) -> str | None:
        return next((port for port, there in self.every if there == reference), None)


def match_modules(
    port: Sequence[Node],
    reference: Sequence[Node],
    table: Mapping[str, str | None] | None = None,
    layers: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Matching:
    """Matches called modules of two trees, parents before children, each at most once.

    Args:
      port, reference: in the order of first calls; the roots, whose path is empty, among them.
      table: the user's corrections: paths of the port to paths of the reference, or to None for no counterpart.
      layers: by `stacked_layers`.

    Raises:
      CaseError: where the table names a module that is not there, or is not called.
    """
    return _Matcher(port, reference, table or {}, layers).run()


class _Matcher:
    def __init__(
        self,
        port: Sequence[Node],
        reference: Sequence[Node],
        table: Mapping[str, str | None],
        layers: Mapping[str, Sequence[str]],
    ):
        self.port = {node.path: node for node in port}
        self.reference = {node.path: node for node in reference}
        self.table, self.stacked = table, layers
        self.layers: dict[str, Sequence[str]] = {}
        self.found: dict[str, Match] = {}
        self.taken: set[str] = set()
        self._check()

    def run(self) -> Matching:
        for ours, theirs in self.table.items():
            if theirs is not None:
                self._take(ours, theirs, "the table")
        if "" not in self.found and "" not in self.table:
            self._take("", "", "the root")
        self._by_layers()
        self._by_weights()
        for depth in range(max(map(_depth, self.port), default=0) + 1):
            level = [node for node in self.port.values() if _depth(node.path) == depth]
            for node in filter(self._is_free, level):
                self._by_name(node)
        self._by_order()
        self._by_name_anywhere()
        return Matching(
            [self.found[path] for path in self.port if path in self.found],
            [node for path, node in self.port.items() if path not in self.found],
            [node for path, node in self.reference.items() if path not in self.taken],
            self.layers,
        )

    def _by_layers(self) -> None:
        """Modules with stacked variables, which are called once for each layer, in order."""
        for path, theirs in self.stacked.items():
            ours = self.port.get(path)
            if ours is None or not self._is_free(ours) or ours.calls != len(theirs) or len(theirs) < 2:
                continue
            if all(each in self.reference and self.reference[each].calls == 1 for each in theirs):
                self._take(path, theirs[0], "layers")
                self.taken.update(theirs)
                self.layers[path] = theirs

    def _by_weights(self) -> None:
        """Modules that hold the same keys, outer ones with outer ones where several do."""
        holders: dict[frozenset[str], tuple[list[Node], list[Node]]] = {}
        for side, nodes in enumerate((self.port, self.reference)):
            for node in nodes.values():
                if node.keys:
                    holders.setdefault(node.keys, ([], []))[side].append(node)
        for ours, theirs in holders.values():
            ours = sorted(filter(self._is_free, ours), key=lambda n: _depth(n.path))
            theirs = sorted((n for n in theirs if n.path not in self.taken), key=lambda n: _depth(n.path))
            for a, b in _aligned(ours, theirs):
                self._take(a.path, b.path, "weights")

    def _by_name(self, node: Node) -> None:
        """The same name below the nearest module around it that has a counterpart."""
        for around in _above(node.path):
            if around in self.found:
                rest = node.path[len(around) :].lstrip(".")
                for spelling in dict.fromkeys([rest, _without_layers(rest)]):
                    there = ".".join(part for part in (self.found[around].reference, spelling) if part)
                    other = self.reference.get(there)
                    if other is not None and there not in self.taken and _may_match(node, other):
                        self._take(node.path, there, "name")
                        return
                return

    def _by_order(self) -> None:
        """What is left right below a matched pair: those of one kind in order; all, where as many are left."""
        for match in list(self.found.values()):
            ours = [n for n in self.port.values() if self._is_free(n) and self._nearest(n.path) == match.port]
            theirs = [
                n
                for n in self.reference.values()
                if n.path not in self.taken and self._nearest_there(n.path) == match.reference
            ]
            for kind in dict.fromkeys(_kind(n.kind) for n in ours):
                a, b = ([n for n in nodes if _kind(n.kind) == kind] for nodes in (ours, theirs))
                if len(a) == len(b):
                    self._zip(a, b)
            ours = [n for n in ours if self._is_free(n)]
            theirs = [n for n in theirs if n.path not in self.taken]
            if len(ours) == len(theirs):
                self._zip(ours, theirs)

    def _by_name_anywhere(self) -> None:
        """The same whole path, where the modules around it could not be matched."""
        for node in filter(self._is_free, self.port.values()):
            for spelling in dict.fromkeys([node.path, _without_layers(node.path)]):
                other = self.reference.get(spelling)
                if self._is_free(node) and other and other.path not in self.taken and _may_match(node, other):
                    self._take(node.path, other.path, "name")

    def _zip(self, ours: Sequence[Node], theirs: Sequence[Node]) -> None:
        for a, b in zip(ours, theirs, strict=True):
            if _may_match(a, b) and not _hold_others(a, b):
                self._take(a.path, b.path, "order")

    def _take(self, port: str, reference: str, how: How) -> None:
        self.found[port] = Match(port, reference, how)
        self.taken.add(reference)

    def _is_free(self, node: Node) -> bool:
        return node.path not in self.found and node.path not in self.table

    def _nearest(self, path: str) -> str | None:
        return next((above for above in _above(path) if above in self.found), None)

    def _nearest_there(self, path: str) -> str | None:
        return next((above for above in _above(path) if above in self.taken), None)

    def _check(self) -> None:
        for ours, theirs in self.table.items():
            for path, nodes, side in ((ours, self.port, "port"), (theirs, self.reference, "reference")):
                if path is not None and path not in nodes:
                    near = difflib.get_close_matches(path, nodes, n=3, cutoff=0.4)
                    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
                    raise CaseError(f"modules names {path!r}, and the {side} calls no module of that path{hint}")


def uncounted(nodes: Sequence[Node], left: Sequence[Node]) -> list[Node]:
    """The nodes, those of them that are left as if the number of their calls did not count among them."""
    return [replace(node, calls=0) if node in left else node for node in nodes]


def port_nodes(model: nnx.Module, kinds: Mapping[CallId, str], rules: Sequence[WeightRule]) -> list[Node]:
    """The port's called modules; `kinds` has the class of each call, in order."""
    plan, _ = make_plan(model, tuple(rules))
    holders = [(leaf.path, key) for group in plan for leaf in group.leaves for key in group.keys]
    return _nodes(kinds, holders)


def stacked_layers(
    model: nnx.Module, kinds: Mapping[CallId, str], rules: Sequence[WeightRule], reference: Sequence[Node]
) -> dict[str, tuple[str, ...]]:
    """By path of a called module of the port whose variables are stacked, those of the layers in the reference: as a
    rule names them, or those that hold the same keys, where rules name modules inside alone."""
    plan, _ = make_plan(model, tuple(rules))
    counts = {group.by: group.transform.counts for group in plan if isinstance(group.transform, Stack)}
    found: dict[str, tuple[str, ...]] = {}
    for path in dict.fromkeys(call.path for call in kinds):
        for rule in rules:
            if isinstance(rule, Rename) and rule.apply(path) is not None:
                break
            if isinstance(rule, Stacked) and rule in counts and (there := rule.apply(path, counts[rule])):
                found[path] = there
                break
        else:
            if counts and (there := _layers_of_weights(path, plan, reference)):
                found[path] = there
    return found


def _layers_of_weights(path: str, plan: Sequence[Group], reference: Sequence[Node]) -> tuple[str, ...]:
    """The reference's modules that hold the first layer's keys, the second one's, and so on; the outermost ones."""
    inside = [group for group in plan if any(_is_below(leaf.path, path) for leaf in group.leaves)]
    lengths = {len(group.keys) if isinstance(group.transform, Stack) else 0 for group in inside}
    if len(lengths) != 1:
        return ()
    by_keys: dict[frozenset[str], str] = {}
    for node in sorted(reference, key=lambda node: _depth(node.path)):
        by_keys.setdefault(node.keys, node.path)
    layers = [frozenset(keys) for keys in zip(*(group.keys for group in inside), strict=True)]
    there = tuple(by_keys[keys] for keys in layers if keys in by_keys)
    return there if len(there) == len(layers) else ()


def reference_nodes(kinds: Mapping[CallId, str], keys: Sequence[str], carried: frozenset[str]) -> list[Node]:
    """The reference's called modules; of the keys of its `state_dict`, those that a port holds."""
    return _nodes(kinds, [(key, key) for key in keys if key in carried])


def _nodes(kinds: Mapping[CallId, str], holders: Sequence[tuple[str, str]]) -> list[Node]:
    kind = {call.path: name for call, name in kinds.items()}
    return [
        Node(path, kind[path], calls, frozenset(key for holder, key in holders if _is_below(holder, path)))
        for path, calls in counts(iter(kinds)).items()
    ]


def _aligned(ours: Sequence[Node], theirs: Sequence[Node]) -> Iterator[tuple[Node, Node]]:
    """The pairing in order that agrees best in number of calls, kind and name."""
    best: dict[tuple[int, int], tuple[float, list[tuple[Node, Node]]]] = {}

    def solve(i: int, j: int) -> tuple[float, list[tuple[Node, Node]]]:
        if i == len(ours) or j == len(theirs):
            return 0.0, []
        if (i, j) not in best:
            options = [solve(i + 1, j), solve(i, j + 1)]
            if _may_match(ours[i], theirs[j]):
                score, pairs = solve(i + 1, j + 1)
                gain = 1 + 2 * (_kind(ours[i].kind) == _kind(theirs[j].kind)) + (ours[i].name == theirs[j].name)
                options.insert(0, (score + gain, [(ours[i], theirs[j]), *pairs]))
            best[i, j] = max(options, key=lambda option: option[0])
        return best[i, j]

    yield from solve(0, 0)[1]


def _may_match(a: Node, b: Node) -> bool:
    return a.calls == b.calls


def _hold_others(a: Node, b: Node) -> bool:
    """Whether each holds weights, and none that the other does."""
    return bool(a.keys) and bool(b.keys) and a.keys.isdisjoint(b.keys)


def _kind(name: str) -> str:
    """What a class is, by its name: `nnx.Conv` is what `torch.nn.Conv2d` is."""
    kind = re.sub(r"[^a-z]", "", re.sub(r"\d[dD]$", "", name).lower())
    return "embedding" if kind == "embed" else kind


def _without_layers(path: str) -> str:
    """`nnx.Sequential` keeps its modules under `layers`; PyTorch's numbers them right below."""
    return re.sub(r"(^|\.)layers\.(?=\d)", r"\1", path)


def _depth(path: str) -> int:
    return path.count(".") + 1 if path else 0


def _above(path: str) -> Iterator[str]:
    """The paths around this one, nearest first."""
    while path:
        path = path.rpartition(".")[0]
        yield path


def _is_below(holder: str, path: str) -> bool:
    return not path or holder.startswith(f"{path}.")
