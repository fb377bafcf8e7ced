"""`train_step`: model, loss and optimizer as one compiled graph, whose state is written over the old one."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from ..graph import command_buffer_options
from ..nn.arguments import as_integer, as_word
from ..optim import Optimizer, OptimizerState
from ..optim.clipping import clip_grad_norm, clip_grad_value
from ..optim.naming import by_name, flags_of
from .batch_shapes import BatchShapes, arrays_of
from .gradients import Gradients, gradients
from .loss import Loss
from .loss_scaling import LossScaling, all_finite, unscaled
from .objective import Frozen, Objective, Precision
from .sharding import Placement
from .state import TrainState, check_there

OnNonfinite = Literal["stop", "ignore"]


def train_step(
    model: nnx.Module,
    loss: Callable[[Any, Any], Any],
    optimizer: optax.GradientTransformation,
    *,
    frozen: Frozen | None = None,
    accumulate: int = 1,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    precision: Precision = "float32",
    loss_scaling: LossScaling | None = None,
    averaging: Any = None,
    remat: str | None = None,
    steps_per_launch: int = 1,
    unroll: int | bool = 1,
    shapes: int = 1,
    on_nonfinite: OnNonfinite = "stop",
    placement: Placement | None = None,
) -> TrainStep:
    """Makes one compiled training step: forward, backward, clipping, optimizer, all of it one graph.

    The step is a function of a state, which it consumes (its memory is donated), and a batch:
    `state, metrics = step(state, batch)`. Metrics stay on the device. The model that is given is copied, never changed;
    `step.model(state)` is one with the values of now. Layers run as the model is set: in training unless it says
    otherwise.

    Args:
      model: an `nnx.Module`. Its `nnx.Param`s are trained; running statistics and dropout keys are carried.
      loss: `(model, batch)` to a scalar, which is a mean over the batch; or to `(scalar, metrics)`; or to a mapping of
        scalars, the losses whose sum counts and which become metrics; or to a `Loss`.
      optimizer: of `gm.optim`, or any optax transformation.
      frozen: parameters that are not trained: a regular expression searched for in the dotted name, or a function
        `(name, variable) -> bool`.
      accumulate: into how many parts, one after the other, a batch is cut along its first axis; their gradients are
        averaged, and with float16 the loss of each is scaled as `scaler.scale(loss / accumulate)`.
      clip_norm: as `torch.nn.utils.clip_grad_norm_`; the metric `grad_norm` is the norm before.
      clip_value: as `torch.nn.utils.clip_grad_value_`, which comes after `clip_norm` where both are given.
      precision: other than float32 runs the loss under `gm.nn.autocast`. float16 scales the loss.
      loss_scaling: for float16; `LossScaling()` where None.
      averaging: `gm.optim.ema(decay)` or `gm.optim.swa()`, of the parameters after each step; `swa(start=, every=)` of
        those after some.
      remat: a regular expression that the dotted paths of modules match which are computed again in the backward pass.
        It saves memory on a GPU; XLA's CPU backend merges both computations again.
      steps_per_launch: batches, stacked along a further first axis, that one call takes; metrics are stacked alike.
      unroll: of the loop over them, as `jax.lax.scan` has it. XLA's CPU backend computes convolutions in a loop slowly:
        give True there.
      shapes: how many different shapes of batches are to be compiled for; one more is an error.
      on_nonfinite: `"stop"` leaves the state as it was before the first step whose loss or gradients are not finite,
        and says so in `state.bad_step`; `"ignore"` steps all the same, as PyTorch does.
      placement: where state and batches lie, for more than one device.

    Raises:
      TypeError, ValueError: for bad arguments here; for a batch of another shape, or a loss that is no scalar, when
        called.

    Example:
      >>> import graphmode as gm, jax.numpy as jnp
      >>> from flax import nnx
      >>> model = gm.nn.Linear(3, 1, rngs=nnx.Rngs(0))
      >>> def squared_error(model, batch):
      ...     return jnp.mean((model(batch["x"]) - batch["y"]) ** 2)
      >>> step = gm.train_step(model, squared_error, gm.optim.adam(lr=0.1))
      >>> state = step.init()
      >>> for _ in range(3):
      ...     state, metrics = step(state, {"x": jnp.ones((4, 3)), "y": jnp.ones((4, 1))})
      >>> int(state.step), step.traces
      (3, 1)
    """
    if not isinstance(model, nnx.Module):
        raise TypeError(f"model is a {type(model).__name__}; give an nnx.Module")
    if not callable(loss):
        raise TypeError(f"loss is a {type(loss).__name__}; give a function of model and batch")
    if not all(callable(getattr(optimizer, name, None)) for name in ("init", "update")):
        raise TypeError(f"optimizer is a {type(optimizer).__name__}; give one of gm.optim or of optax")
    as_word("precision", precision, ("float32", "bfloat16", "float16"))
    as_word("on_nonfinite", on_nonfinite, ("stop", "ignore"))
    for name, value in {"accumulate": accumulate, "steps_per_launch": steps_per_launch, "shapes": shapes}.items():
        as_integer(name, value, least=1)
    for name, limit in {"clip_norm": clip_norm, "clip_value": clip_value}.items():
        if limit is not None and not (isinstance(limit, Real) and limit > 0):
            raise ValueError(f"{name} is {limit!r}; give a number above 0, or None")
    if not isinstance(unroll, bool):
        as_integer("unroll", unroll, least=1)
    if placement is not None and not isinstance(placement, Placement):
        raise TypeError(
            f"placement is a {type(placement).__name__}; give gm.training.data_parallel() or fully_sharded()"
        )
    if averaging is not None and not all(callable(getattr(averaging, name, None)) for name in ("init", "update")):
        raise TypeError(f"averaging is {averaging!r}; give gm.optim.ema(decay) or gm.optim.swa()")
    if loss_scaling is not None and not isinstance(loss_scaling, LossScaling):
        raise TypeError(f"loss_scaling is a {type(loss_scaling).__name__}; give gm.training.LossScaling()")
    if loss_scaling is not None and precision != "float16":
        raise ValueError(f"loss_scaling is given with precision={precision!r}; it is for 'float16'")
    if precision == "float16" and loss_scaling is None:
        loss_scaling = LossScaling()
    return TrainStep(
        model,
        loss,
        optimizer,
        frozen=frozen,
        accumulate=accumulate,
        clip_norm=clip_norm,
        clip_value=clip_value,
        precision=precision,
        loss_scaling=loss_scaling,
        averaging=averaging,
        remat=remat,
        steps_per_launch=steps_per_launch,
        unroll=unroll,
        shapes=shapes,
        on_nonfinite=on_nonfinite,
        placement=placement,
    )


class TrainStep:
    """A compiled training step; made by `train_step`.

    Attributes:
      traces: how often Python ran through the loss: once for each shape of batches.
      objective: the model and its loss as a function of variables.
      clip_norm: to which the norm of the gradients is clipped; None where it is not.
      averages: whether its states have averaged parameters.
    """

    def __init__(self, model: nnx.Module, loss: Callable[[Any, Any], Any], optimizer: Any, **options: Any):
        self.traces = 0
        self.clip_norm: float | None = options["clip_norm"]
        self.optimizer = optimizer.for_model(model) if isinstance(optimizer, Optimizer) else optimizer
        self.placement: Placement | None = options["placement"]
        self.loss_scaling: LossScaling | None = options["loss_scaling"]
        self.steps_per_launch: int = options["steps_per_launch"]
        self.averages: bool = options["averaging"] is not None
        self.objective = Objective(
            model, loss, frozen=options["frozen"], precision=options["precision"], remat=options["remat"]
        )
        self._options = options
        self._shapes = BatchShapes(options["shapes"], lead=self.steps_per_launch, parts=options["accumulate"])
        run = self._launch if self.steps_per_launch > 1 else self._step
        self._run: Any
        if self.placement is None:
            self._run = jax.jit(run, donate_argnums=0, compiler_options=command_buffer_options())
        else:
            state = self.placement.of_state(jax.eval_shape(self._start))
            self._run = jax.jit(run, donate_argnums=0, out_shardings=(state, self.placement.replicated()))

    def init(self, model: nnx.Module | None = None) -> TrainState:
        """A state with the model's values and a fresh optimizer, in memory of its own.

        Args:
          model: one with other values than the step's own, as `step.model` gives it.

        Raises:
          ValueError: where its variables are not those of the step's model.
        """
        state = jax.tree.map(lambda x: _strong(jnp.copy(x)), self._start(model))
        _refuse_traced("init is called", state)
        where = jax.tree.leaves(state.params)[0].sharding
        if len(where.device_set) == 1:  # committed, as all later ones are where batches are: else two compilations
            state = jax.device_put(state, where)
        return state if self.placement is None else self.placement.put_state(state)

    def abstract(self) -> TrainState:
        """A state's shapes and dtypes, and its shardings where there is a placement; nothing is computed."""
        state = jax.eval_shape(self._start)
        if self.placement is None:
            return state
        return jax.tree.map(lambda x, at: x.update(sharding=at), state, self.placement.of_state(state))

    def __call__(self, state: TrainState, batch: Any) -> tuple[TrainState, dict[str, jax.Array]]:
        """The state after the step (after `steps_per_launch` of them), and metrics on the device.

        Args:
          state: of `init` or of the step before; it is consumed.
          batch: a pytree of arrays whose first axis is the batch (the second, for several steps per launch); of one
            length in all of them where `accumulate` or `placement` cuts it.

        Returns:
          The new state, and scalars by name (`[steps_per_launch]` for several): `loss`, those of the loss function,
          `lr` with an optimizer of `gm.optim`, `grad_norm` with `clip_norm`, `loss_scale` and `skipped` with float16.

        Raises:
          ValueError, TypeError: for a batch of another shape or dtype than those before, beyond `shapes` of them; for a
            state that was consumed, is of another model or lies on other devices; within another graph. The state given
            is then as it was.
        """
        check_there(state)
        _refuse_traced("the step is called", (state.step, batch))
        if self.placement is not None:
            self.placement.check_state(state.step)
        if self.placement is not None and not self.placement.holds(batch, lead=self.steps_per_launch):
            batch = self.place(batch)
        batch = jax.tree.map(_strong, batch)
        shape = self._shapes.admit(batch, self.placement)
        result = self._run(state, batch)
        self._shapes.keep(shape)
        return result

    def model(self, state: TrainState, *, averaged: bool = False) -> nnx.Module:
        """A module with the values of the state, which the next step's donation does not touch.

        Args:
          state: of this step.
          averaged: whether it has the averaged parameters.

        Raises:
          TypeError, ValueError: for what is no state, or was consumed; where averaged is True and nothing is averaged.
        """
        check_there(state)
        params = state.params
        if averaged:
            if state.average is None:
                raise ValueError("averaged is True, and the step averages nothing: make it with averaging=")
            params = state.average[0]
        params, rest = jax.tree.map(jnp.copy, (params, state.rest))
        return self.objective.model(params, rest)

    def place(self, batch: Any) -> Any:
        """The batch of this process on its devices, ahead of the step: what `read_ahead` takes as `place`."""
        return self._placed(batch, self.steps_per_launch)

    def place_rows(self, batch: Any) -> Any:
        """A single batch, whatever `steps_per_launch` is: what an evaluation takes."""
        return self._placed(batch, 1)

    def _placed(self, batch: Any, lead: int) -> Any:
        if not jax.tree.leaves(batch):
            return batch  # refused by what takes it, which knows its number
        if self.placement is not None:
            return self.placement.put_batch(batch, lead=lead)
        try:
            return jax.device_put(batch)
        except TypeError:
            arrays_of(batch)  # which names what is no array
            raise

    def lower(self, state: TrainState, batch: Any) -> Any:
        """The step for this batch as `jax.jit(...).lower` gives it: for its HLO, cost and memory."""
        return self._run.lower(state, batch)

    def _start(self, model: nnx.Module | None = None) -> TrainState:
        averaging, scaling = self._options["averaging"], self._options["loss_scaling"]
        objective = self.objective
        params, rest = (objective.params, objective.rest) if model is None else objective.of_other_values(model)
        return TrainState(
            step=jnp.zeros((), jnp.int32),
            params=params,
            rest=rest,
            optimizer=self.optimizer.init(params),
            average=(averaging.init(params), jnp.zeros((), jnp.int32)) if averaging else None,
            scale=scaling.init() if scaling else None,
            bad_step=jnp.full((), -1, jnp.int32),
        )

    def _launch(self, state: TrainState, batches: Any) -> tuple[TrainState, dict[str, jax.Array]]:
        return jax.lax.scan(self._step, state, batches, unroll=self._options["unroll"])

    def _step(self, state: TrainState, batch: Any) -> tuple[TrainState, dict[str, jax.Array]]:
        self.objective.check_variables(state.params, state.rest)
        self.traces += 1
        found, params, rest, grads, untouched = self._gradients(state, batch)
        scaling: LossScaling | None = self._options["loss_scaling"]
        stops = self._options["on_nonfinite"] == "stop"
        metrics = {"loss": found.value, **found.metrics}
        finite: jax.Array | None = all_finite(grads) if scaling or stops else None
        if state.scale is not None:
            grads = unscaled(grads, state.scale)
        elif finite is not None:
            finite &= jnp.isfinite(found.value)
        if (clip_norm := self._options["clip_norm"]) is not None:
            grads, metrics["grad_norm"] = clip_grad_norm(grads, clip_norm)
        if (clip_value := self._options["clip_value"]) is not None:
            grads = clip_grad_value(grads, clip_value)

        def stepped(params: Any, optimizer: Any, average: Any) -> Any:
            updates, optimizer = self.optimizer.update(
                grads, optimizer, params, **self._present(found, grads, untouched)
            )
            params = optax.apply_updates(params, updates)
            return params, optimizer, None if average is None else self._averaged(average, params, state.step + 1)

        new = TrainState(state.step + 1, params, rest, state.optimizer, state.average, state.scale, state.bad_step)
        changing = (params, state.optimizer, state.average)
        if finite is None:
            changing = stepped(*changing)
        else:
            goes_on = finite & (state.bad_step < 0)
            before = changing if scaling else (state.params, state.optimizer, state.average)
            changing = jax.lax.cond(goes_on, lambda: stepped(*changing), lambda: before)
        new = new._replace(params=changing[0], optimizer=changing[1], average=changing[2])
        if state.scale is not None:
            assert scaling is not None
            assert finite is not None
            scale = scaling.update(state.scale, finite)
            new = new._replace(scale=scale)
            metrics |= {"loss_scale": state.scale.value, "skipped": ~finite}
            finite = scale.value >= scaling.smallest
        if stops:
            assert finite is not None
            new = _unless_bad(state, new, finite)
        metrics |= _learning_rate(new.optimizer)
        return jax.tree.map(_strong, new), metrics

    def _present(self, found: Loss, grads: Any, untouched: list[str]) -> dict[str, Any]:
        """What an optimizer that asks is told of which gradients there are."""
        if not isinstance(self.optimizer, optax.GradientTransformationExtraArgs):
            return {} if found.present is None else {"present": found.present}
        said = flags_of(found.present, [name for name, _ in by_name(grads)])
        flags = {**dict.fromkeys(untouched, False), **said}
        return {"present": flags} if flags else {}

    def _averaged(self, average: Any, params: Any, number: jax.Array) -> Any:
        """The average, and how many are in it, after the step of that number."""
        averaging = self._options["averaging"]

        def entered() -> Any:
            return averaging.update(average[0], params, average[1]), average[1] + 1

        enters = averaging.enters(number) if hasattr(averaging, "enters") else True
        return entered() if enters is True else jax.lax.cond(enters, entered, lambda: average)

    def _gradients(self, state: TrainState, batch: Any) -> Gradients:
        parts = self._options["accumulate"]
        if parts == 1:
            return gradients(self.objective, state.params, state.rest, batch, state.scale)
        cut = jax.tree.map(lambda x: x.reshape(parts, x.shape[0] // parts, *x.shape[1:]), batch)
        if self.placement is not None:  # each part on all devices, as a row of the batch lies on one alone
            cut = jax.lax.with_sharding_constraint(cut, self.placement.of_batch(parts))

        # as PyTorch's scaler.scale(loss / parts): what would not overflow there must not here
        scale = None if state.scale is None else state.scale._replace(value=state.scale.value / parts)
        without: list[str] = []

        def one(carry: Any, part: Any) -> Any:
            params, rest, total = carry
            found, params, rest, grads, without[:] = gradients(self.objective, params, rest, part, scale)
            return (params, rest, jax.tree.map(jnp.add, total, grads)), found

        zeros = jax.tree.map(jnp.zeros_like, state.params)
        (params, rest, total), found = jax.lax.scan(one, (state.params, state.rest, zeros), cut)
        value, metrics = jax.tree.map(lambda x: jnp.mean(x, 0), (found.value, found.metrics))
        present = jax.tree.map(lambda x: jnp.any(x, 0), found.present)
        grads = total if scale is not None else jax.tree.map(lambda g: g / parts, total)
        return Gradients(Loss(value, metrics, present), params, rest, grads, without)


def _refuse_traced(told: str, tree: Any) -> None:
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(tree)):
        raise TypeError(
            f"{told} while a graph is traced, in jax.jit or jax.lax.scan: a step is a compiled graph of its own. Call "
            "it from Python; gm.train_step(..., steps_per_launch=K) makes a graph of K steps, and step.lower(state, "
            "batch) shows it"
        )


def _strong(leaf: Any) -> Any:
    """A weak dtype, of a Python number, made the array's own: the next step would be compiled for it once more."""
    return leaf.astype(leaf.dtype) if getattr(leaf, "weak_type", False) else leaf


def _unless_bad(old: TrainState, new: TrainState, finite: jax.Array) -> TrainState:
    """The new state, or, from the first bad step on, the old one with that step's number.

    Parameters, optimizer and average are of the old one already.
    """
    bad_step = jnp.where((old.bad_step < 0) & ~finite, old.step, old.bad_step)
    step, rest, scale = jax.tree.map(
        lambda before, after: jnp.where(bad_step < 0, after, before),
        (old.step, old.rest, old.scale),
        (new.step, new.rest, new.scale),
    )
    return new._replace(step=step, rest=rest, scale=scale, bad_step=bad_step)


def _learning_rate(optimizer: Any) -> dict[str, jax.Array]:
    def is_ours(x: Any) -> bool:
        return isinstance(x, OptimizerState)

    found = [x for x in jax.tree.leaves(optimizer, is_leaf=is_ours) if is_ours(x)]
    return {"lr": found[0].lr[0]} if len(found) == 1 else {}
