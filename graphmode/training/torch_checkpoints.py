"""A training that PyTorch began goes on here, and back: checkpoints of `model` and `optimizer` state_dicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from ..optim import Optimizer
from ..weights import WeightRule, load, to_state_dict
from ..weights.files import load_torch
from ..weights.formats import as_numpy, import_torch
from ..weights.plan import as_rules, make_plan
from .loss_scaling import LossScaling, Scale
from .rates import tell_kept_rates, tell_scheduled_rates
from .state import TrainState

if TYPE_CHECKING:
    from .step import TrainStep


def from_torch_checkpoint(
    source: str | Path | Mapping[str, Any],
    step: TrainStep,
    *,
    rules: Iterable[WeightRule] = (),
    model_key: str = "model",
    optimizer_key: str = "optimizer",
    scaler_key: str = "scaler",
    scheduler_key: str = "scheduler",
    names: Sequence[str] | None = None,
    count: int | None = None,
) -> TrainState:
    """The state from which `step` goes on as PyTorch's loop would have.

    The learning rate is PyTorch's, or that of a schedule of `step`; where it is another one, the log says which counts.
    Averages begin anew. PyTorch's random numbers are not JAX's, so dropout differs from here on.

    Args:
      source: a file of `torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)`, read
        without unpickling, or that dict.
      step: of the same model and a `gm.optim` optimizer with the same arguments.
      rules: those of `gm.weights.load`.
      model_key, optimizer_key: what the two are called there.
      scaler_key: what the state_dict of a `torch.amp.GradScaler` is called there; read with float16 alone.
      scheduler_key: what the state_dict of a scheduler is called there, where there is one: its `last_epoch` is the
        count of an optimizer that counts nothing itself (SGD, Muon), where the scheduler stepped with each update.
      names: PyTorch's names of the parameters in the order in which its optimizer got them; where None, that of its
        model's state_dict. `frozen` parameters of `step` are among them where PyTorch's optimizer got all, and those
        that it has no state for begin anew where they are trained here.
      count: updates made so far, which is where schedules stand; None for what the optimizer counted, or else its
        scheduler.

    Raises:
      ValueError: where a part is missing, or does not match the model or the optimizer; all that fails is listed.
      TypeError: for an optimizer that is none of `gm.optim`, and a source that is neither path nor dict.
      ImportError: where PyTorch is not installed, for a file.

    Source: https://docs.pytorch.org/tutorials/beginner/saving_loading_models.html
    """
    from ..optim.torch_state import from_torch

    rules, tx = as_rules(rules), _optimizer(step)
    content = _read(source) if isinstance(source, str | Path) else source
    if not isinstance(content, Mapping):
        raise TypeError(
            f"source is a {type(content).__name__}; give the path of a checkpoint, or the dict that it holds"
        )
    scaling: LossScaling | None = step.loss_scaling
    wanted = [model_key, optimizer_key, *([scaler_key] if scaling else [])]
    if missing := [key for key in wanted if key not in content]:
        raise ValueError(
            f"source has no {', '.join(map(repr, missing))}; it has {', '.join(map(repr, content)) or 'nothing'}: "
            "say what is what with model_key, optimizer_key and scaler_key"
        )
    _check_kept(content, model_key, optimizer_key)
    begun = step.init()
    model = step.model(begun)
    load(model, content[model_key], rules)
    _check_dtypes(step.model(begun), model)
    state = step.init(model)
    of_optimizer = content[optimizer_key]
    if names is None and not all("param_names" in group for group in of_optimizer["param_groups"]):
        listed = sum(len(group["params"]) for group in of_optimizer["param_groups"])
        names = _in_torchs_order(content[model_key], model, state, rules, listed)
    if count is None and not tx.rule.counts:
        count = _scheduled(content.get(scheduler_key))
    optimizer = from_torch(of_optimizer, tx, model, rules=rules, names=names, count=count, wrt=_trained(state))
    tell_kept_rates(tx, optimizer, "PyTorch's optimizer")
    tell_scheduled_rates(tx, optimizer)
    state = state._replace(step=jnp.asarray(optimizer.count, jnp.int32), optimizer=optimizer)
    if scaling is not None:
        state = state._replace(scale=_scale(content[scaler_key], scaling))
    state = jax.tree.map(jnp.copy, state)
    return state if step.placement is None else step.placement.put_state(state)


def to_torch_checkpoint(
    state: TrainState,
    step: TrainStep,
    *,
    names: Sequence[str],
    rules: Iterable[WeightRule] = (),
    model_key: str = "model",
    optimizer_key: str = "optimizer",
    scaler_key: str = "scaler",
) -> dict[str, Any]:
    """What PyTorch goes on from: `{"model": ..., "optimizer": ...}` for `load_state_dict`, and `"scaler"` with float16.

    Args:
      state: of `step`.
      step: with an optimizer of `gm.optim`.
      names: PyTorch's names of the parameters in the order in which its optimizer got them: `[name for name, _ in
        reference.named_parameters()]`; `frozen` ones, which have no state there, with the others or left out.
      rules, model_key, optimizer_key, scaler_key: those of `from_torch_checkpoint`.

    Raises:
      ValueError: where the rules or names do not fit.
      TypeError: for an optimizer that is none of `gm.optim`.
      ImportError: where PyTorch is not installed.
    """
    from ..optim.torch_state import to_torch

    rules, tx, model = as_rules(rules), _optimizer(step), step.model(state)
    content: dict[str, Any] = {
        model_key: to_state_dict(model, rules),
        optimizer_key: to_torch(state.optimizer, tx, model, rules=rules, names=names, wrt=_trained(state)),
    }
    scaling: LossScaling | None = step.loss_scaling
    if scaling is not None and state.scale is not None:
        content[scaler_key] = {
            "scale": float(state.scale.value),
            **{name: getattr(scaling, name) for name in SCALER},
            "_growth_tracker": int(state.scale.growth_tracker),
        }
    return content


SCALER = ("growth_factor", "backoff_factor", "growth_interval")


def _check_kept(content: Mapping[str, Any], model_key: str, optimizer_key: str) -> None:
    """Both are dicts; Lightning keeps a list of optimizers'."""
    for name, key in {"model_key": model_key, "optimizer_key": optimizer_key}.items():
        kept = content[key]
        if isinstance(kept, Mapping):
            continue
        told = f"{name} is {key!r}, which is a {type(kept).__name__} in source, and a state_dict was wanted"
        if isinstance(kept, list | tuple):
            told += (
                f" ({len(kept)} in the {type(kept).__name__}): give source as {{{model_key!r}: source[{model_key!r}], "
            )
            told += f": give {{**source, {key!r}: source[{key!r}][0]}}, which is the first of {len(kept)}"
        raise TypeError(told)


def _scheduled(scheduler: Any) -> int | None:
    """How often a scheduler has stepped, by its state_dict; a ReduceLROnPlateau counts evaluations."""
    if not isinstance(scheduler, Mapping) or "num_bad_epochs" in scheduler:
        return None
    last = scheduler.get("last_epoch")
    return last if isinstance(last, int) and last >= 0 else None


def _optimizer(step: TrainStep) -> Optimizer:
    if not isinstance(step.optimizer, Optimizer):
        raise TypeError(f"step has {type(step.optimizer).__name__} as optimizer; PyTorch's state is one of gm.optim's")
    return step.optimizer


def _read(path: str | Path) -> Mapping[str, Any]:
    torch = import_torch(f"reading {Path(path).name}", instead="or give the dict that it holds")
    content = load_torch(
        torch, Path(path), argument="source", save="the state_dict() of model and optimizer, and nothing else"
    )
    if not isinstance(content, Mapping):
        raise ValueError(f"source is {path}, which holds a {type(content).__name__}, and a dict was wanted")
    return content


def _trained(state: TrainState) -> Any:
    paths = {path for path, _ in nnx.to_flat_state(state.params)}
    return lambda path, variable: tuple(path) in paths


def _in_torchs_order(
    state_dict: Mapping[str, Any], model: nnx.Module, state: TrainState, rules: tuple[WeightRule, ...], listed: int
) -> list[str]:
    """The keys of parameters: a state_dict goes through the modules as `parameters()` does.

    Of the trained ones, or of all, where PyTorch's optimizer was given as many.
    """
    trained = {".".join(map(str, path)) for path, _ in nnx.to_flat_state(state.params)}
    every = {".".join(map(str, path)) for path, _ in nnx.to_flat_state(nnx.state(model, nnx.Param))}
    plan, _ = make_plan(model, rules)

    def keys_of(paths: set[str]) -> list[str]:
        keys = {key for group in plan if any(leaf.path in paths for leaf in group.leaves) for key in group.keys}
        return [key for key in state_dict if key in keys]

    found = keys_of(trained)
    return whole if len(found) != listed == len(whole := keys_of(every)) else found


def _check_dtypes(ours: nnx.Module, theirs: nnx.Module) -> None:
    dtypes = [
        {".".join(map(str, path)): str(variable.get_raw_value().dtype) for path, variable in nnx.to_flat_state(found)}
        for found in (nnx.state(ours), nnx.state(theirs))
    ]
    if other := [
        f"{name} is {dtypes[1][name]}, here {dtype}" for name, dtype in dtypes[0].items() if dtypes[1][name] != dtype
    ]:
        raise ValueError(f"source has other dtypes than the step's model: {'; '.join(other)}; cast one of the two")


def _scale(scaler: Mapping[str, Any], scaling: LossScaling) -> Scale:
    if not {"scale", "_growth_tracker"} <= scaler.keys():
        raise ValueError("source has the state_dict of a scaler that is empty: it was made with enabled=False")
    if other := [
        f"{name} is {scaler[name]}, here {getattr(scaling, name)}"
        for name in SCALER
        if scaler[name] != getattr(scaling, name)
    ]:
        raise ValueError(f"source has another scaler than the step's loss_scaling: {'; '.join(other)}")
    return Scale(
        jnp.asarray(np.asarray(as_numpy(scaler["scale"])), jnp.float32),
        jnp.asarray(np.asarray(as_numpy(scaler["_growth_tracker"])), jnp.int32),
    )
