"""Distributions that a draft has a copy of, where it needs them: what PyTorch's of the same names give."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp


class Normal:
    """`torch.distributions.Normal`."""

    def __init__(self, loc: jax.Array | float, scale: jax.Array | float):
        self.loc, self.scale = jnp.broadcast_arrays(loc, scale)

    @property
    def mean(self) -> jax.Array:
        return self.loc

    @property
    def stddev(self) -> jax.Array:
        return self.scale

    @property
    def variance(self) -> jax.Array:
        return self.scale**2

    def log_prob(self, value: jax.Array) -> jax.Array:
        deviation = (value - self.loc) ** 2 / (2 * self.scale**2)
        return -deviation - jnp.log(self.scale) - math.log(math.sqrt(2 * math.pi))

    def entropy(self) -> jax.Array:
        return 0.5 + 0.5 * math.log(2 * math.pi) + jnp.log(self.scale)

    def rsample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        shape = (*sample_shape, *self.loc.shape)
        return self.loc + self.scale * jax.random.normal(key, shape, self.loc.dtype)


class Categorical:
    """`torch.distributions.Categorical`."""

    def __init__(self, probs: jax.Array | None = None, logits: jax.Array | None = None):
        if logits is not None:
            self.logits = jax.nn.log_softmax(logits)
            self.probs = jax.nn.softmax(logits)
        else:
            assert probs is not None
            self.probs = probs / probs.sum(-1, keepdims=True)
            least = jnp.finfo(self.probs.dtype).eps
            self.logits = jnp.log(jnp.clip(self.probs, least, 1 - least))

    def log_prob(self, value: jax.Array) -> jax.Array:
        value = value.astype(int)[..., None]
        shape = jnp.broadcast_shapes(value.shape[:-1], self.logits.shape[:-1])
        logits = jnp.broadcast_to(self.logits, (*shape, self.logits.shape[-1]))
        return jnp.take_along_axis(logits, jnp.broadcast_to(value, (*shape, 1)), -1)[..., 0]

    def entropy(self) -> jax.Array:
        logits = jnp.maximum(self.logits, jnp.finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)
