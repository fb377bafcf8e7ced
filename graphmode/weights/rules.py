"""Declarative rules from `state_dict` keys to NNX paths, where the names on the two sides differ.

A pattern is a dotted name in which `{field}` stands for one component: `"encoder.layer.{i}.output"`. A key names a
tensor of the `state_dict`, a path names a variable of the module (`"blocks.0.conv.kernel"`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache

from .transforms import LINEAR, GruBiases, SplitGates, SumBiases, Transform

METHODS = ("to_model", "to_reference", "gradient_to_reference")  # of a `Transform`


@dataclass(frozen=True)
class Rule:
    """These keys hold these variables.

    Attributes:
      keys: one pattern, or several where several tensors make one variable.
      paths: one pattern, or several where one tensor is split over several variables.
      transform: between their layouts; None for the one known from the module's type (one key and one path only).
    """

    keys: str | tuple[str, ...]
    paths: str | tuple[str, ...]
    transform: Transform | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", (self.keys,) if isinstance(self.keys, str) else tuple(self.keys))
        object.__setattr__(self, "paths", (self.paths,) if isinstance(self.paths, str) else tuple(self.paths))
        if self.transform is None and (len(self.keys) != 1 or len(self.paths) != 1):
            raise ValueError(
                f"transform is None in a Rule of {len(self.keys)} keys and {len(self.paths)} paths; say how they "
                "combine, with a transform of graphmode.weights"
            )
        lacking = [name for name in METHODS if not callable(getattr(self.transform, name, None))]
        if self.transform is not None and lacking:
            raise TypeError(
                f"transform is {self.transform!r}, which has no method {', '.join(lacking)}; give one of "
                f"graphmode.weights, or an object with {', '.join(METHODS)} (arrays of the keys to those of the paths, "
                "back, and gradients back)"
            )
        _check_fields(*self.keys, *self.paths)
        known = _fields(self.paths[0])
        for pattern in (*self.keys, *self.paths[1:]):
            if unknown := _fields(pattern) - known:
                raise ValueError(
                    f"{pattern!r} has the fields {sorted(unknown)}, which paths[0]={self.paths[0]!r} lacks"
                )


@dataclass(frozen=True)
class Rename:
    """A subtree that has another name: `Rename("bert.encoder.layer.{i}", "layers.{i}")`.

    Attributes:
      key: prefix of keys; empty for the root.
      path: prefix of paths, in torch's spelling; empty for the root.
    """

    key: str
    path: str

    def __post_init__(self) -> None:
        _check_components(self)
        _check_fields(self.key, self.path)
        if unknown := _fields(self.key) - _fields(self.path):
            raise ValueError(f"key has the fields {sorted(unknown)} in {self.key!r}, which path {self.path!r} lacks")

    def apply(self, name: str) -> str | None:
        """The key of a path with this prefix, or None."""
        match = _compiled(self.path, prefix=True).fullmatch(name)
        if match is None:
            return None
        fields = match.groupdict()
        rest = fields.pop("_rest")
        return ".".join(part for part in (_fill(self.key, fields), rest) if part)


@dataclass(frozen=True)
class Stacked:
    """Equal layers that the port holds as one: `Stacked("encoder.layer.{i}", "layers")`.

    Each variable below the path has an axis of layers in front, as what `nnx.scan` runs over has it, made by `nnx.vmap`
    or `gm.stack_layers`. Its slices stand under as many keys, numbered from 0. Several fields are several axes, in the
    order of the key: `Stacked("layers.{i}.experts.{e}", "layers.experts")`.

    Attributes:
      key: prefix of keys, with a field for each such axis.
      path: prefix of paths, in torch's spelling; empty for the root.
    """

    key: str
    path: str

    def __post_init__(self) -> None:
        _check_components(self)
        _check_fields(self.key, self.path)
        if not self.fields:
            raise ValueError(f"{self!r} has no field in key that path lacks; write {{i}} for the number of a layer")

    @property
    def fields(self) -> tuple[str, ...]:
        """Those that number layers, in their order."""
        named = dict.fromkeys(re.findall(r"\{(\w+)\}", self.key))
        return tuple(field for field in named if field not in _fields(self.path))

    def apply(self, name: str, counts: Sequence[int]) -> tuple[str, ...] | None:
        """The keys of a path with this prefix, of so many layers, the last field the fastest; or None."""
        match = _compiled(self.path, prefix=True).fullmatch(name)
        if match is None:
            return None
        fields = match.groupdict()
        rest = fields.pop("_rest")
        numbers = itertools.product(*map(range, counts))
        filled = ({**fields, **dict(zip(self.fields, map(str, each), strict=True))} for each in numbers)
        return tuple(".".join(part for part in (_fill(self.key, each), rest) if part) for each in filled)

    def makes(self, key: str, name: str) -> bool:
        """Whether this is a key of that path, whatever the number of layers."""
        ours, theirs = (
            _compiled(self.path, prefix=True).fullmatch(name),
            _compiled(self.key, prefix=True).fullmatch(key),
        )
        if ours is None or theirs is None:
            return False
        shared = ours.groupdict().keys() & theirs.groupdict().keys()
        return all(ours[field] == theirs[field] for field in shared)


@dataclass(frozen=True)
class Drop:
    """Keys that the port does not hold, and why: `Drop("*.position_ids", "computed")`. `to_state_dict` leaves them out.

    Attributes:
      key: a key, with shell wildcards.
      why: for the reader.
    """

    key: str
    why: str

    def matches(self, key: str) -> bool:
        return fnmatchcase(key, self.key)


@dataclass(frozen=True)
class Tied:
    """A key whose tensor is another key's: it must hold the same bits, and `to_state_dict` writes it again."""

    key: str
    same_as: str


