"""`lockstep`: steps of training on both sides, each from the reference's state, beside the same steps run freely."""

from __future__ import annotations

import time
from collections import Counter

import numpy as np

from graphmode.weights import Drop

from ...case import Case, CaseError
from ...draw import check_inputs
from ...dtypes import HALF_ULP, check_dtype
from ...errors import describe_with_line
from ...jax_side import PortSide
from ...quiet import quiet
from ...report.records import FreeStep, Lockstep, StepFinding
from ..judge import Judge
from ..yardstick import difference
from .masks import PortMasks
from .optimizer_state import COUNT, StateBook
from .port_steps import PortTrainer
from .reference_steps import ReferenceTrainer
from .steps import KINDS, Differences, Step, compared, finding, gradients_off

LISTED = 20  # findings of one step


def lockstep(
    case: Case,
    *,
    steps: int = 10,
    seed: int = 0,
    variant: str | None = None,
    dropout: bool = False,
    dtype: str = "float32",
) -> Lockstep:
    """Trains both sides of a case side by side in float64, on the same batches, and finds where they part.

    Before each step the port gets the reference's parameters, buffers and optimizer state, so that each step shows
    only what that step adds. Compared are, in the order in which a step makes them: outputs, buffers, gradients of
    parameters and inputs, the optimizer's state, the update of each parameter, and the parameters. Beside it the same
    steps are run freely, from the first state alone, and so is the reference from parameters moved by half an ulp: a
    port that parts no faster than that parts by rounding.

    The optimizer's state is compared where it is optax's own (adam, adamw, sgd with momentum, rmsprop, adagrad,
    adadelta and chains of them) or `graphmode.optim`'s; another one is the port's own from step to step.

    Args:
      case: with an `optimizer`. Each step's batch is a fresh draw of `check_inputs`, or of `inputs`.
      steps: how many, 1 at least.
      seed: of weights, batches, cotangents and masks; it repeats a run.
      variant: of the port; the first where None.
      dropout: whether the reference's dropout modules drop. Their masks are given to the port's (`graphmode.nn`'s and
        `nnx.Dropout`), matched by the case's `modules`, by name, then by order. Otherwise dropout is off.
      dtype: that the port is meant for: what it casts to that by itself stays in float64 here.

    Raises:
      CaseError: where the case has no optimizer, or cannot be run; with dropout, where the modules of both sides do not
        match or the reference draws random numbers outside of them.
      DtypeError: where there is no such dtype.
      ValueError: for a number of steps below 1, or a variant that the case has not.

    Example:
      >>> from graphmode.models import zoo
      >>> lockstep(zoo.load("weighted_product"), steps=2).passed
      True
    """
    if case.optimizer is None:
        raise CaseError(f"case {case.name!r} has no optimizer, and lockstep trains: give it a pair")
    if not isinstance(steps, int) or steps < 1:
        raise ValueError(f"steps is {steps!r}; give a whole number from 1 on")
    name = next(iter(case.models)) if variant is None else variant
    if name not in case.models:
        raise ValueError(f"variant is {variant!r}; case {case.name!r} has {', '.join(case.models)}")
    check_dtype(dtype, "cpu")
    with quiet():
        return _Run(case, steps, seed, name, dropout, dtype).result()


