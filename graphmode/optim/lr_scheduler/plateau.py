"""Reduction of the learning rate when a metric stops improving: state on the host, no schedule of a count."""

from __future__ import annotations

import math
from typing import Any, Literal

import jax

from .arguments import as_lr, as_number, as_word

LearningRate = float | list[float] | tuple[float, ...]


class ReduceLROnPlateau:
    """Multiplies the learning rate by `factor` after more than `patience` steps without a better metric.

    It decides by a value, so it runs between graphs: give the learning rate to the graph as an argument, through
    `optax.inject_hyperparams` for instance.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.ReduceLROnPlateau.html

    Args:
      lr: the learning rate, or a list or tuple with one for each parameter group; for an optimizer of `gm.optim` first
        that of the parameters which no `Group` takes, then those of its `groups`.
      mode: `"min"` where a smaller metric is better, `"max"` where a greater one is.
      factor: what a reduction multiplies by, below 1.
      patience: steps without improvement that are let pass.
      threshold: how much better counts as better.
      threshold_mode: `"rel"`, as a part of the best metric so far, or `"abs"`.
      cooldown: steps after a reduction in which bad ones are not counted.
      min_lr: what no reduction goes below, or one for each parameter group.
      eps: a reduction by no more than this is left out.

    Raises:
      ValueError: where `factor` is 1 or more, `mode` or `threshold_mode` unknown, an `lr` negative, or `min_lr` has
        not one entry for each group.
      TypeError: where an argument is no number.

    Example:
      >>> scheduler = ReduceLROnPlateau(1.0, factor=0.5, patience=0)
      >>> [scheduler.step(loss) for loss in (3.0, 2.0, 2.0)]
      [1.0, 1.0, 0.5]
    """

    def __init__(
        self,
        lr: LearningRate,
        mode: Literal["min", "max"] = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: Literal["rel", "abs"] = "rel",
        cooldown: int = 0,
        min_lr: LearningRate = 0,
        eps: float = 1e-8,
    ):
        if as_number("factor", factor) >= 1:
            raise ValueError(f"factor is {factor!r}; give a factor below 1")
        self._groups = type(lr) if isinstance(lr, list | tuple) else None
        rates = list(lr) if isinstance(lr, list | tuple) else [lr]
        self._last_lr = [as_lr(f"lr[{i}]" if self._groups else "lr", one) for i, one in enumerate(rates)]
        if isinstance(min_lr, list | tuple):
            if len(min_lr) != len(rates):
                raise ValueError(f"min_lr has {len(min_lr)} entries for {len(rates)} parameter groups; give one each")
            self.default_min_lr = None
            self.min_lrs = [as_number(f"min_lr[{i}]", one) for i, one in enumerate(min_lr)]
        else:
            self.default_min_lr = as_number("min_lr", min_lr)
            self.min_lrs = [self.default_min_lr] * len(rates)
        self.mode = as_word("mode", mode, ("min", "max"))
        self.threshold_mode = as_word("threshold_mode", threshold_mode, ("rel", "abs"))
        self.factor = as_number("factor", factor)
        self.threshold = as_number("threshold", threshold)
        self.patience, self.cooldown = patience, cooldown
        self.eps = as_number("eps", eps)
        self.last_epoch = 0
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self.best = self.mode_worse
        self.cooldown_counter = self.num_bad_epochs = 0

    @property
    def lr(self) -> LearningRate:
        """The learning rate that stands: a float, or a list or tuple as it was given."""
        return self._groups(self._last_lr) if self._groups else self._last_lr[0]

    def _is_better(self, metric: float) -> bool:
        sign = -1 if self.mode == "min" else 1
        bound = self.best * (1 + sign * self.threshold) if self.threshold_mode == "rel" else self.best
        bound += sign * self.threshold if self.threshold_mode == "abs" else 0
        return metric < bound if self.mode == "min" else metric > bound

    def step(self, metrics: Any) -> LearningRate:
        """The learning rate after one more metric.

        Args:
          metrics: a float, or what `float` takes: a scalar array waits for the graph that computes it.

        Raises:
          TypeError: where it is traced, or no number.
        """
        if isinstance(metrics, jax.core.Tracer):
            raise TypeError("metrics is traced, and a number was wanted; step between graphs, with what a graph gave")
        current = as_number("metrics", metrics)
        self.last_epoch += 1
        if self._is_better(current):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            reduced = [max(old * self.factor, least) for old, least in zip(self._last_lr, self.min_lrs, strict=True)]
            pairs = zip(self._last_lr, reduced, strict=True)
            self._last_lr = [new if old - new > self.eps else old for old, new in pairs]
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        return self.lr

    def state_dict(self) -> dict[str, Any]:
        """The state under torch's keys; `_last_lr` is the learning rate, a list with one for each parameter group."""
        return {key: value for key, value in vars(self).items() if key != "_groups"} | {
            "min_lrs": list(self.min_lrs),
            "_last_lr": list(self._last_lr),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on where `state_dict` was taken, here or from torch's scheduler; its learning rate is taken too.

        Raises:
          ValueError: where a key is missing or unknown, or it has another number of parameter groups.
        """
        wanted = set(self.state_dict())
        if wrong := sorted(wanted ^ set(state_dict)):
            raise ValueError(f"state_dict lacks or has unknown keys {wrong}; give one of a ReduceLROnPlateau")
        if len(state_dict["_last_lr"]) != len(self._last_lr):
            raise ValueError(
                f"state_dict is of {len(state_dict['_last_lr'])} parameter groups, and this has {len(self._last_lr)}"
            )
        as_word("mode", state_dict["mode"], ("min", "max"))
        as_word("threshold_mode", state_dict["threshold_mode"], ("rel", "abs"))
        vars(self).update(state_dict)
        self.min_lrs, self._last_lr = list(self.min_lrs), [float(one) for one in self._last_lr]
        self.mode_worse = math.inf if self.mode == "min" else -math.inf
