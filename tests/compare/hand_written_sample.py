"""Training scripts whose port is written by hand: an adversarial pair with two optimizers, and chains of optax's."""

import dataclasses

import jax
import jax.numpy as jnp
import normed_sample
import optax
import torch
import torch.nn.functional as TF
from flax import nnx
from graphmode.compare.training import Training
from graphmode.compare.training.torch_steps import as_kind

import graphmode as gm

NOISE, DATA, ROWS = 3, 4, 8
CLIP, ADAMW = optax.clip_by_global_norm(0.5), optax.adamw(0.01, weight_decay=0.1)


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = torch.nn.Sequential(torch.nn.Linear(NOISE, 8), torch.nn.ReLU(), torch.nn.Linear(8, DATA))
        self.critic = torch.nn.Sequential(torch.nn.Linear(DATA, 8), torch.nn.LeakyReLU(0.2), torch.nn.Linear(8, 1))


class Port(nnx.Module):
    def __init__(self, rngs):
        nn = gm.nn
        self.generator = nn.Sequential(nn.Linear(NOISE, 8, rngs=rngs), nn.ReLU(), nn.Linear(8, DATA, rngs=rngs))
        self.critic = nn.Sequential(nn.Linear(DATA, 8, rngs=rngs), nn.LeakyReLU(0.2), nn.Linear(8, 1, rngs=rngs))


def reference_step(module, kind):
    generator, critic = module.generator, module.critic
    ours = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
    theirs = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.999))

    def step(batch):
        noise, real = batch
        fake = generator(noise)
        theirs.zero_grad()
        right = TF.softplus(-critic(real)).mean() + TF.softplus(critic(fake.detach())).mean()
        right.backward()
        theirs.step()
        ours.zero_grad()
        fooled = TF.softplus(-critic(fake)).mean()
        fooled.backward()
        ours.step()
        return (right + fooled).detach()

    return as_kind(step, kind, module, ours, theirs)


def model_step(*, rate=2e-3, beta=0.5, reaches=True, critic_first=True, anew=False):
    """The port's, right by default; each argument is something that a port gets wrong."""

    def made(model):
        ours = nnx.Optimizer(model.generator, optax.adam(2e-3, b1=0.5), wrt=nnx.Param)
        theirs = nnx.Optimizer(model.critic, optax.adam(rate, b1=beta), wrt=nnx.Param)

        def step(model, ours, theirs, noise, real):
            first, second = (critic_step, generator_step) if critic_first else (generator_step, critic_step)
            fake = jax.lax.stop_gradient(model.generator(noise))
            given = {critic_step: (theirs, fake, real), generator_step: (ours, noise, reaches)}
            return first(model, *given[first]) + second(model, *given[second])

        compiled = nnx.jit(step)
        if anew:
            return lambda batch: nnx.jit(lambda *given: step(*given))(model, ours, theirs, *batch)
        return lambda batch: compiled(model, ours, theirs, *batch)

    return made


def critic_step(model, optimizer, fake, real):
    def loss(critic):
        return jnp.mean(jax.nn.softplus(-critic(real))) + jnp.mean(jax.nn.softplus(critic(fake)))

    value, gradients = nnx.value_and_grad(loss)(model.critic)
    optimizer.update(model.critic, gradients)
    return value


def generator_step(model, optimizer, noise, reaches):
    def loss(generator):
        fake = generator(noise)
        return jnp.mean(jax.nn.softplus(-model.critic(fake if reaches else jax.lax.stop_gradient(fake))))

    value, gradients = nnx.value_and_grad(loss)(model.generator)
    optimizer.update(model.generator, gradients)
    return value


def batches(rng, count):
    for _ in range(count):
        yield rng.standard_normal((ROWS, NOISE)).astype("f"), (1 + rng.standard_normal((ROWS, DATA))).astype("f")


PAIR = Training(
    name="adversarial",
    summary="two networks, each with an optimizer of its own",
    reference=Reference,
    model=Port,
    reference_step=reference_step,
    model_step=model_step(),
    batches=batches,
    count=70,
    scores=(
        lambda module: {"mean": module.generator(torch.ones(NOISE).to(module.critic[0].weight)).mean().item()},
        lambda model: {"mean": jnp.mean(model.generator(jnp.ones(NOISE, model.critic[0].weight.dtype)))},
    ),
)


def chain(*parts, loss=normed_sample.squared_error, clip=None):
    """A port's script of one optimizer, a chain of these, whose gradients are clipped before as PyTorch does."""

    def made(model):
        optimizer = nnx.Optimizer(model, optax.chain(*parts) if len(parts) > 1 else parts[0], wrt=nnx.Param)

        @nnx.jit
        def step(model, optimizer, batch):
            value, gradients = nnx.value_and_grad(loss)(model, batch)
            if clip is not None:
                gradients, _ = gm.optim.clip_grad_norm(gradients, clip)
            optimizer.update(model, gradients)
            return value

        return lambda batch: step(model, optimizer, batch)

    return made


def again_and_again(step_of):
    """A script that makes three steps of each batch, and gives the last one's loss."""

    def made(*given):
        step = step_of(*given)
        return lambda batch: [step(batch) for _ in range(3)][-1]

    return made


def on_a_copy(model):
    return chain(ADAMW, clip=0.5)(nnx.clone(model))


def halved(model, batch):
    return normed_sample.squared_error(model, batch) / 2


def stopped(model, batch):
    hidden = jax.lax.stop_gradient(model.norm(model.first(batch["x"])))
    return jnp.mean((model.last(jax.nn.relu(hidden)) - batch["y"]) ** 2)


def clipped(module, kind):
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01, weight_decay=0.1)

    def step(batch):
        optimizer.zero_grad()
        loss = ((module(batch["x"]) - batch["y"]) ** 2).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 0.5)
        optimizer.step()
        return loss.detach()

    return as_kind(step, kind, module, optimizer)


def functional(model, squared_error=normed_sample.squared_error):
    """Parameters apart from the module, which gets them at the end of each step."""
    graphdef, parameters, rest = nnx.split(model, nnx.Param, ...)
    state = ADAMW.init(parameters)

    @jax.jit
    def stepped(parameters, rest, state, batch):
        def loss(parameters):
            module = nnx.merge(graphdef, parameters, rest, copy=True)
            value = squared_error(module, batch)
            return value, nnx.state(module, nnx.Not(nnx.Param))

        (value, rest), gradients = jax.value_and_grad(loss, has_aux=True)(parameters)
        gradients, _ = gm.optim.clip_grad_norm(gradients, 0.5)
        updates, state = ADAMW.update(gradients, state, parameters)
        return value, optax.apply_updates(parameters, updates), rest, state

    def step(batch):
        nonlocal parameters, rest, state
        value, parameters, rest, state = stepped(parameters, rest, state, batch)
        nnx.update(model, parameters, rest)
        return value

    return step


CHAIN = dataclasses.replace(normed_sample.RIGHT, reference_step=clipped, model_step=chain(ADAMW, clip=0.5))
FUNCTIONAL = dataclasses.replace(CHAIN, model_step=functional)
REPEATED = dataclasses.replace(
    CHAIN, reference_step=again_and_again(clipped), model_step=again_and_again(CHAIN.model_step)
)
