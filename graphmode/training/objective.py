"""A model and its loss as a pure function of the model's variables, trained ones and others."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Literal

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from flax import nnx

from ..nn.autocast import autocast
from ..weights.conventions import LOADED_AS, TRANSFORM, leaves
from ..weights.transforms import IDENTITY
from .intercept import Hook, intercepted
from .loss import Loss, as_loss
from .loss_scaling import Scale
from .remat import check_pattern, rematerialised

LOG = logging.getLogger(__name__)
Frozen = str | Callable[[str, nnx.Variable], bool]
Precision = Literal["float32", "bfloat16", "float16"]


class Objective:
    """What a training step differentiates.

    Args:
      model: taken apart here, and never changed.
      loss: `(model, batch)` to what `as_loss` reads.
      frozen: parameters that are not trained: a pattern of their names, or a function of name and variable.
      precision: other than float32 runs the loss under `autocast`.
      remat: a pattern of the paths of modules that are computed again in the backward pass.

    Attributes:
      params: the trained parameters, which carry how PyTorch lays them out.
      rest: all other variables.
    """

    def __init__(
        self,
        model: nnx.Module,
        loss: Callable[[Any, Any], Any],
        *,
        frozen: Frozen | None,
        precision: Precision,
        remat: str | None,
    ):
        self._loss, self._precision, self._remat = loss, precision, remat
        self._told: set[str] = set()
        self._frozen = _frozen(model, frozen)
        self._refuse_complex(model)
        self._graphdef, params, rest = self.split(model)
        self.params = jax.tree.map(lambda x: x, params)  # variables of its own, of the same arrays; so is `rest`
        self.rest, self._loaded_as = _without_dtypes(rest)
        if not jax.tree.leaves(self.params):
            raise ValueError("the model has no parameters to train: no nnx.Param that frozen leaves")
        self._structure = jax.tree.structure(self.params)
        self._note_layouts(model)
        with rematerialised(model, remat):
            pass  # a pattern that matches nothing is refused here

    def __call__(
        self, params: Any, rest: Any, batch: Any, scale: Scale | None, *, through: Hook | None = None
    ) -> tuple[jax.Array, tuple[Loss, Any, Any]]:
        """The scaled loss; what the loss function gave, and the variables after it. `through` sees each call of a
        module."""
        model = nnx.merge(self._graphdef, params, rest, copy=True)
        device = "cpu" if jax.default_backend() == "cpu" else "cuda"
        casting = nullcontext() if self._precision == "float32" else autocast(self._precision, device_type=device)
        looking = nullcontext() if through is None else intercepted(model, through)
        before = _numbers(model)
        with rematerialised(model, self._remat), looking, casting:
            found = as_loss(self._loss(model, batch))
        self._tell_lost(before, _numbers(model))
        _, after, others = self.split(model)
        self._check_structure(after, others)
        value = found.value if scale is None else found.value.astype(jnp.float32) * scale.value
        return value, (found, after, others)

    def check_variables(self, params: Any, rest: Any) -> None:
        """Raises `ValueError` where a state's variables are not those of the model."""
        wanted, found = ({**_types(p), **_types(r)} for p, r in ((self.params, self.rest), (params, rest)))
        if wanted == found:
            return
        name = next(name for name in {**wanted, **found} if wanted.get(name) != found.get(name))
        told = {True: f"has a variable {name}, and the model has none", False: f"has no variable {name}"}[name in found]
        if name in wanted and name in found:
            told = f"has {found[name]} as {name}, and the model {wanted[name]}"
        raise ValueError(f"state is of another model: it {told}; give one of this step: step.init()")

    def split(self, model: nnx.Module) -> tuple[Any, Any, Any]:
        """Its structure, the trained parameters, and all else."""
        found: Any = nnx.split(model, self._is_trained, ..., graph=True)
        return found

    def of_other_values(self, model: nnx.Module) -> tuple[Any, Any]:
        """The variables of a model of the same structure.

        Raises:
          ValueError: where it has another one.
        """
        _, params, rest = self.split(model)
        rest, loaded_as = _without_dtypes(rest)
        own: Any = jax.tree.structure((self.params, self.rest))
        if jax.tree.structure((params, rest)) != own:
            raise ValueError("model has other variables than the step's own; give one of step.model(state)")
        self._loaded_as = loaded_as
        return params, rest

    def model(self, params: Any, rest: Any) -> nnx.Module:
        """A module with these values."""
        bare = jax.tree.unflatten(self._structure, jax.tree.leaves(params))  # without the noted layouts
        rest = jax.tree.map(lambda x: x, rest)
        for path, variable in nnx.to_flat_state(rest):
            if (dtype := self._loaded_as.get(path)) is not None:
                variable.set_metadata(LOADED_AS, dtype)
        return nnx.merge(self._graphdef, bare, rest)

    def evaluated(self, params: Any, rest: Any) -> nnx.Module:
        """A module of these values, traced or not, in evaluation mode."""
        model = nnx.merge(self._graphdef, params, rest, copy=True)
        return nnx.view(model, deterministic=True, use_running_average=True, raise_if_not_found=False)

    def _refuse_complex(self, model: nnx.Module) -> None:
        for path, variable in nnx.to_flat_state(nnx.state(model, nnx.Param)):
            name, dtype = ".".join(map(str, path)), variable.get_raw_value().dtype
            if jnp.issubdtype(dtype, jnp.complexfloating) and name not in self._frozen:
                raise TypeError(
                    f"the parameter {name} is {dtype}, and a step trains floating ones: JAX's gradient of a complex "
                    "one is the conjugate of PyTorch's, whose optimizers take its two parts for two numbers; hold "
                    "these as two parameters and make the complex number of them, or name it in frozen"
                )

    def _is_trained(self, path: Any, variable: Any) -> bool:
        name = ".".join(map(str, path))
        return isinstance(variable, nnx.Param) and name not in self._frozen and _is_floating(variable)

    def _check_structure(self, params: Any, rest: Any) -> None:
        for before, after in ((self.params, params), (self.rest, rest)):
            old, new = _types(before), _types(after)
            structure: Any = jax.tree.structure(before)
            if old.keys() != new.keys() or structure != jax.tree.structure(after):
                raise ValueError(
                    f"the loss changes which variables the model has: adds {sorted(new.keys() - old.keys())}, removes "
                    f"{sorted(old.keys() - new.keys())}. A step keeps one structure: make them when the model is made, "
                    "or take intermediates out with nnx.pop inside the loss"
                )
            if changed := [name for name in old if old[name] != new[name]]:
                name = changed[0]
                raise ValueError(
                    f"the loss makes the variable {name} {new[name]}, and it was {old[name]}; a step keeps shapes and "
                    "dtypes: cast what is assigned to it"
                )

    def _tell_lost(self, before: dict[str, float], after: dict[str, float]) -> None:
        """Warns in the log, once for each, of a Python number that the loss counts on: a graph holds arrays alone."""
        for name in before.keys() & after.keys() - self._told:
            if before[name] != after[name]:
                self._told.add(name)
                LOG.warning(
                    "the loss sets the model's %s to %s, and each step begins with %s again, since a Python number is "
                    "no part of the state; hold it as an array in an nnx.Variable", name, after[name], before[name]
                )  # fmt: skip

    def _note_layouts(self, model: nnx.Module) -> None:
        """Variables whose layout follows from the type of their module carry it themselves, for the optimizer."""
        layouts = {leaf.path: leaf.transform for leaf in leaves(model) if leaf.transform != IDENTITY}
        for path, variable in nnx.to_flat_state(self.params):
            if (layout := layouts.get(".".join(map(str, path)))) and not variable.has_metadata(TRANSFORM):
                variable.set_metadata(TRANSFORM, layout)


