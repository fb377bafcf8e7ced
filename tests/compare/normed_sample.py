"""Trainings whose faults the losses do not show: running statistics, averages, precision; and some that draw."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx
from graphmode.compare.training import Training
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import graphmode as gm

FEATURES, HIDDEN = 6, 8


class Reference(torch.nn.Module):
    def __init__(self, p=0.0):
        super().__init__()
        self.first = torch.nn.Linear(FEATURES, HIDDEN)
        self.norm = torch.nn.BatchNorm1d(HIDDEN)
        self.drop = torch.nn.Dropout(p)
        self.last = torch.nn.Linear(HIDDEN, 1)

    def forward(self, x):
        return self.last(self.drop(torch.relu(self.norm(self.first(x)))))


class Port(nnx.Module):
    def __init__(self, rngs, p=0.0, momentum=0.1):
        self.first = gm.nn.Linear(FEATURES, HIDDEN, rngs=rngs)
        self.norm = gm.nn.BatchNorm1d(HIDDEN, momentum=momentum)
        self.drop = gm.nn.Dropout(p, rngs=rngs)
        self.last = gm.nn.Linear(HIDDEN, 1, rngs=rngs)

    def __call__(self, x):
        return self.last(self.drop(jax.nn.relu(self.norm(self.first(x)))))


def step_of(make=lambda p: torch.optim.SGD(p, lr=0.05), autocast=None, averaged=None):
    def reference_step(module, kind):
        optimizer = make(module.parameters())
        average = averaged and ema(averaged(module))

        def step(batch):
            optimizer.zero_grad()
            with torch.autocast("cpu", autocast or torch.bfloat16, enabled=autocast is not None):
                loss = ((module(batch["x"]) - batch["y"]) ** 2).mean()
            loss.backward()
            optimizer.step()
            if averaged:
                average.update_parameters(averaged(module))
            return loss.detach()

        return step

    return reference_step


def ema(module):
    return AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(0.9))


def squared_error(model, batch):
    return jnp.mean((model(batch["x"]) - batch["y"]) ** 2)


def port_step(optimizer=None, **options):
    return lambda model: gm.train_step(model, squared_error, optimizer or gm.optim.sgd(lr=0.05), **options)


def batches(rng, count):
    for _ in range(count):
        x = rng.standard_normal((8, FEATURES)).astype(np.float32)
        yield {"x": x, "y": np.sin(x[:, :1])}


def evaluated(model):
    kind = next(model.parameters())
    return {"at one": model(torch.ones(1, FEATURES).to(kind)).item()}


RIGHT = Training(
    name="normed",
    summary="a norm between two layers",
    reference=Reference,
    model=Port,
    reference_step=step_of(),
    model_step=port_step(),
    batches=batches,
    count=12,
    scores=(evaluated, lambda model: {"at one": model(jnp.ones((1, FEATURES), model.last.bias.dtype)).item()}),
)
change = dataclasses.replace
MOMENTUM = change(RIGHT, model=lambda rngs: Port(rngs, momentum=0.01))
SCORE = change(RIGHT, scores=(RIGHT.scores[0], lambda model: {"at one": 0.5}))
# the bias before the norm has a gradient of rounding alone, which makes a whole step here
SIGNS = change(
    RIGHT,
    reference_step=step_of(lambda p: torch.optim.Adam(p, lr=0.01, eps=1e-30)),
    model_step=port_step(gm.optim.adam(lr=0.01, eps=1e-30)),
)
EMA = change(
    RIGHT,
    reference_step=step_of(averaged=lambda module: module),
    model_step=port_step(averaging=gm.optim.ema(0.9)),
)
EMA_OF_A_PART = change(EMA, reference_step=step_of(averaged=lambda module: module.last))
EMA_DECAY = change(EMA, model_step=port_step(averaging=gm.optim.ema(0.5)))

NARROW = change(RIGHT, count=70, reference_step=step_of(autocast=torch.bfloat16))
NARROW_BOTH = change(NARROW, model_step=port_step(precision="bfloat16"))
DRAWN = change(RIGHT, reference=lambda: Reference(0.2), model=lambda rngs: Port(rngs, 0.2))
DRAWN_BY_REFERENCE = change(RIGHT, reference=DRAWN.reference)
DRAWN_BY_PORT = change(RIGHT, model=DRAWN.model)


def step_that_draws_for_nothing(module, kind):
    step = step_of()(module, kind)

    def draws(batch):
        torch.rand(1)
        return step(batch)

    return draws


DRAWN_FOR_NOTHING = change(RIGHT, reference_step=step_that_draws_for_nothing)
LATE = change(
    RIGHT,
    count=30,
    model_step=port_step(gm.optim.sgd(lr=lambda count: 0.05 * 2.0 ** (count >= 4))),  # another rate from step 4 on
)
SEVERAL = change(RIGHT, model_step=lambda model: (port_step()(model), port_step()(model)))
