"""Bugs in normalisation: epsilons, momentum, statistics, axes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

import graphmode.nn.functional as F

from ..edits import attributes, methods, planted, received, variable
from ..plant import Plant


def biased(norm: Any, x: jax.Array) -> jax.Array:
    """A call whose running variance moves to the biased variance of the batch, as Flax's does."""
    before = norm.running_var.get_value()
    output = super(type(norm), norm).__call__(x)
    if not norm.use_running_average:
        kept, count = before * (1 - norm.momentum), x.size // x.shape[-1]
        norm.running_var.set_value(kept + (norm.running_var.get_value() - kept) * (count - 1) / count)
    return output


def with_statistics(*, running: bool) -> Any:
    return methods(call=lambda self, x: super(type(self), self).__call__(x, use_running_average=running))


def over_time(norm: Any, x: jax.Array) -> jax.Array:
    """A layer norm over the time axis, in place of the features."""
    centred = x - x.mean(1, keepdims=True)
    return centred / jnp.sqrt(x.var(1, keepdims=True) + norm.eps) * norm.weight[...] + norm.bias[...]


def with_ddof(norm: Any, x: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt(x.var(-1, keepdims=True, ddof=1) + norm.eps) * norm.weight[...] + norm.bias[...]


def with_eps_outside(norm: Any, x: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / (jnp.sqrt(x.var(-1, keepdims=True)) + norm.eps) * norm.weight[...] + norm.bias[...]


def over_all(norm: Any, x: jax.Array) -> jax.Array:
    """An instance norm with the statistics of the whole batch."""
    return F.batch_norm(x, None, None, norm.weight[...], norm.bias[...], training=True, eps=norm.eps)


def centred(x: jax.Array) -> jax.Array:
    return x - x.mean(-1, keepdims=True)


PLANTS: list[Plant] = [
    *planted("layer-norm-eps", "encoder", "blocks.0.norm1", "blocks.1.norm2", "norm", edit=attributes(eps=1e-6)),
    *planted("rms-norm-eps", "decoder", "first.norm1", "second.norm2", "norm", edit=attributes(eps=1e-6)),
    *planted("batch-norm-eps", "trained_sgd", "norm", edit=attributes(eps=1e-3)),
    *planted("batch-norm-eps", "conv_net", "norm1", "norm3", edit=attributes(eps=1e-3)),
    *planted("group-norm-eps", "conv_net", "norm2", edit=attributes(eps=1e-6)),
    *planted("instance-norm-eps", "upsampler", "norm", edit=attributes(eps=1e-3)),
    *planted("eps-outside-root", "encoder", "blocks.0.norm2", "norm", edit=methods(call=with_eps_outside)),
    *planted("batch-norm-momentum", "trained_sgd", "norm", edit=attributes(momentum=0.9)),
    *planted("batch-norm-momentum", "conv_net", "norm1", "norm3", edit=attributes(momentum=0.9)),
    *planted("running-variance-biased", "trained_adam", "norm", edit=methods(call=biased)),
    *planted("running-variance-biased", "conv_net", "norm1", "norm3", edit=methods(call=biased)),
    *planted("batch-statistics-in-evaluation", "trained_adam", "norm", edit=with_statistics(running=False)),
    *planted("batch-statistics-in-evaluation", "conv_net", "norm1", edit=with_statistics(running=False)),
    *planted("running-statistics-in-training", "trained_adamw", "norm", edit=with_statistics(running=True)),
    *planted("running-statistics-in-training", "conv_net", "norm3", edit=with_statistics(running=True)),
    *planted("running-statistics-frozen", "trained_rmsprop", "norm", edit=methods(_keep=lambda self, mean, var: None)),
    *planted("running-statistics-frozen", "conv_net", "norm1", edit=methods(_keep=lambda self, mean, var: None)),
    *planted("norm-groups", "conv_net", "norm2", edit=attributes(num_groups=2)),
    *planted("norm-axis", "encoder", "blocks.1.norm1", "norm", edit=methods(call=over_time)),
    *planted("norm-over-batch", "upsampler", "norm", edit=methods(call=over_all)),
    *planted("variance-ddof", "encoder", "blocks.0.norm1", "norm", edit=methods(call=with_ddof)),
    *planted("variance-ddof", "losses", "", edit=methods(spread=lambda self, x: jnp.var(x, 0))),
    *planted(
        "rms-norm-centred", "decoder", "first.norm2", "norm", edit=received(lambda x: x - x.mean(-1, keepdims=True))
    ),
    *planted("norm-weight-plus-one", "decoder", "second.norm1", "norm", edit=variable("weight", lambda w: 1 + w)),
]