def _numbers(model: nnx.Module) -> dict[str, float]:
    """The Python numbers that its modules hold as attributes, by name."""
    found: dict[str, float] = {}
    for path, node in nnx.iter_graph(model):
        if isinstance(node, nnx.Module):
            for name, value in vars(node).items():
                if type(value) in (int, float) and not name.startswith("_"):
                    found[".".join(map(str, (*path, name)))] = value
    return found


def _frozen(model: nnx.Module, frozen: Frozen | None) -> set[str]:
    if frozen is None:
        return set()
    if not callable(frozen):
        check_pattern("frozen", frozen)
    is_frozen = frozen if callable(frozen) else lambda name, _: re.search(frozen, name) is not None
    params = {".".join(map(str, path)): v for path, v in nnx.to_flat_state(nnx.state(model, nnx.Param, graph=True))}
    found = {name for name, variable in params.items() if is_frozen(name, variable)}
    if not found:
        raise ValueError(f"frozen is {frozen!r}, which holds no parameter; there are {', '.join(list(params)[:5])}")
    return found


def _without_dtypes(variables: Any) -> tuple[Any, dict[Any, str]]:
    """Without what loading notes on a variable, which is no part of a state's structure; and that, by path."""
    variables = jax.tree.map(lambda x: x, variables)
    found = {}
    for path, variable in nnx.to_flat_state(variables):
        if variable.has_metadata(LOADED_AS):
            found[path] = variable.get_metadata(LOADED_AS)
            variable.del_metadata(LOADED_AS)
    return variables, found


def _is_floating(variable: nnx.Variable) -> bool:
    return jnp.issubdtype(variable.get_raw_value().dtype, jnp.floating)


def _types(variables: Any) -> dict[str, str]:
    """Dtype and shape of each, by name."""
    found = {}
    for path, array in jtu.tree_leaves_with_path(variables):
        name = jtu.keystr(path, simple=True, separator=".").removesuffix(".value")
        found[name] = f"{jax.dtypes.canonicalize_dtype(array.dtype, allow_extended_dtype=True)}{list(array.shape)}"
    return found
