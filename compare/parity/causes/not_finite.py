"""What is not finite in the dtype that people run alone, by one operation of the port: the first that makes it.

In float64 that operation gives a number: of 1e-60, which float32 holds for zero, it takes the logarithm, or e**200 is
beyond float32's range.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ...report.records import Cause
from .graph import Graph, Operation, Run
from .limit import LateError, Limit, check
from .nan_gradient import SAFE, without_derivative
from .port_way import Step
from .values import as_array

if TYPE_CHECKING:
    from ...jax_side import PortSide
    from ..judge import Question

LONGEST_S = 20.0
MOST_LINES = 3
OVERFLOWS = "keep the numbers small: subtract the largest before exp, take log1p, expm1, logsumexp or a library's form"
VANISHES = (
    "keep it above zero before, by jnp.maximum(x, jnp.finfo(x.dtype).tiny), or stay with logarithms: "
    "jax.nn.log_softmax, jax.nn.log_sigmoid, jax.scipy.special.logsumexp; where jnp.where leaves it out afterwards, "
    "make its argument harmless before, as gm.where_safe does"
)


class NotFinite(NamedTuple):
    """The module of the port in which it arises, and what makes it."""

    module: str
    cause: Cause


class _Value(NamedTuple):
    """One that the port has in its dtype, the same in float64, and the operation that makes it."""

    ours: np.ndarray
    right: np.ndarray
    maker: int

    @property
    def lost(self) -> np.ndarray:
        return ~np.isfinite(self.ours) & np.isfinite(self.right)


def not_finite(port: PortSide, question: Question, deadline: float) -> list[NotFinite]:
    """By the operations that make it in the port: of the outputs, those on whose way it is made; where these are
    finite, those that have no finite derivative there, and one in float64. None where nothing can be seen of it.

    Args:
      port: in the dtype that people run.
      question: on which the port is not finite in that dtype alone.
      deadline: of `time.monotonic`.
    """
    with contextlib.suppress(LateError), np.errstate(all="ignore"):
        ran = _Ran(port, question, Limit(LONGEST_S, deadline))
        return ran.of_outputs() or (ran.of_gradients() if question.mode == "forward_backward" else [])
    return []


class _Ran:
    """The port's forward pass, in its own dtypes and in float64."""

    def __init__(self, port: PortSide, question: Question, limit: Limit):
        self.dtype, self.limit = port.dtype, limit
        self.steps: list[Step] = []
        self._exact: dict[int, tuple[Step, Run]] = {}  # by the numbers of the operations
        self._values: dict[int, _Value] = {}  # by the identity of the port's own
        graph = Graph(port, question)
        self._right_outputs = graph.evaluate(self._in_float64, opened=True)
        self._outputs = graph.evaluate(self._as_it_is, opened=True)

    def _in_float64(self, operation: Operation, given: list[Any], run: Run) -> list[Any]:
        check(self.limit)
        results = run(given)
        self._exact[operation.number] = Step(operation, given, results), run
        return results

    def _as_it_is(self, operation: Operation, given: list[Any], run: Run) -> list[Any]:
        check(self.limit)
        results = [_widened(x) for x in operation.as_it_is(given)]
        self.steps.append(Step(operation, given, results))
        for ours, exact in zip(results, self._right(operation), strict=False):
            if (found := _pair(ours, exact)) is not None:
                self._values[id(ours)] = _Value(*found, len(self.steps) - 1)
        return results

    def _right(self, operation: Operation, *, given: bool = False) -> list[Any]:
        """What it gives, or is given, in float64; nothing where it is not met there, as in a loop of fewer turns."""
        step, _ = self._exact.get(operation.number, (None, None))
        if step is None or step.operation.eqn is not operation.eqn:
            return []
        return step.given if given else step.results

    def of_outputs(self) -> list[NotFinite]:
        wrong = [x for x in self._outputs if id(x) in self._values and self._values[id(x)].lost.any()]
        first: dict[tuple[str, str], NotFinite] = {}
        for value in wrong:
            step, at = self._first(value)
            first.setdefault((step.operation.source, step.operation.eqn.primitive.name), self._told(step, at))
        return list(first.values())[:MOST_LINES]

    def _first(self, value: Any) -> tuple[Step, tuple[int, ...]]:
        """The operation that makes what is not finite of what is, and the place of an element of it."""
        places = self._values[id(value)].lost
        while True:
            check(self.limit)
            step = self.steps[self._values[id(value)].maker]
            before = [x for x in step.given if id(x) in self._values and self._values[id(x)].lost.any()]
            same = [x for x in before if np.shape(x) == places.shape and (self._values[id(x)].lost & places).any()]
            if not before:
                return step, tuple(int(i) for i in np.unravel_index(int(places.argmax()), places.shape))
            value = (same or before)[0]
            lost = self._values[id(value)].lost
            places = lost & places if same else lost

    def _told(self, step: Step, at: tuple[int, ...]) -> NotFinite:
        operation = step.operation
        result = next(x for x in step.results if id(x) in self._values and self._values[id(x)].lost.any())
        found = self._values[id(result)]
        says = f"gives {found.ours[at]:.4g} in {self.dtype} in {_place(operation)}{_of(step, found.ours.shape, at)}"
        says += f", where float64 has {found.right[at]:.4g}"
        vanished = self._vanished(step, found.ours.shape, at)
        if vanished:
            says += f": {vanished}"
        fix = OVERFLOWS if not vanished else VANISHES
        return NotFinite(operation.module, Cause(id="not-finite", says=says, fix=fix, residual=0.0))

    def _vanished(self, step: Step, shape: tuple[int, ...], at: tuple[int, ...]) -> str:
        """Which number became zero before, and by what."""
        for ours, right in zip(step.given, self._right(step.operation, given=True), strict=False):
            pair = _pair(ours, right)
            if pair is None or pair[0].shape not in (shape, ()):
                continue
            place = at if pair[0].ndim else ()
            if pair[0][place] == 0 != pair[1][place]:
                maker = self._values.get(id(ours))
                by = f", by {_place(self.steps[maker.maker].operation)}" if maker is not None else ""
                return f"{pair[1][place]:.4g} is 0 in {self.dtype}{by}"
        return ""

    def of_gradients(self) -> list[NotFinite]:
        found: dict[str, dict[tuple[str, str], Step]] = {}
        for step in self.steps:
            check(self.limit)
            if step.operation.has_rule or not self._right(step.operation) or not without_derivative(step):
                continue
            if not without_derivative(*self._exact[step.operation.number]):
                place = step.operation.source, step.operation.eqn.primitive.name
                found.setdefault(step.operation.module, {})[place] = step
        return [NotFinite(module, self._without(places)) for module, places in found.items()]

    def _without(self, found: dict[tuple[str, str], Step]) -> Cause:
        lines = ", ".join(_place(step.operation) for step in list(found.values())[:MOST_LINES])
        more = f" and {len(found) - MOST_LINES} more" if len(found) > MOST_LINES else ""
        known = dict.fromkeys(f"gm.{SAFE[name]}" for _, name in found if name in SAFE)
        ready = f", or {' or '.join(known)}" if known else ""
        return Cause(
            id="not-finite-gradient",
            says=f"has no finite derivative in {self.dtype} in {lines}{more}, and one in float64: what is given is "
            "0 in that dtype, or too large; jnp.where may leave out what it gives, and zero times its derivative "
            "is NaN",
            fix="make the argument harmless before, and not the result after: f(jnp.where(kept, x, 1.0)), as "
            f"gm.where_safe does{ready}",
            residual=0.0,
        )


def _place(operation: Operation) -> str:
    return f"{operation.eqn.primitive.name} at {operation.source or 'an unknown line'}"


def _of(step: Step, shape: tuple[int, ...], at: tuple[int, ...]) -> str:
    """The numbers that it is made of, where the operation works on single ones."""
    arrays = [x for x in map(as_array, step.given) if x.shape in (shape, ()) and x.dtype.kind in "fiu"]
    given = [f"{float(x[at if x.ndim else ()]):.4g}" for x in arrays]
    return f", of {', '.join(given)}" if given else ""


def _pair(ours: Any, right: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Both as arrays, where they are real numbers of one shape."""
    a, b = as_array(ours), as_array(right)
    return (a, b) if a.shape == b.shape and a.dtype.kind == b.dtype.kind == "f" else None


def _widened(x: Any) -> Any:
    floating = hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.floating)
    return jnp.asarray(x, jnp.float64) if floating and x.dtype != jnp.float64 else x
