"""Bugs in losses and optimizers."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax

import graphmode as gm
import graphmode.nn.functional as F

from ....case import Case
from ..edits import attributes, methods, output, planted, variable
from ..plant import Plant
from ..specimens.trained import (
    ADAM_ARGUMENTS,
    NESTEROV_ARGUMENTS,
    RMSPROP_ARGUMENTS,
    SGD_ARGUMENTS,
    OfWhatHasGradients,
    loss,
)


def per_row(module: Any, logits: jax.Array, classes: jax.Array) -> jax.Array:
    """Divided by the number of rows, and not by the sum of their weights."""
    return F.cross_entropy(logits, classes, module.weight[...], reduction="sum") / len(classes)


def with_loss(kind: str, specimen: str, site: str, **options: Any) -> Plant:
    def change(case: Case) -> Case:
        assert case.loss is not None
        return dataclasses.replace(case, loss=(case.loss[0], functools.partial(loss, **options)))

    return Plant(kind=kind, specimen=specimen, site=site, change=change, place="outside", modules=("",))


def stepping(kind: str, specimen: str, optimizer: Any) -> Plant:
    """Another optimizer on the port's side."""

    def change(case: Case) -> Case:
        assert case.optimizer is not None
        return dataclasses.replace(case, optimizer=(case.optimizer[0], OfWhatHasGradients(optimizer)))

    return Plant(kind=kind, specimen=specimen, site="optimizer", change=change, place="optimizer")


def of_all(kind: str, specimen: str) -> Plant:
    """The optimizer steps parameters without a gradient, too."""

    def change(case: Case) -> Case:
        assert case.optimizer is not None
        left_out: Any = case.optimizer[1]
        return dataclasses.replace(case, optimizer=(case.optimizer[0], left_out.optimizer))

    return Plant(kind=kind, specimen=specimen, site="optimizer", change=change, place="optimizer")


def adamw_of_optax() -> Any:
    return optax.chain(optax.add_decayed_weights(ADAM_ARGUMENTS["weight_decay"]), root_inside())


def root_inside() -> Any:
    return optax.adam(ADAM_ARGUMENTS["lr"], eps=0.0, eps_root=ADAM_ARGUMENTS["eps"])


class Plain:
    """An optimizer of optax on the values alone, which takes no word on absent gradients."""

    def __init__(self, optimizer: Any):
        self.init = optimizer.init
        self._optimizer = optimizer

    def update(self, updates: Any, state: Any, params: Any = None, *, present: Any = None) -> tuple[Any, Any]:
        return self._optimizer.update(updates, state, params)


PLANTS: list[Plant] = [
    *planted("loss-reduction", "losses", "huber", edit=attributes(reduction="sum")),
    *planted("loss-reduction", "losses", "square", edit=attributes(reduction="mean")),
    *planted("ignore-index-counted", "losses", "smooth", edit=attributes(ignore_index=-100)),
    *planted("label-smoothing", "losses", "smooth", edit=attributes(label_smoothing=0.0)),
    *planted("label-smoothing", "losses", "smooth", edit=attributes(label_smoothing=0.1 * 5 / 4)),
    *planted("class-weight-missing", "losses", "weighted", edit=variable("weight", jnp.ones_like)),
    *planted("loss-normaliser", "losses", "weighted", edit=methods(call=per_row)),
    *planted("loss-parameter", "losses", "huber", edit=attributes(delta=1.0)),
    *planted("loss-scale", "losses", "square", edit=output(lambda x: x / 2)),
    with_loss("ignore-index-counted", "trained_sgd", "loss", ignore_index=-100),
    with_loss("loss-reduction", "trained_adam", "loss", reduction="sum"),
    with_loss("label-smoothing", "trained_adamw", "loss", label_smoothing=0.1),
    stepping("learning-rate", "trained_sgd", gm.optim.sgd(**{**SGD_ARGUMENTS, "lr": 0.01})),
    stepping("learning-rate", "trained_adam", gm.optim.adam(**{**ADAM_ARGUMENTS, "lr": 0.001})),
    stepping("decay-coupled", "trained_adamw", gm.optim.adam(**ADAM_ARGUMENTS)),
    stepping("decay-decoupled", "trained_adam", gm.optim.adamw(**ADAM_ARGUMENTS)),
    stepping("decay-missing", "trained_sgd", gm.optim.sgd(**{**SGD_ARGUMENTS, "weight_decay": 0.0})),
    stepping("decay-missing", "trained_adamw", gm.optim.adamw(**{**ADAM_ARGUMENTS, "weight_decay": 0.0})),
    stepping("dampening-missing", "trained_sgd", gm.optim.sgd(**{**SGD_ARGUMENTS, "dampening": 0.0})),
    stepping("momentum", "trained_nesterov", gm.optim.sgd(**{**NESTEROV_ARGUMENTS, "momentum": 0.5})),
    stepping("nesterov-missing", "trained_nesterov", gm.optim.sgd(**{**NESTEROV_ARGUMENTS, "nesterov": False})),
    stepping("optimizer-eps", "trained_adam", gm.optim.adam(**{**ADAM_ARGUMENTS, "eps": 1e-8})),
    stepping("optimizer-eps", "trained_rmsprop", gm.optim.rmsprop(**{**RMSPROP_ARGUMENTS, "eps": 1e-8})),
    stepping(
        "optimizer-eps-inside-root",
        "trained_rmsprop",
        Plain(optax.rmsprop(0.02, decay=0.9, eps=1e-4, eps_in_sqrt=True, momentum=0.5)),
    ),
    stepping("optimizer-eps-inside-root", "trained_adam", Plain(adamw_of_optax())),
    stepping("optimizer-betas", "trained_adam", gm.optim.adam(**ADAM_ARGUMENTS, betas=(0.9, 0.99))),
    stepping("optimizer-betas", "trained_rmsprop", gm.optim.rmsprop(**{**RMSPROP_ARGUMENTS, "alpha": 0.99})),
    of_all("absent-gradient-as-zero", "trained_sgd"),
    of_all("absent-gradient-as-zero", "trained_adam"),
    of_all("absent-gradient-as-zero", "trained_adamw"),
]