class _Run:
    def __init__(self, case: Case, steps: int, seed: int, variant: str, dropout: bool, dtype: str):
        self.case, self.steps, self.seed, self.variant, self.dropout = case, steps, seed, variant, dropout
        judge = Judge(case, seed=seed, dtype="float32", device="cpu")

        def trainer(amount: float = 0.0) -> ReferenceTrainer:
            made = ReferenceTrainer(judge.references[judge.name], case, dropout=dropout, seed=seed)
            if amount:
                made.side.move_parameters(amount, seed)
            return made

        # each steps once a step, so that what an optimizer counts somewhere is the same in all
        self.reference, self.moved, self.given = trainer(), trainer(), trainer()
        self.shaken = [trainer(HALF_ULP["float64"]), trainer(HALF_ULP["float32"])]
        side = PortSide(
            case,
            variant,
            judge.state_dict,
            dtype="float64",
            device="cpu",
            seed=seed,
            declared=dtype,
            asked=lambda: self.reference.side.asked,
        )
        self.book = StateBook(side, self.reference.optimizer)
        self.port = PortTrainer(side, self.book, PortMasks(case) if dropout else None)
        self.free = self.port.twin()
        self.findings: list[StepFinding] = []
        self.failed: Counter[str] = Counter()
        self.worst: dict[str, float] = {}
        self.curve: list[FreeStep] = []
        self.notes: list[str] = []

    def result(self) -> Lockstep:
        start = time.perf_counter()
        for number in range(self.steps):
            try:
                self._step(number)
            except CaseError:
                raise
            except Exception as error:
                raise CaseError(
                    f"case {self.case.name!r}: step {number + 1} of lockstep fails: {describe_with_line(error)}"
                ) from error
        return Lockstep(
            case=self.case.name,
            variant=self.variant,
            steps=self.steps,
            seed=self.seed,
            dropout=self.dropout,
            findings=self.findings,
            failed={kind: self.failed[kind] for kind in KINDS if self.failed[kind]},
            worst={k: self.worst[k] if np.isfinite(self.worst[k]) else None for k in KINDS if k in self.worst},
            curve=self.curve,
            notes=list(dict.fromkeys([*self.book.notes, *self.notes, *self.given.notes])),
            duration_s=time.perf_counter() - start,
        )

    def _step(self, number: int) -> None:
        inputs = check_inputs(self.case, self.seed, number)
        cotangents = self.reference.cotangents(inputs, number)
        if number:
            self.port.follow(self.reference.state_dict(), self.reference.slots())
        self.moved.follow(self.reference)
        self.moved.side.move_parameters(HALF_ULP["float64"], self.seed)
        moved = self.moved.step(inputs, cotangents, number)
        self.given.follow(self.reference)
        truth = self.reference.step(inputs, cotangents, number)
        masks = self.reference.masks
        if self.dropout and not number and not masks:
            self.notes.append("dropout=True, and the reference calls no dropout module")
        mine = self.port.step(inputs, cotangents, masks)
        self._judge(number + 1, mine, self._on_its_gradients(mine, truth), moved)
        free = self.free.step(inputs, cotangents, masks).parameters
        shaken = [one.step(inputs, cotangents, number).parameters for one in self.shaken]
        errors = [_parted(parameters, truth) for parameters in (free, *shaken)]
        self.curve.append(FreeStep(step=number + 1, port=errors[0], rounding=errors[1], rounding_float32=errors[2]))

    def _on_its_gradients(self, port: Step, truth: Step) -> Step:
        """The reference's step with its optimizer's part made of the port's gradients, if these are right.

        Adam's step has its full size however small a gradient is, so that it makes an error of the last digit of the
        largest gradient, which is none, to one of the first digit where a gradient is next to nothing.
        """
        port.observed = port.observed.renamed(truth.observed)
        off = gradients_off(port, truth)
        made = self.given.optimize(truth, {} if off else port.observed.parameter_gradients)
        return truth if off else made

    def _judge(self, number: int, port: Step, truth: Step, moved: Step) -> None:
        theirs = truth.observed.outputs
        if port.observed.outputs.keys() != theirs.keys():
            raise CaseError(
                f"case {self.case.name!r}: the reference's outputs are {', '.join(theirs)}, and the port's are "
                f"{', '.join(port.observed.outputs)}; give the same structure, or write to_reference"
            )
        if not all(np.isfinite(a).all() for a in theirs.values() if a.dtype.kind == "f"):
            self.notes.append(f"step {number}: the reference's own outputs are not finite")
        self._same_slots(port, truth, moved)
        found, lonely = compared(port, truth, moved, self._dropped)
        self.notes += lonely
        for (kind, _), off in found.items():
            self.worst[kind] = max(self.worst.get(kind, 0.0), off.error)
        wrong = {key: off for key, off in found.items() if not off.equal}
        self.failed.update(kind for kind, _ in wrong)
        self.findings += [finding(number, k, off, self._why(k, truth, wrong)) for k, off in wrong.items()][:LISTED]

    def _dropped(self, name: str) -> bool:
        return any(isinstance(rule, Drop) and rule.matches(name) for rule in self.case.weights)

    def _same_slots(self, port: Step, truth: Step, moved: Step) -> None:
        """Leaves of both optimizers' states what both have; what PyTorch has not begun to keep is zero."""
        if port.slots is None or truth.slots is None:
            truth.slots = port.slots = moved.slots = None
            return
        port.slots = self.book.settle(port.slots, truth.slots)
        for here, there, whose in ((port.slots, truth.slots, "port"), (truth.slots, port.slots, "reference")):
            self.notes += [
                f"the {whose}'s optimizer keeps {slot}, and the other side's does not"
                for slot in here.keys() - there - {COUNT}
            ]
        shared = [slot for slot in truth.slots if slot in port.slots]
        for slot in shared:
            for name, value in port.slots[slot].items():
                if name in truth.updates:
                    truth.slots[slot].setdefault(name, np.zeros_like(value))
        if COUNT in shared:  # one count of the port's may stand for all parameters
            of = truth.slots[COUNT]
            of.update(dict.fromkeys(truth.absent & of.keys(), np.asarray(max(map(float, of.values())))))
        for step in (port, truth, moved):
            step.slots = {slot: (step.slots or {}).get(slot, {}) for slot in shared}

    def _why(self, key: tuple[str, str], truth: Step, wrong: Differences) -> str:
        kind, name = key
        own = name.partition(" of ")[2] if kind == "optimizer_state" else name
        if kind in ("optimizer_state", "update") and own in truth.absent and ("parameter_gradient", own) not in wrong:
            return (
                "the reference has no gradient here in this step (None), and PyTorch leaves such a parameter as it is; "
                "the port steps it by a gradient of zero"
            )
        return ""


def _parted(parameters: dict[str, np.ndarray], truth: Step) -> float:
    """The largest relative error of a parameter."""
    pairs = [(parameters[name], wanted) for name, wanted in truth.parameters.items() if name in parameters]
    return max((difference(ours, wanted).error for ours, wanted in pairs), default=0.0)
