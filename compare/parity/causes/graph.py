"""The graph of a port's forward pass, run once more operation by operation, each as one likes."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.extend import core as jex

from ...errors import is_of_a_library
from ..inside.hooking import SCOPE, numbered

if TYPE_CHECKING:
    from ...jax_side import PortSide
    from ..judge import Question

RULES = ("custom_jvp_call", "custom_vjp_call")
INLINED = ("jit", "pjit", "closed_call", "checkpoint", "remat2", "core_call", *RULES)
CALL = "__call__"
MOST_DIGITS = 7  # of a number that somebody wrote; in float32
DTYPES = ("new_dtype", "dtype", "preferred_element_type", "accumulation_type", "out_dtype")


class Operation(NamedTuple):
    """One operation of the graph.

    Attributes:
      number: how many come before it in a run; -1 where nothing runs.
      eqn: its equation.
      module: the path of the module that does it.
      source: `file:line`, the innermost line that is neither JAX's nor Flax's nor ours; of what is inside a function of
        these that JAX traces once for all that call it, as `jnp.where`, the line that calls that; empty where it is not
        known.
      caller: where that line is in a function or a method of the port, and in no module's `__call__`, the line that
        calls it; else empty.
      has_rule: whether it is in a function that has a derivative of its own.
    """

    number: int
    eqn: Any
    module: str
    source: str
    caller: str = ""
    has_rule: bool = False

    @property
    def narrows(self) -> bool:
        """Whether it is a conversion to fewer digits."""
        name = self.eqn.primitive.name
        if name not in ("convert_element_type", "reduce_precision"):
            return False
        before, after = self.eqn.invars[0].aval.dtype, self.eqn.outvars[0].aval.dtype
        floating = jnp.issubdtype(before, jnp.floating) and jnp.issubdtype(after, jnp.floating)
        return name == "reduce_precision" or (floating and jnp.finfo(after).nmant < jnp.finfo(before).nmant)

    def as_it_is(self, given: list[Any]) -> list[Any]:
        """What it gives in its own dtypes, of values in any."""
        pairs = zip(given, self.eqn.invars, strict=True)
        return _bound(self.eqn, [_in(x, v.aval) for x, v in pairs], self.eqn.params)


class Place(NamedTuple):
    """The path of a module, a line of its code, and the one that calls the function which that is in, if any."""

    module: str
    source: str
    caller: str = ""


NOWHERE = Place("", "")
Run = Callable[[list[Any]], list[Any]]
Visit = Callable[[Operation, list[Any], Run], list[Any]]


class Graph:
    """The forward pass of a port on a question.

    Args:
      port: in any dtype.
      question: whose inputs.
      through: what each call of a module goes through, as `PortRun` has it; itself where there is none.
      beside: gives further values of the traced run, which `evaluate` gives after the outputs.
      with_heads: whether it gives what the backward pass starts at in place of the outputs.
      with_state: whether it gives last the leaves of the port's variables, but for what is trained, after the call.

    Attributes:
      closed: the graph, each module's path in the names of its operations.
      args: what it takes, flat: what is trained, the rest of the port's variables, and the inputs.
      state_structure: of the variables after the call.
      held: while it is evaluated, what it takes besides the inputs and what is trained: constants, and the rest of the
        port's variables.
    """

    def __init__(
        self,
        port: PortSide,
        question: Question,
        through: Callable[..., Any] | None = None,
        beside: Callable[[], Sequence[Any]] = tuple,
        *,
        with_heads: bool = False,
        with_state: bool = False,
    ):
        self.port = port
        self.state_structure: Any = None
        program = port.program(question.mode)
        batch = port.place(question.inputs, question.mode, question.cotangents)

        def note(at: Any, module: nnx.Module, run: Any, args: Any, kwargs: Any) -> Any:
            with jax.named_scope(f"{SCOPE}{at.path}"):
                return run(module, *args, **kwargs) if through is None else through(at, module, run, args, kwargs)

        def forward(params: Any, rest: Any, args: Any, kwargs: Any) -> Any:
            traced = program.forward(params, rest, args, kwargs, through=numbered(note), with_heads=with_heads)
            heads, (outputs, state) = traced
            self.state_structure = jax.tree.structure(state)
            return heads if with_heads else outputs, beside(), jax.tree.leaves(state) if with_state else []

        given = program.params, program.rest, *batch.call
        with port.context():
            self.closed, shapes = jax.make_jaxpr(forward, return_shape=True)(*given)
        self.args, self._structure = jax.tree.leaves(given), jax.tree.structure(shapes)
        first = len(jax.tree.leaves(program.params))
        self._rest = slice(first, first + len(jax.tree.leaves(program.rest)))
        self.held: list[Any] = []
        self._places: dict[int, tuple[str | None, tuple[str, str] | None]] = {}  # of equations, by identity
        self._literals: dict[int, Any] = {}  # by identity

    def is_state(self, place: int) -> bool:
        """Whether an argument is of the rest of the port's variables, by which no gradient is taken."""
        return place in range(*self._rest.indices(len(self.args)))

    def operations(self) -> Iterator[Operation]:
        """Every operation, those of loops and branches among them."""
        return self._operations(self.closed.jaxpr, NOWHERE)

    def _operations(self, jaxpr: Any, around: Place) -> Iterator[Operation]:
        for eqn in jaxpr.eqns:
            place = self._place(eqn, around)
            yield Operation(-1, eqn, *place)
            for inner in _inner(eqn):
                yield from self._operations(inner, place)

    def _place(self, eqn: Any, around: Place) -> Place:
        """Of an equation; what it does not say, as that of the one that it is inside of."""
        known = self._places.get(id(eqn))
        if known is None:
            known = self._places[id(eqn)] = _own_place(eqn)
        module, lines = known
        return Place(around.module if module is None else module, *(lines or around[1:]))

    def outputs(self, flat: Sequence[Any]) -> Any:
        """What `evaluate` gives, as the port's outputs."""
        return jax.tree.unflatten(self._structure, flat)[0]

    def evaluate(
        self,
        visit: Visit | None = None,
        *,
        opened: bool = False,
        args: Sequence[Any] | None = None,
        whole_rules: bool = False,
    ) -> list[Any]:
        """Runs it with nothing narrower than float64; loops and branches are one operation, in its own dtypes.

        A branch on the platform is none: what this platform runs is a part of the graph. What the graph holds, and
        its own arguments, are the same objects in every run.

        Args:
          visit: `(operation, arguments, in_float64)` gives its results, say `in_float64(arguments)`.
          opened: whether the branch that is taken is a part of the graph, too, and each turn of a `while_loop`.
          args: in place of its own.
          whole_rules: whether a function that has a derivative of its own is one operation.
        """
        with self.port.context(), jax.enable_x64(True):
            self._count, self._opened, self._rules = 0, opened, 0
            self._inlined = tuple(name for name in INLINED if not (whole_rules and name in RULES))
            given = self._given if args is None else list(map(_widened, args))
            consts = self._consts
            self.held = [*consts, *given[self._rest]]
            return self._run(self.closed.jaxpr, consts, given, NOWHERE, visit)

    def _run(
        self, jaxpr: Any, consts: Sequence[Any], args: Sequence[Any], around: Place, visit: Visit | None
    ) -> list[Any]:
        values: dict[Any, Any] = {}

        def read(atom: Any) -> Any:
            return self._literal(atom) if isinstance(atom, jex.Literal) else values[atom]

        for names, given in ((jaxpr.constvars, consts), (jaxpr.invars, args)):
            values.update(zip(names, map(_widened, given), strict=True))
        for eqn in jaxpr.eqns:
            place = self._place(eqn, around)
            given = [read(atom) for atom in eqn.invars]
            inner = next(iter(_closed(eqn)), None)
            if eqn.params.get("branches_platforms"):  # one form for each platform: this one's
                index, *given = given
                inner = eqn.params["branches"][int(index)]
                results = self._run(inner.jaxpr, inner.consts, given, place, visit)
            elif eqn.primitive.name in self._inlined and inner is not None:
                self._rules += eqn.primitive.name in RULES
                results = self._run(inner.jaxpr, inner.consts, given, place, visit)
                self._rules -= eqn.primitive.name in RULES
            elif self._opened and eqn.primitive.name == "cond":
                taken = eqn.params["branches"][int(given[0])]
                results = self._run(taken.jaxpr, taken.consts, given[1:], place, visit)
            elif self._opened and eqn.primitive.name == "while":
                results = self._turns(eqn, given, place, visit)
            else:
                operation = Operation(self._count, eqn, *place, self._rules > 0)
                self._count += 1
                wide = _in_float64(operation, inner is not None)
                with self._platform_known(eqn):
                    results = wide(given) if visit is None else visit(operation, given, wide)
            values.update(zip(eqn.outvars, map(_widened, results), strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    @functools.cached_property
    def _given(self) -> list[Any]:
        return list(map(_widened, self.args))

    @functools.cached_property
    def _consts(self) -> list[Any]:
        return list(map(_widened, self.closed.consts))

    def _literal(self, atom: Any) -> Any:
        """One and the same in all runs."""
        if id(atom) not in self._literals:
            self._literals[id(atom)] = _widened(_as_written(atom.val))
        return self._literals[id(atom)]

    @staticmethod
    def _platform_known(eqn: Any) -> contextlib.AbstractContextManager[None]:
        """Within it, which platform this is, is a number, also where the graph is traced again."""
        return jax.ensure_compile_time_eval() if eqn.primitive.name == "platform_index" else contextlib.nullcontext()

    def _turns(self, eqn: Any, given: list[Any], around: Place, visit: Visit | None) -> list[Any]:
        """A `while_loop`, turn by turn."""
        first, second = eqn.params["cond_nconsts"], eqn.params["cond_nconsts"] + eqn.params["body_nconsts"]
        test, body = eqn.params["cond_jaxpr"], eqn.params["body_jaxpr"]
        carried = given[second:]
        while True:
            goes_on = self._run(test.jaxpr, test.consts, [*given[:first], *carried], around, visit)[0]
            if not bool(goes_on.any()):
                return carried
            moved = self._run(body.jaxpr, body.consts, [*given[first:second], *carried], around, visit)
            carried = list(map(functools.partial(_where, goes_on), moved, carried))


def _where(goes_on: Any, moved: Any, before: Any) -> Any:
    """What a turn leaves: of rows of a loop under `jax.vmap` that have come to their end, what they had."""
    if not goes_on.ndim:
        return moved
    return jnp.where(goes_on.reshape(goes_on.shape + (1,) * (moved.ndim - goes_on.ndim)), moved, before)


def _in_float64(operation: Operation, keeps_dtypes: bool) -> Run:
    eqn = operation.eqn

    def run(given: list[Any]) -> list[Any]:
        if eqn.primitive.name == "reduce_precision":
            return given
        if keeps_dtypes:
            return operation.as_it_is(given)
        return _bound(eqn, given, {k: _wide(v) if k in DTYPES else v for k, v in eqn.params.items()})

    return run


def _bound(eqn: Any, given: list[Any], params: dict[str, Any]) -> list[Any]:
    if eqn.primitive.name in RULES:
        taken = {v: x for v, x in zip(eqn.invars, given, strict=True) if not isinstance(v, jex.Literal)}
        alone = eqn.params["call_jaxpr"].jaxpr.replace(
            constvars=[], invars=list(taken), outvars=eqn.outvars, eqns=[eqn], effects=eqn.effects
        )
        return list(jex.jaxpr_as_fun(jex.ClosedJaxpr(alone, []))(*taken.values()))
    results = eqn.primitive.bind(*given, **params)
    return list(results) if eqn.primitive.multiple_results else [results]


def _in(x: Any, aval: Any) -> Any:
    return x.astype(aval.dtype) if hasattr(aval, "dtype") and hasattr(x, "astype") else x


def _closed(eqn: Any) -> Iterator[Any]:
    for value in eqn.params.values():
        if isinstance(value, jex.ClosedJaxpr):
            yield value


def _inner(eqn: Any) -> Iterator[Any]:
    for value in eqn.params.values():
        for each in value if isinstance(value, tuple | list) else (value,):
            if isinstance(each, jex.ClosedJaxpr):
                yield each.jaxpr
            elif isinstance(each, jex.Jaxpr):
                yield each


def _own_place(eqn: Any) -> tuple[str | None, tuple[str, str] | None]:
    """The path of a module, and a line with its caller, as far as an equation says them by itself."""
    scopes = str(eqn.source_info.name_stack).split(SCOPE)
    module = scopes[-1].partition("/")[0].rstrip(")") if len(scopes) > 1 else None
    traceback = eqn.source_info.traceback
    frames = traceback.frames if traceback is not None else ()
    users = [frame for frame in frames if not is_of_a_library(frame.file_name)]
    return module, (_line_of(users[0]), _caller(users)) if users else None


def _line_of(frame: Any) -> str:
    return f"{Path(frame.file_name).name}:{frame.line_num}"


def _caller(frames: Sequence[Any]) -> str:
    """The line that calls what the first of these frames is of, which come from inside out; empty for a module."""
    first, *around = ((_function(frame.function_name), frame) for frame in frames)
    if CALL in first[0].split("."):
        return ""
    return next((_line_of(frame) for name, frame in around if name != first[0]), "")


def _function(name: str) -> str:
    """Of the qualified name of a function, the one outside of all that are written within it, as lambdas."""
    return name.partition(".<locals>")[0]


def _wide(dtype: Any) -> Any:
    if dtype is not None and jnp.issubdtype(dtype, jnp.floating):
        return np.dtype(np.float64)
    return dtype


def _as_written(x: Any) -> Any:
    """Of a number that a narrower dtype has rounded, the one with the fewest digits that it rounds so."""
    if np.ndim(x) or not hasattr(x, "dtype") or not jnp.issubdtype(x.dtype, jnp.floating) or x.dtype == jnp.float64:
        return x
    with np.errstate(over="ignore"):
        shorter = (float(f"{float(x):.{digits}g}") for digits in range(1, MOST_DIGITS + 1))
        return next((np.float64(each) for each in shorter if np.asarray(each, x.dtype) == x), x)


def _widened(x: Any) -> Any:
    if hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.floating) and x.dtype != jnp.float64:
        return jnp.asarray(x, jnp.float64)
    return jnp.asarray(x) if isinstance(x, np.ndarray | np.generic | int | float | bool) else x
