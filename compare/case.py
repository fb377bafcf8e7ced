"""`Case`: an eager PyTorch reference bound to its Flax port, with everything the harness needs to compare them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from graphmode.weights import WeightRule

from .case_problems import names_unknown_fields, problems_of

if TYPE_CHECKING:
    import optax
    import torch
    from flax import nnx

Mode = Literal["inference", "forward_backward", "train_step"]
Inputs = tuple[Any, ...] | dict[str, Any]
T = TypeVar("T")

DEFAULT_VARIANT = "default"
MODES: tuple[Mode, ...] = ("inference", "forward_backward", "train_step")
TRAIN_STEPS = 3  # that are judged: momentum and bias correction show from the second on


class CaseError(ValueError):
    """A case that cannot be compared as it is written: the message names the field and what to do."""


def identity(tree: T) -> T:
    return tree


@names_unknown_fields
@dataclass(frozen=True, kw_only=True)
class Case:
    """One model, twice: the eager PyTorch original and its Flax port.

    Attributes:
      name: what users type to select the case.
      summary: one line, the graph-mode technique that it shows.
      reference: gives the eager `torch.nn.Module`; or a mapping from variant name to such callables, the first of
        which is the judge.
      model: takes `nnx.Rngs`, gives the `nnx.Module`; or a mapping of variants, each checked and timed.
      inputs: takes a `numpy.random.Generator`, gives a tuple of positional arguments or a dict of keyword arguments:
        pytrees of numpy arrays in the reference's layout. Floating arrays are cast to the dtype of the run.
      check_inputs: a callable like `inputs` that gives smaller ones, for the verdicts on a model whose `inputs` take
        minutes in float64. What is timed is `inputs`, and each row must be precise on those too.
      edge_inputs: further inputs by name that must agree too, each a callable like `inputs`.
      weights: rules for `graphmode.weights.load`; empty means by name.
      to_model: takes what `inputs` gives (the whole tuple or dict), gives the same in the port's layout. It is traced:
        write it with `jnp` or array methods. `channels_last` is the common one.
      to_reference: takes the port's outputs, gives them in the reference's layout and structure. Gradients follow
        both by the chain rule. `channels_first` is the common one.
      loss: `(torch outputs) -> scalar` and its `jnp` twin; the default is a random cotangent for each output, which
        is the loss that sums outputs times cotangents.
      optimizer: for the mode `train_step`: `(parameters) -> torch.optim.Optimizer`, which takes the list of those that
        learn, and an optax transformation that steps alike:
        `(lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9), optax.sgd(0.01, momentum=0.9))`.
      expected: rows known to be wrong or unsupported, with the reason: `{"torch.trace": "records one branch"}`. The key
        `"variant/row"` speaks of one variant only, and `"jax.*"` of all rows that match. Such a row is tried all the
        same.
      patience: seconds for which a row is tried in place of the run's usual ones, by the same keys, or in one mode
        only: few where it takes too long anyhow, more where compilation does: `{"torch.compile": 2.0}`,
        `{"forward_backward/jax.*": 90.0}`. On a machine that compiles slowly they are up to four times as many; a run
        that names its own (`--budget`) has those.
      modes: the modes that are compared; `("inference",)` for a model that has no gradient. The default is inference
        and forward_backward, and train_step where there is an optimizer; it is asked for the random inputs alone.
        A case with an optimizer that leaves train_step out has it where a run names it (`--mode train_step`).
      interpret: by the name of an edge input, what the outputs mean to a person, as `{label: reading}`; takes the
        outputs as numpy arrays in the reference's structure. That input is run in inference alone.
      sweep: takes a generator and a batch size, gives inputs of that size, to be timed at several
        (`graphmode bench CASE --sweep 1,8,64`).
      modules: corrections to which module of the port stands for which of the reference, where a look inside matches
        them wrongly: paths of the port to paths of the reference, or to None: `{"encoder.cell": "rnn", "act": None}`.
      adversarial: which inputs of its own the check derives from `inputs`, of `compare.parity.adversarial.KINDS`
        ("zeros", "ties", "0.001 as large", "1e-06 as large", "1e-09 as large", "1000 as large", "few values", "the
        least integers", "the largest integers", "few peaks", "a large mean", "all positive", "all negative", "masks of
        zeros", "masks of ones", "masks of both values", "masks with holes", "a batch of one"); all that the reference
        answers where it is None, and the model is not large, and none for `()`. They are asked where nothing differs on
        the case's.
      pretrained: gives the reference's weights as a `state_dict`, from what is installed; where that raises ImportError
        with a message that says what to install, the case is checked with random weights, and its rows are unavailable.
      tags: free words for selection (`graphmode list --tag vision`).

    Raises:
      CaseError: where a field has the wrong type, or names a row, variant or mode that does not exist.
      TypeError: for an argument that is no field.
    """

    name: str
    summary: str
    reference: Callable[[], torch.nn.Module] | Mapping[str, Callable[[], torch.nn.Module]]
    model: Callable[[nnx.Rngs], nnx.Module] | Mapping[str, Callable[[nnx.Rngs], nnx.Module]]
    inputs: Callable[[np.random.Generator], Inputs]
    check_inputs: Callable[[np.random.Generator], Inputs] | None = None
    edge_inputs: Mapping[str, Callable[[np.random.Generator], Inputs]] = field(default_factory=dict)
    weights: Sequence[WeightRule] = ()
    to_model: Callable[[Any], Any] = identity
    to_reference: Callable[[Any], Any] = identity
    loss: tuple[Callable[[Any], Any], Callable[[Any], Any]] | None = None
    expected: Mapping[str, str] = field(default_factory=dict)
    patience: Mapping[str, float] = field(default_factory=dict)
    optimizer: (
        tuple[Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer], optax.GradientTransformation] | None
    ) = None
    modes: tuple[Mode, ...] = ()
    interpret: Mapping[str, Callable[[Any], Mapping[str, str]]] = field(default_factory=dict)
    sweep: Callable[[np.random.Generator, int], Inputs] | None = None
    modules: Mapping[str, str | None] = field(default_factory=dict)
    adversarial: tuple[str, ...] | None = None
    pretrained: Callable[[], Mapping[str, torch.Tensor]] | None = None
    tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.modes == ():
            object.__setattr__(self, "modes", MODES if self.optimizer is not None else MODES[:2])
        problems = list(problems_of(self))
        if problems:
            raise CaseError(f"case {self.name!r}: " + "; ".join(problems))

    @property
    def references(self) -> Mapping[str, Callable[[], torch.nn.Module]]:
        """The reference's variants by name, the judge first."""
        return self.reference if isinstance(self.reference, Mapping) else {DEFAULT_VARIANT: self.reference}

    @property
    def models(self) -> Mapping[str, Callable[[nnx.Rngs], nnx.Module]]:
        """The port's variants by name."""
        return self.model if isinstance(self.model, Mapping) else {DEFAULT_VARIANT: self.model}

    def training(self, wanted: Sequence[str]) -> Case:
        """The case with train_step among its modes where that is wanted by name and it has an optimizer."""
        if "train_step" in wanted and self.optimizer is not None and "train_step" not in self.modes:
            return dataclasses.replace(self, modes=(*self.modes, "train_step"))
        return self

    def timed_modes(self, wanted: Sequence[str]) -> tuple[Mode, ...]:
        """Of its modes, those that a run times: the wanted ones, or all where none is named."""
        return tuple(mode for mode in self.modes if not wanted or mode in wanted)

    def expectation(self, row: str, variant: str) -> str | None:
        """The reason why this row is known not to be `ok`, or None."""
        return _said(self.expected, row, f"{variant}/")

    def patience_with(self, row: str, variant: str, mode: str) -> float | None:
        """Seconds for which this row is tried, or None for the budget of the run."""
        return _said(self.patience, row, f"{variant}/", f"{mode}/")


def _said(of: Mapping[str, T], row: str, *prefixes: str) -> T | None:
    """What is said of a row: with one of the prefixes first, then without; by its name first, then by a pattern."""
    for prefix in (*prefixes, ""):
        patterns = (key for key in of if key.startswith(prefix) and fnmatchcase(row, key.removeprefix(prefix)))
        for key in (f"{prefix}{row}", *patterns):
            if key in of:
                return of[key]
    return None


def channels_last(tree: T) -> T:
    """Every array of rank 4 from `[B, C, H, W]` to `[B, H, W, C]`; others as they are. For `Case.to_model`."""
    return jtu.tree_map(lambda x: jnp.moveaxis(x, 1, -1) if np.ndim(x) == 4 else x, tree)


def channels_first(tree: T) -> T:
    """Every array of rank 4 from `[B, H, W, C]` to `[B, C, H, W]`; others as they are. For `Case.to_reference`."""
    return jtu.tree_map(lambda x: jnp.moveaxis(x, -1, 1) if np.ndim(x) == 4 else x, tree)
