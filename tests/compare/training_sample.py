"""A user's file with a training, and one whose port is wrong: what `graphmode train path/to/file.py:NAME` reads."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx
from graphmode.compare import Case
from graphmode.compare.training import Training
from graphmode.compare.training.torch_steps import as_kind

import graphmode as gm

FEATURES = 6


class Port(nnx.Module):
    def __init__(self, rngs):
        self.linear = gm.nn.Linear(FEATURES, 1, rngs=rngs)

    def __call__(self, x):
        return jnp.tanh(self.linear(x))


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(FEATURES, 1)

    def forward(self, x):
        return torch.tanh(self.linear(x))


def reference_step(module, kind):
    optimizer = torch.optim.Adam(module.parameters(), lr=0.05)

    def step(batch):
        optimizer.zero_grad()
        loss = ((module(batch["x"]) - batch["y"]) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return as_kind(step, kind, module, optimizer)


def loss(model, batch):
    return jnp.mean((model(batch["x"]) - batch["y"]) ** 2)


def batches(rng, count):
    for _ in range(count):
        x = rng.standard_normal((8, FEATURES)).astype(np.float32)
        yield {"x": x, "y": np.sin(x[:, :1])}


TRAINING = Training(
    name="regression",
    summary="a line through a sine",
    reference=Reference,
    model=Port,
    reference_step=reference_step,
    model_step=lambda model: gm.train_step(model, loss, gm.optim.adam(lr=0.05)),
    batches=batches,
    count=80,
    scores=(lambda model: {"bias": float(model.linear.bias)}, lambda model: {"bias": model.linear.bias[0]}),
)
WRONG_EPSILON = dataclasses.replace(
    TRAINING, model_step=lambda model: gm.train_step(model, loss, gm.optim.adam(lr=0.05, eps=1e-6))
)
IMPRECISE = dataclasses.replace(
    TRAINING,
    model_step=lambda model: gm.train_step(
        model,
        lambda model, batch: loss(model, batch) if batch["x"].dtype == jnp.float64 else rounded(model, batch),
        gm.optim.adam(lr=0.05),
    ),
)


def rounded(model, batch):
    return loss(model, {**batch, "x": batch["x"].astype(jnp.bfloat16).astype(jnp.float32)})


def rounded_reference_step(module, kind):
    step = reference_step(module, kind)

    def rounds(batch):
        x = batch["x"]
        return step({**batch, "x": x if x.dtype == torch.float64 else (x * 1024).round() / 1024})

    return rounds


ROUNDED = dataclasses.replace(TRAINING, reference_step=rounded_reference_step)
CASE = Case(
    name="regression_case",
    summary="the same as a case",
    reference=Reference,
    model=Port,
    inputs=lambda rng: (rng.standard_normal((8, FEATURES)),),
    loss=(lambda y: ((y - 1) ** 2).mean(), lambda y: jnp.mean((y - 1) ** 2)),
    optimizer=(lambda parameters: torch.optim.SGD(parameters, lr=0.1), gm.optim.sgd(lr=0.1)),
)
WRONG_CASE = dataclasses.replace(CASE, optimizer=(CASE.optimizer[0], gm.optim.sgd(lr=0.2)))
WITHOUT_LOSS = dataclasses.replace(CASE, loss=None)
FEW = dataclasses.replace(TRAINING, batches=lambda rng, count: list(batches(rng, 3)))
NOT_FINITE = dataclasses.replace(
    TRAINING,
    batches=lambda rng, count: [{"x": np.full((8, FEATURES), np.nan, np.float32), "y": np.ones((8, 1), "f")}] * count,
)


class EmbeddedReference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(9, FEATURES)
        self.linear = torch.nn.Linear(FEATURES, 1)

    def forward(self, x):
        rows = self.table((x[:, :3].abs() * 4).long())
        return self.linear(rows[:, 0] * rows[:, 1] + rows[:, 2])


class EmbeddedPort(nnx.Module):
    def __init__(self, rngs):
        self.table = nnx.Embed(9, FEATURES, rngs=rngs)
        self.linear = gm.nn.Linear(FEATURES, 1, rngs=rngs)

    def __call__(self, x):
        rows = self.table((abs(x[:, :3]) * 4).astype(int))
        return self.linear(rows[:, 0] * rows[:, 1] + rows[:, 2])


class AttendingReference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(FEATURES, 3 * FEATURES)

    def forward(self, x):
        q, k, v = (20 * self.linear(x)).reshape(1, len(x), 3, FEATURES).unbind(2)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)[0, :, :1]


class AttendingPort(nnx.Module):
    def __init__(self, rngs):
        self.linear = gm.nn.Linear(FEATURES, 3 * FEATURES, rngs=rngs)

    def __call__(self, x):
        q, k, v = jnp.moveaxis((20 * self.linear(x)).reshape(1, len(x), 3, 1, FEATURES), 2, 0)
        return jax.nn.dot_product_attention(q, k, v)[0, :, 0, :1]


EMBEDDED = dataclasses.replace(
    TRAINING,
    reference=EmbeddedReference,
    model=EmbeddedPort,
    batches=lambda rng, count: ({**each, "x": each["x"].clip(-2, 2)} for each in batches(rng, count)),
    scores=None,
)
ATTENDING = dataclasses.replace(TRAINING, reference=AttendingReference, model=AttendingPort, scores=None)
