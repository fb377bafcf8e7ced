"""The JAX side of a case: a port with the reference's weights, as pure functions of its state, run and observed."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from flax import nnx

from graphmode.weights import load, named_arrays

from .asked_dtype import as_float64, attention_in_float64, constants_in_float64
from .case import TRAIN_STEPS, Case, CaseError, Inputs, Mode
from .constants import Constants
from .draw import input_name, signature
from .dtypes import JAX_DTYPES, cast_array, matmul_precision
from .endless import broken_off
from .errors import describe_with_line, what_came
from .functional_dropout import note_mode
from .held_tracers import holds_tracers
from .kept_results import KeptResults
from .observation import Observation, changed
from .port_graphs import PortGraphs
from .port_program import PortBatch, PortProgram, TrainState, by_path, combine, partition, set_mode
from .trees import is_floating, named_leaves, to_arrays


def run_layers_in(dtype: str, model: nnx.Module, declared: str = "float32") -> None:
    """Flax's layers fix the dtype they were built in (`nnx.Embed`, `nnx.RNN`'s carry); here the run decides."""
    layers = (each for _, each in nnx.iter_modules(model) if type(each).__module__.startswith("flax."))
    for layer, name in itertools.product(layers, ("dtype", "param_dtype")):
        fixed = getattr(layer, name, None)
        if fixed is not None and jnp.dtype(fixed).name in ("float32", declared):
            setattr(layer, name, JAX_DTYPES[dtype])


class PortSide:
    """One variant of the port in one dtype on one device, with a `state_dict` of the reference loaded.

    Args:
      case: for its model, weights, layout and loss.
      variant: of the model.
      state_dict: the judge's, in float32, as numpy arrays.
      dtype: `"float64"`, or one of `RUN_DTYPES`.
      device: a JAX platform, `"cpu"` or `"gpu"`.
      seed: for `nnx.Rngs`.
      compiled: whether runs are compiled graphs; False for operation by operation.
      declared: the dtype that the port is meant for, one of `RUN_DTYPES`: in float64 it casts to a narrow one no more.
      asked: the names of the dtypes that the reference casts to by itself: in float64 neither side then casts to
        float32 or complex64, and to a narrower one as it asks for.
      ends: whether its `while_loop`s are broken off after very many turns; what is timed runs as it is.
      quickly: whether small graphs in float64 are compiled `QUICKLY`.
      fine: whether what it computes as it is built is in float64, where it asks for float32 there.

    Raises:
      CaseError: where the case's `model` gives no `nnx.Module`.
      WeightsError: where the weights do not match it.
    """

    def __init__(
        self,
        case: Case,
        variant: str,
        state_dict: Mapping[str, np.ndarray],
        *,
        dtype: str,
        device: str,
        seed: int,
        compiled: bool = True,
        declared: str = "float32",
        asked: Callable[[], set[str]] = set,
        ends: bool = False,
        quickly: bool = False,
        fine: bool = False,
    ):
        self.case = case
        self.declared, self.asked = declared, asked
        self.dtype = dtype
        self.ends = ends
        self.device = jax.devices(device)[0]
        self._programs: dict[Mode, PortProgram] = {}
        self._graphs = PortGraphs(dtype, self.device, compiled=compiled, quickly=quickly)
        self._output_shapes: dict[tuple[Mode, str], Any] = {}
        self._kept = KeptResults([case.models[variant]])
        with self.context(), as_float64("float32", "complex64") if fine else contextlib.nullcontext():
            self.model = self._build(variant, {k: self._cast(v) for k, v in state_dict.items()}, seed)

    @property
    def keeps_results(self) -> bool:
        """Whether functions around it keep what they gave: then no other dtype may be run at the same time."""
        return bool(self._kept)

    def with_loss(self, loss: Callable[[Any], Any]) -> PortSide:
        """The same port under another loss."""
        assert self.case.loss is not None
        other = copy.copy(self)
        other.case = dataclasses.replace(self.case, loss=(self.case.loss[0], loss))
        other._programs, other._graphs, other._output_shapes = {}, self._graphs.anew(), {}
        return other

    def take_graphs(self, other: PortSide) -> None:
        """Takes what is compiled of the same port with other weights, where these are all that is other in it."""
        with self.context():
            same = {mode for mode, program in other._programs.items() if self.program(mode).is_like(program)}
        self._graphs.take(other._graphs, same)
        self._output_shapes.update({key: shapes for key, shapes in other._output_shapes.items() if key[0] in same})

    def _build(self, variant: str, state_dict: Mapping[str, np.ndarray], seed: int) -> nnx.Module:
        """The module with the weights: abstract first, since initial values that are overwritten take seconds."""
        make = self.case.models[variant]

        def checked() -> nnx.Module:
            try:
                model = make(nnx.Rngs(seed))
            except (CaseError, jax.errors.JAXTypeError):
                raise
            except Exception as error:
                raise CaseError(
                    f"case {self.case.name!r}: building the model {variant!r} fails: {describe_with_line(error)}; it "
                    "is called as model(rngs), with rngs an nnx.Rngs, and gives an nnx.Module"
                ) from error
            if not isinstance(model, nnx.Module):
                raise CaseError(
                    f"case {self.case.name!r}: model {variant!r} gives {what_came(model)}, and an nnx.Module was "
                    "wanted; it is called as model(rngs)"
                )
            if _has_plain_arrays(model):
                raise _PlainArrays
            return model

        try:
            if self._kept:  # what is traced would be kept for good
                raise _PlainArrays
            model = nnx.eval_shape(checked)
        except (jax.errors.JAXTypeError, _PlainArrays):  # it looks at values while it is built, or keeps some
            model = checked()
        load(model, state_dict, self.case.weights)
        if any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jtu.tree_leaves(nnx.state(model))):
            model = checked()  # it holds what no state_dict does, such as constants and random-number state
            load(model, state_dict, self.case.weights)
        nnx.update(model, jtu.tree_map(self._cast, nnx.state(model)))
        run_layers_in(self.dtype, model, self.declared)
        return model

    @contextlib.contextmanager
    def context(self) -> Iterator[None]:
        """The dtype's rules: x64 for float64 alone, and products in no lower precision."""
        with (
            self._kept.own(),
            jax.enable_x64(self.dtype == "float64"),
            jax.default_matmul_precision(matmul_precision(self.dtype)),
            jax.default_device(self.device),
        ):
            yield

    @functools.cached_property
    def _constants(self) -> Constants:
        return Constants(self.model)

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """In which the model is called: in float64 it casts to float32 no more than the reference does, and where it is
        meant for a narrow dtype, to that and to float32 not at all, unless the reference casts to the narrow one."""
        with contextlib.ExitStack() as stack:
            if self.ends:
                stack.enter_context(broken_off())
            if self.dtype == "float64":
                stack.enter_context(attention_in_float64())
                stack.enter_context(constants_in_float64(self._constants))
                asked = self.asked()
                narrow = {self.declared} & {"bfloat16", "float16"} - asked
                if narrow or asked & {"float32", "complex64"}:
                    stack.enter_context(as_float64("float32", "complex64", *narrow))
            yield

    @contextlib.contextmanager
    def _running(self, mode: Mode) -> Iterator[None]:
        note_mode(mode)
        with self.following():
            yield

    def program(self, mode: Mode) -> PortProgram:
        if mode not in self._programs:
            set_mode(self.model, mode)
            self._programs[mode] = PortProgram(self.model, self.case, around=functools.partial(self._running, mode))
        return self._programs[mode]

    def place(self, inputs: Inputs, mode: Mode, cotangents: Mapping[str, np.ndarray] | None = None) -> PortBatch:
        """Numpy inputs, and cotangents by the names of the reference's outputs, in the port's layout on the device.

        Raises:
          CaseError: where `to_model` changes the kind of the inputs, or an integer does not fit what JAX holds.
        """
        with self.context():
            source = jtu.tree_map_with_path(self._device_array, inputs)
            diff, rest = partition(_as_call(self.case, source))
            starts = None
            if cotangents is not None and self.case.loss is None:
                key = mode, signature(inputs)
                if key not in self._output_shapes:
                    program, call = self.program(mode), combine(diff, rest)
                    self._output_shapes[key] = jax.eval_shape(program.inference, program.params, program.rest, *call)
                starts = self._port_cotangents(self._output_shapes[key], cotangents)
            return PortBatch(diff, rest, starts, source)

    def run(self, inputs: Inputs, mode: Mode, cotangents: Mapping[str, np.ndarray] | None = None) -> Observation:
        """One run, or `TRAIN_STEPS` steps of training from the first state, as one graph each."""
        try:
            return self._run(inputs, mode, cotangents)
        except jax.errors.JaxRuntimeError:
            if not self._graphs.tune():  # a convolution for which the algorithm that is taken untried does not do
                raise
            return self._run(inputs, mode, cotangents)

    def _run(self, inputs: Inputs, mode: Mode, cotangents: Mapping[str, np.ndarray] | None) -> Observation:
        with self.context():
            program = self.program(mode)
            batch = self.place(inputs, mode, cotangents)
            step = self._graphs.step(program, mode, signature(inputs), batch)
            if mode == "train_step":
                state = program.start()
                for _ in range(TRAIN_STEPS):
                    outputs, state = step(state, batch.diff, batch.rest, batch.cotangents)
                return self.observe_steps(outputs, state)
            if mode == "inference":
                return self.observe(step(program.params, program.rest, *batch.call), batch)
            outputs, gradients, state = step(program.params, program.rest, batch.diff, batch.rest, batch.cotangents)
            return self.observe(outputs, batch, gradients, state)

    def called_after(
        self,
        earlier: Sequence[tuple[Mode, Inputs, Mapping[str, np.ndarray] | None]],
        inputs: Inputs,
        mode: Mode,
        cotangents: Mapping[str, np.ndarray] | None = None,
    ) -> tuple[Observation, list[str]] | None:
        """What a call gives on the state that earlier ones left, gradients in a mode that has some, and the names of
        what those wrote.

        Args:
          earlier: mode, inputs and cotangents of each.
          inputs, mode, cotangents: as of `run`.

        Returns:
          None where the module has other state in one of the modes than in another.
        """
        with self.context():
            asked = [*earlier, (mode, inputs, cotangents)]
            first, *others = (self.program(each).rest for each, *_ in asked)
            if len({jtu.tree_structure(each) for each in (first, *others)}) > 1:
                return None
            rest = self._left_by(earlier, first)
            outputs, gradients, after = self._call(mode, inputs, self.place(inputs, mode, cotangents))(rest)
            wrote = changed(by_path(first), by_path(rest))
            batch = None if gradients is None else self.place(inputs, mode, cotangents)
            seen = self.observe(outputs, batch, gradients, None if gradients is None else after)
            return dataclasses.replace(seen, buffers=self.named_state(mode, after)), wrote

    def each_call(self, asked: Iterable[tuple[Mode, Inputs, Mapping[str, np.ndarray] | None]]) -> Iterator[Observation]:
        """What it gives in each of several calls, and its variables after it."""
        rest = None
        for mode, inputs, cotangents in asked:
            with self.context():
                batch = self.place(inputs, mode, cotangents)
                rest = self.program(mode).rest if rest is None else rest
                outputs, _, rest = self._call(mode, inputs, batch)(rest)
                seen = self.observe(outputs, None)
            yield dataclasses.replace(seen, buffers=self.named_state(mode, rest))

    def left_by(self, earlier: Sequence[tuple[Mode, Inputs, Mapping[str, np.ndarray] | None]], mode: Mode) -> PortSide:
        """The same, whose program of this mode begins with the state that these calls leave, if that is as theirs."""
        other, program = copy.copy(self), copy.copy(self.program(mode))
        with self.context():
            program.rest = self._left_by(earlier, self.program(earlier[0][0]).rest)
        other._programs = {mode: program}
        return other

    def _left_by(self, earlier: Sequence[tuple[Mode, Inputs, Mapping[str, np.ndarray] | None]], rest: Any) -> Any:
        for mode, inputs, cotangents in earlier:
            rest = self._call(mode, inputs, self.place(inputs, mode, cotangents))(rest)[-1]
        return rest

    def _call(self, mode: Mode, inputs: Inputs, batch: PortBatch) -> Callable[[Any], tuple[Any, Any, Any]]:
        """Outputs, gradients where the mode has some, and state after a call, of the state before: by what is compiled
        already, where that tells."""
        program, given = self.program(mode), signature(inputs)
        if mode == "forward_backward":
            step = self._graphs.step(program, mode, given, batch)
            return lambda rest: step(program.params, rest, batch.diff, batch.rest, batch.cotangents)
        if self._graphs.has(mode, given) and not program.writes(*batch.call):
            forward = self._graphs.step(program, mode, given, batch)
            return lambda rest: (forward(program.params, rest, *batch.call), None, rest)
        call = self._graphs.call(program, mode)

        def without_gradients(rest: Any) -> tuple[Any, Any, Any]:
            outputs, after = call(program.params, rest, *batch.call)
            return outputs, None, after

        return without_gradients

    def compile(self, inputs: Inputs, mode: Mode, cotangents: Mapping[str, np.ndarray] | None = None) -> None:
        """What the first `run` on inputs of these shapes would do. The program of the mode must have been made."""
        with self.context():
            batch = self.place(inputs, mode, cotangents)
            self._graphs.step(self.program(mode), mode, signature(inputs), batch)

    def soundly(self) -> PortSide | None:
        """The same port with no graph compiled `QUICKLY`, on whose roundings nobody may be accused; None where none
        was."""
        if not self._graphs.was_quick:
            return None
        other = copy.copy(self)
        other._graphs = self._graphs.anew(is_sound=True)
        return other

    @property
    def compiled(self) -> bool:
        """Whether its runs are compiled graphs."""
        return self._graphs.compiled

    def by_operations(self) -> PortSide:
        """The same port with nothing compiled as a whole: operation by operation."""
        other = copy.copy(self)
        other._graphs = self._graphs.anew(compiled=False)
        return other

    def observe(
        self, outputs: Any, batch: PortBatch | None, gradients: tuple[Any, Any] | None = None, state: Any = None
    ) -> Observation:
        """Takes what a program gave back to the reference's layout and names."""
        with self.context():
            outputs = self.case.to_reference(outputs)
            named, aliases = to_arrays(named_leaves(outputs)), tuple(named_leaves(outputs, fields=False))
            if gradients is None or batch is None:
                return Observation(outputs=named, aliases=aliases)
            by_parameters, by_inputs = gradients
            return Observation(
                outputs=named,
                aliases=aliases,
                parameter_gradients=self.named_gradients("forward_backward", by_parameters),
                input_gradients=self.input_gradients(batch, by_inputs),
                buffers=self.named_state("forward_backward", state),
            )

    def named_gradients(self, mode: Mode, by_parameters: Any) -> dict[str, np.ndarray]:
        """Gradients of a program's parameters by the reference's names, in its layout."""
        program = self.program(mode)
        model = nnx.merge(program.graphdef, by_parameters, program.rest)
        return named_arrays(model, self.case.weights, of=nnx.Param, gradients=True)

    def named_state(self, mode: Mode, state: Any) -> dict[str, np.ndarray]:
        """This state beside a program's parameters by the reference's names, in its layout."""
        program = self.program(mode)
        return named_arrays(nnx.merge(program.graphdef, program.params, state), self.case.weights, but=nnx.Param)

    def observe_steps(self, outputs: Any, state: TrainState | None = None) -> Observation:
        """Takes what steps of training left to the reference's layout and names; `outputs` are those of the last one.
        Without a state only they are seen."""
        with self.context():
            seen = self.observe(outputs, None)
            if state is None:
                return seen
            program = self.program("train_step")

            def named(params: Any) -> dict[str, np.ndarray]:
                model = nnx.merge(program.graphdef, params, program.rest)
                return named_arrays(model, self.case.weights, of=nnx.Param)

            before, after = named(program.params), named(state.params)
            return dataclasses.replace(
                seen,
                parameters={k: _wide(v) - _wide(before[k]) for k, v in after.items()},
                buffers=self.named_state("train_step", state.rest),
            )

    def _port_cotangents(self, shapes: Any, cotangents: Mapping[str, np.ndarray]) -> list[jax.Array]:
        """The reference's cotangents pulled back through `to_reference`, which only moves elements."""
        zeros = jtu.tree_map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        leaves, treedef = jtu.tree_flatten(zeros)
        floating = [i for i, leaf in enumerate(leaves) if is_floating(leaf)]

        def heads(values: list[jax.Array]) -> dict[str, jax.Array]:
            full = list(leaves)
            for i, value in zip(floating, values, strict=True):
                full[i] = value
            named = named_leaves(self.case.to_reference(jtu.tree_unflatten(treedef, full)))
            return {k: v for k, v in named.items() if is_floating(v)}

        reached, pull = jax.vjp(heads, [leaves[i] for i in floating])
        by_name = dict(cotangents)
        if reached.keys() != by_name.keys() and len(reached) == len(by_name):
            by_name = dict(zip(reached, by_name.values(), strict=True))
        wrong = [n for n, v in reached.items() if n not in by_name or by_name[n].shape != v.shape]
        if wrong or len(by_name) != len(reached):
            ours, theirs = (
                ", ".join(f"{n} {v.shape}" for n, v in given.items()) or "none at all" for given in (reached, by_name)
            )
            named = named_leaves(self.case.to_reference(zeros))
            others = ", ".join(f"{n} is {named[n].dtype}" for n in by_name if n in named and n not in reached)
            ours += f" ({others})" if others else ""
            raise CaseError(
                f"case {self.case.name!r}: the port's floating outputs are {ours}, and the reference's are "
                f"{theirs}; give the same structure, shapes and dtypes, or write to_reference"
            )
        (starts,) = pull({n: jnp.asarray(by_name[n], v.dtype) for n, v in reached.items()})
        return starts

    def input_gradients(self, batch: PortBatch, by_inputs: Any) -> dict[str, np.ndarray]:
        floats, others = partition(batch.source)
        _, pull = jax.vjp(lambda f: partition(_as_call(self.case, combine(f, others)))[0], floats)
        (gradients,) = pull(by_inputs)
        return {input_name(path): np.asarray(g) for path, g in jtu.tree_leaves_with_path(gradients)}

    def _cast(self, value: Any) -> Any:
        return cast_array(value, self.dtype) if hasattr(value, "dtype") else value

    def _device_array(self, path: Any, value: np.ndarray) -> jax.Array:
        kept = jax.dtypes.canonicalize_dtype(value.dtype)
        if kept != value.dtype and np.issubdtype(value.dtype, np.integer) and value.size:
            limits = np.iinfo(kept)
            if value.min() < limits.min or value.max() > limits.max:
                raise CaseError(
                    f"case {self.case.name!r}: {input_name(path)} has values from {value.min()} to {value.max()}, "
                    f"which {kept} cannot hold; without x64 JAX would wrap them silently"
                )
        return jax.device_put(self._cast(value) if value.dtype.kind not in "iu" else value.astype(kept))


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.complex128 if np.iscomplexobj(array) else np.float64)


class _PlainArrays(Exception):
    """The module must be built with values."""


def _has_plain_arrays(model: nnx.Module) -> bool:
    """Whether a module keeps a traced array in an attribute and in no variable: nothing would fill it in later."""
    return any(holds_tracers(list(vars(module).values())) for _, module in nnx.iter_modules(model))


def _as_call(case: Case, source: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    given = case.to_model(source)
    if isinstance(given, dict):
        return (), given
    if isinstance(given, tuple):
        return given, {}
    raise CaseError(
        f"case {case.name!r}: to_model gives {type(given).__name__}, and {type(source).__name__} was wanted: it takes "
        "and gives the whole inputs, a tuple or a dict"
    )