WeightRule = Rule | Rename | Stacked | Drop | Tied


def lstm_cell(key: str, path: str, *, suffix: str = "_l0", split: bool = False) -> tuple[Rule, ...]:
    """The rules that carry a layer of `torch.nn.LSTM` (or `LSTMCell`, with `suffix=""`) into a Flax cell.

    Args:
      key: prefix of the LSTM's keys.
      path: prefix of the cell's paths.
      suffix: of the keys, `"_l0"`, `"_l0_reverse"`, or empty for `torch.nn.LSTMCell`.
      split: True for `nnx.LSTMCell`, which has one layer a gate; False for `nnx.OptimizedLSTMCell`.

    The two biases become one: see `SumBiases` for what that means in training.
    """
    gates = "ifgo"
    if split:
        inputs = _joined(path, *(f"i{g}_.kernel" if g == "f" else f"i{g}.kernel" for g in gates))
        hidden = _joined(path, *(f"h{g}.kernel" for g in gates))
        biases = _joined(path, *(f"h{g}.bias" for g in gates))
    else:
        inputs, hidden, biases = (_joined(path, n) for n in ("dense_i.kernel", "dense_h.kernel", "dense_h.bias"))
    weights = SplitGates(len(inputs), LINEAR)
    return (
        Rule(_joined(key, f"weight_ih{suffix}"), inputs, weights),
        Rule(_joined(key, f"weight_hh{suffix}"), hidden, weights),
        Rule(_joined(key, f"bias_ih{suffix}", f"bias_hh{suffix}"), biases, SumBiases(len(biases))),
    )


def gru_cell(key: str, path: str, *, suffix: str = "_l0") -> tuple[Rule, ...]:
    """The rules that carry a layer of `torch.nn.GRU` (or `GRUCell`, with `suffix=""`) into a `nnx.GRUCell`.

    That cell has no bias on the hidden side: see `GruBiases` for what it cannot hold.
    """
    return (
        Rule(_joined(key, f"weight_ih{suffix}"), _joined(path, "dense_i.kernel"), LINEAR),
        Rule(_joined(key, f"weight_hh{suffix}"), _joined(path, "dense_h.kernel"), LINEAR),
        Rule(_joined(key, f"bias_ih{suffix}", f"bias_hh{suffix}"), _joined(path, "dense_i.bias"), GruBiases()),
    )


def groups(rule: Rule, names: Mapping[str, object]) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Each `(keys, paths)` for which the rule's first path pattern matches one of `names`, fields filled in."""
    first = _compiled(rule.paths[0])
    for name in names:
        if match := first.fullmatch(name):
            fields = match.groupdict()
            yield tuple(_fill(k, fields) for k in rule.keys), tuple(_fill(p, fields) for p in rule.paths)


@cache
def _compiled(pattern: str, prefix: bool = False) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", pattern)
    seen: set[str] = set()
    expression = ""
    for index, part in enumerate(parts):
        if index % 2 == 0:
            expression += re.escape(part)
        else:
            expression += f"(?P={part})" if part in seen else f"(?P<{part}>[^.]+)"
            seen.add(part)
    if prefix:
        expression += r"(?:\.|$)(?P<_rest>.*)" if pattern else r"(?P<_rest>.*)"
    return re.compile(expression)


def _joined(prefix: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{prefix}.{name}" if prefix else name for name in names)


def _fields(pattern: str) -> set[str]:
    return set(re.findall(r"\{(\w+)\}", pattern))


def _check_components(rule: Rename | Stacked) -> None:
    whole = [re.sub(r"\.{2,}", ".", side).strip(".") for side in (rule.key, rule.path)]
    if whole != [rule.key, rule.path]:
        raise ValueError(
            f"{rule!r} has a dot with no name beside it; whole components are replaced: write "
            f"{type(rule).__name__}({whole[0]!r}, {whole[1]!r})"
        )


def _check_fields(*patterns: str) -> None:
    for pattern in patterns:
        if odd := re.search(r"\{[^{}]*\}?|\}", re.sub(r"\{[^\W\d]\w*\}", "", pattern)):
            raise ValueError(f"{pattern!r} has {odd.group()!r}, which is no field: write {{name}} for one component")


def _fill(pattern: str, fields: Mapping[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: fields[match.group(1)], pattern)
