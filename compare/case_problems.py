"""What is wrong with the fields of a `Case`: one line for each, with what came, what was wanted and what to do."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeVar

from flax import nnx

from graphmode.weights import Drop, Rename, Rule, Stacked, Tied

from .nearest import nearest

if TYPE_CHECKING:
    from .case import Case

C = TypeVar("C")

_MAPPINGS = {
    "edge_inputs": '{"zeros": a callable like inputs}',
    "interpret": '{"an edge input": a callable that gives {label: reading}}',
    "expected": '{"torch.trace": "records one branch"}',
    "patience": '{"torch.compile": 2.0}',
    "modules": 'the port\'s paths to the reference\'s, {"encoder.cell": "rnn", "act": None}',
}
_OPTIMIZER = "(lambda parameters: torch.optim.SGD(parameters, lr=0.01), optax.sgd(0.01))"
_TOLERANCES = ("tolerance", "atol", "rtol", "tol")


def names_unknown_fields(cls: type[C]) -> type[C]:
    """For a dataclass: an argument that is none of its fields is told with the nearest that is."""
    make = cls.__init__
    known = [each.name for each in dataclasses.fields(cls)]  # type: ignore[arg-type]

    @functools.wraps(make)
    def checked(self: C, *args: Any, **given: Any) -> None:
        if unknown := [name for name in given if name not in known]:
            told = "; ".join(_unknown(cls.__name__, name, known) for name in unknown)
            raise TypeError(f"{told}; its fields are {', '.join(known)}")
        make(self, *args, **given)

    cls.__init__ = checked  # type: ignore[assignment]
    return cls


def _unknown(what: str, name: str, known: Sequence[str]) -> str:
    if nearest(name, _TOLERANCES, cutoff=0.8):
        return (
            f"{what} has no field {name!r}: no tolerance is set by hand, since equal is judged in float64, and precise "
            "against PyTorch's own error"
        )
    near = nearest(name, known)
    return f"{what} has no field {name!r}" + (f" (did you mean {near[0]!r}?)" if near else "")


def problems_of(case: Case) -> Iterator[str]:
    """One line for each field that is wrong; none where all are right."""
    not_mappings = [label for label in _MAPPINGS if not isinstance(getattr(case, label), Mapping)]
    for label in not_mappings:
        yield f"{label} is {type(getattr(case, label)).__name__}; give a mapping, {_MAPPINGS[label]}"
    if not not_mappings:
        yield from _of_values(case)


def _of_values(case: Case) -> Iterator[str]:
    from .case import MODES

    if not isinstance(case.name, str) or not case.name:
        yield f"name is {case.name!r}; give a non-empty string"
    yield from _of_sides(case)
    for label, make in (("inputs", case.inputs), ("check_inputs", case.check_inputs or case.inputs)):
        if not callable(make):
            yield f"{label} is {type(make).__name__}; give a callable that takes a numpy.random.Generator"
    for name, make in case.edge_inputs.items():
        if not callable(make):
            yield f"edge_inputs[{name!r}] is {type(make).__name__}; give a callable like inputs"
    yield from _of_weights(case.weights)
    if case.pretrained is not None and not callable(case.pretrained):
        yield f"pretrained is {type(case.pretrained).__name__}; give a callable that gives a state_dict"
    if case.sweep is not None and not callable(case.sweep):
        yield f"sweep is {type(case.sweep).__name__}; give a callable that takes a generator and a batch size"
    for name in case.interpret:
        if name not in case.edge_inputs:
            edges = ", ".join(case.edge_inputs) or "there are none"
            yield f"interpret names {name!r}, which is none of edge_inputs ({edges})"
    yield from _of_words("tags", case.tags)
    yield from _of_words("modes", case.modes, MODES)
    if case.loss is not None and not (
        isinstance(case.loss, tuple) and len(case.loss) == 2 and all(map(callable, case.loss))
    ):
        yield "loss must be a pair: (a function of the torch outputs, its jnp twin)"
    if case.optimizer is not None and not _is_optimizer(case.optimizer):
        yield (
            f"optimizer is {case.optimizer!r}; give a pair, (a function of the parameters that gives a "
            "torch.optim.Optimizer, an optax transformation): " + _OPTIMIZER
        )
    if isinstance(case.modes, tuple | list) and "train_step" in case.modes and case.optimizer is None:
        yield f"modes has train_step, which needs optimizer={_OPTIMIZER}; give one, or leave train_step out"
    yield from _of_rows(case)
    for ours, theirs in case.modules.items():
        if not isinstance(ours, str) or not isinstance(theirs, str | None):
            yield f"modules maps {ours!r} to {theirs!r}; give paths of modules, {_MAPPINGS['modules']}"
    if case.adversarial is not None:
        from .parity.adversarial.inputs import KINDS

        for kind in [case.adversarial] if isinstance(case.adversarial, str) else case.adversarial:
            if isinstance(case.adversarial, str) or kind not in KINDS:
                yield f"adversarial names {kind!r}; give a tuple of these: {', '.join(KINDS)}"


def _of_sides(case: Case) -> Iterator[str]:
    for label, variants in (("reference", case.reference), ("model", case.model)):
        if isinstance(variants, Mapping):
            if not variants:
                yield f"{label} is an empty mapping; name at least one variant"
            for name, make in variants.items():
                if not isinstance(name, str) or not callable(make):
                    yield f"{label} must map variant names to callables"
                    break
                yield from _of_builder(label, f"{label}[{name!r}]", make)
        elif not callable(variants):
            yield f"{label} is {type(variants).__name__}; give a callable that builds it, or a mapping of them"
        else:
            yield from _of_builder(label, label, variants)


def _of_builder(side: str, label: str, make: Callable[..., Any]) -> Iterator[str]:
    """A module in place of what builds it, or one of the other framework."""
    torch_module = getattr(getattr(sys.modules.get("torch"), "nn", None), "Module", ())
    kinds = {"reference": ("a torch.nn.Module", torch_module), "model": ("an nnx.Module", nnx.Module)}
    other = "model" if side == "reference" else "reference"
    made = make if isinstance(make, type) else type(make)
    came = make.__name__ if isinstance(make, type) else f"an instance of {made.__name__}"
    if issubclass(made, kinds[other][1]):
        yield f"{label} is {came}, {kinds[other][0]}, and {kinds[side][0]} was wanted; are reference and model swapped?"
    elif not isinstance(make, type) and issubclass(made, kinds[side][1]):
        how = (
            f"lambda: {made.__name__}(...)" if side == "reference" else f"lambda rngs: {made.__name__}(..., rngs=rngs)"
        )
        yield f"{label} is {came}; give the class, or a callable that builds it: {how}"


def _of_weights(rules: object) -> Iterator[str]:
    wanted = 'such as Rename("bert.encoder", "encoder"), Rule, Stacked, Drop or Tied of graphmode.weights'
    kinds = (Rule, Rename, Stacked, Drop, Tied)
    if isinstance(rules, kinds):
        yield f"weights is {_a(rules)} by itself; give a list of rules: [{rules!r}]"
    elif isinstance(rules, str) or not isinstance(rules, Sequence):
        shown = f", {rules!r}" if isinstance(rules, str) else ""
        yield f"weights is {_a(rules)}{shown}; give a list of rules, {wanted}"
    else:
        for number, rule in enumerate(rules):
            if not isinstance(rule, kinds):
                yield f"weights[{number}] is {_a(rule)}, {rule!r}; give a rule, {wanted}"


def _of_words(label: str, words: object, known: Iterable[str] = ()) -> Iterator[str]:
    """A field that is a tuple of strings."""
    if isinstance(words, str):
        yield f"{label} is a str; give a tuple: ({words!r},)"
    elif not isinstance(words, Sequence):
        yield f"{label} is {_a(words)}; give a tuple of strings"
    else:
        known = tuple(known)
        for word in words:
            if known and word not in known:
                yield f"{label} names {word!r}; choose from {', '.join(known)}"
            elif not isinstance(word, str):
                yield f"{label} has {word!r}; give strings"


def _of_rows(case: Case) -> Iterator[str]:
    from .case import MODES
    from .speed.rows import ROW_NAMES

    for label, keys in (("expected", case.expected), ("patience", case.patience)):
        for key in keys:
            if not isinstance(key, str):
                yield f"{label} names {key!r}; give rows, {_MAPPINGS[label]}"
                continue
            variant, _, row = key.rpartition("/")
            known = (*case.references, *case.models, *(MODES if label == "patience" else ()))
            if variant and variant not in known:
                yield f"{label} names the variant {variant!r} in {key!r}, which the case does not have"
            if not any(fnmatchcase(name, row) for name in ROW_NAMES):
                near = nearest(row, ROW_NAMES, cutoff=0.75)
                hint = f"did you mean {near[0]!r}?" if near else f"the rows are {', '.join(ROW_NAMES)}"
                yield f"{label} names {row!r}, which is no row; {hint}"
    for key, reason in case.expected.items():
        if not isinstance(reason, str):
            yield f"expected[{key!r}] is {reason!r}; give the reason, a string"
    for key, seconds in case.patience.items():
        if not isinstance(seconds, int | float) or seconds <= 0:
            yield f"patience[{key!r}] is {seconds!r}; give seconds above 0"


def _a(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _is_optimizer(pair: Any) -> bool:
    if not (isinstance(pair, tuple) and len(pair) == 2 and callable(pair[0])):
        return False
    return all(callable(getattr(pair[1], name, None)) for name in ("init", "update"))
