"""`sample`: tokens drawn from what the model says, at a temperature, of the k likeliest, of the nucleus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ..arguments import as_array, as_capacity, as_key
from ..control.nnx_operands import described
from .decoded import Decoded, Step
from .one_by_one import one_by_one, score_of

S = TypeVar("S")


def sample(
    key: jax.Array,
    step: Step[S],
    state: S,
    tokens: ArrayLike,
    *,
    max_new_tokens: int,
    temperature: ArrayLike = 1.0,
    top_k: int | None = None,
    top_p: ArrayLike | None = None,
    eos_id: int | Sequence[int] | None = None,
    pad_id: int | None = None,
    start: ArrayLike = 0,
) -> Decoded[S]:
    """Generates by drawing every token, and stops when every sequence has ended.

    Prompts, `step`, and what else `greedy` takes are as there.

    Args:
      key: of `jax.random`; step `i` draws with `jax.random.fold_in(key, i)`.
      temperature, top_k, top_p: see `warp_logits`.

    Returns:
      `Decoded`; the scores are under the distribution that was drawn from, as `compute_transition_scores` of
      transformers gives them.

    Raises:
      ValueError, TypeError: as `greedy` and `warp_logits`, and where key is not one key.

    Example:
      >>> import graphmode as gm, jax, jax.numpy as jnp
      >>> def even_odds(state, tokens, position):  # of 0 and 1; 2 never comes
      ...     return jnp.broadcast_to(jnp.array([0.0, 0.0, -9.0]), (tokens.shape[0], 3)), state
      >>> drawn = gm.sample(jax.random.key(0), even_odds, None, jnp.array([0]), max_new_tokens=4, top_k=2)
      >>> int(drawn.tokens.max()), round(float(drawn.scores[0]), 4)
      (1, -2.7726)

    Stands for the loop of `generate(do_sample=True)`; the random numbers are other ones than PyTorch's.
    """

    key = as_key(key)

    def drawn(logits: jax.Array, i: jax.Array) -> tuple[jax.Array, jax.Array]:
        warped = warp_logits(logits, temperature=temperature, top_k=top_k, top_p=top_p)
        chosen = jax.random.categorical(jax.random.fold_in(key, i), warped, axis=-1).astype(jnp.int32)
        return chosen, score_of(jax.nn.log_softmax(warped, axis=-1), chosen)

    options: Any = {"max_new_tokens": max_new_tokens, "eos_id": eos_id, "pad_id": pad_id, "start": start}
    return one_by_one(step, state, tokens, drawn, **options)


def warp_logits(
    logits: ArrayLike,
    *,
    temperature: ArrayLike = 1.0,
    top_k: int | None = None,
    top_p: ArrayLike | None = None,
) -> jax.Array:
    """Logits of what is sampled from: divided by the temperature, then of the `top_k`, then of the nucleus `top_p`.

    What `TemperatureLogitsWarper`, `TopKLogitsWarper` and `TopPLogitsWarper` of transformers make of them, one
    after another: entries as likely as the k-th all stay. Where the nucleus ends among equals, which torch's sort
    leaves open, the lower indices stay, as in `top_p_mask`.

    Args:
      logits: `[..., V]` floating.
      temperature: above 0; a number, or an array that broadcasts to `[...]`. For the limit of 0 there is `greedy`.
      top_k: static; None, or a number of at least V, keeps all.
      top_p: above 0; as `temperature`. None, or 1 or more, keeps all.

    Returns:
      `[..., V]` in at least single precision, -inf where an entry is never drawn.

    Raises:
      ValueError: where logits are no floats `[..., V]`, temperature or top_p is known and not positive, or
        does not broadcast, or top_k is below 1.
      TypeError: where top_k is no integer known to the graph.

    Example:
      >>> import jax.numpy as jnp
      >>> warp_logits(jnp.array([1.0, 3.0, 2.0]), temperature=0.5, top_k=2).tolist()
      [-inf, 6.0, 4.0]
    """
    logits = as_array(logits, name="logits")
    if not logits.ndim or not logits.shape[-1] or not jnp.issubdtype(logits.dtype, jnp.floating):
        raise ValueError(f"logits is {described(logits)}, and floats of shape [..., V] were wanted")
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    logits = logits / _positive(temperature, logits, "temperature")
    if top_k is not None and as_capacity(top_k, name="top_k") < logits.shape[-1]:
        last = jax.lax.top_k(logits, top_k)[0][..., -1:]
        logits = jnp.where(logits < last, -jnp.inf, logits)
    if top_p is None or (isinstance(top_p, int | float) and top_p >= 1):
        return logits
    return jnp.where(_outside_nucleus(logits, _positive(top_p, logits, "top_p")), -jnp.inf, logits)


def _outside_nucleus(logits: jax.Array, p: jax.Array | float) -> jax.Array:
    order = jnp.flip(jnp.argsort(-logits, axis=-1, stable=True), axis=-1)
    likelihoods = jax.nn.softmax(jnp.take_along_axis(logits, order, axis=-1), axis=-1)
    outside = (jnp.cumsum(likelihoods, axis=-1) <= 1 - p) & (p < 1)
    outside = outside.at[..., -1].set(False)
    return jnp.take_along_axis(outside, jnp.argsort(order, axis=-1), axis=-1)


def _positive(value: ArrayLike, logits: jax.Array, name: str) -> jax.Array | float:
    """A number as it is, or an array of the logits' dtype that goes with their rows."""
    if isinstance(value, int | float):
        if not value > 0:
            raise ValueError(f"{name} is {value}, and a number above 0 was wanted; gm.greedy takes the likeliest token")
        return float(value)
    array = as_array(value, name=name)
    if not isinstance(value, jax.core.Tracer) and not np.all(np.asarray(value) > 0):
        raise ValueError(f"{name} is {value!r}, and numbers above 0 were wanted; gm.greedy takes the likeliest token")
    try:
        return jnp.broadcast_to(array, logits.shape[:-1])[..., None].astype(logits.dtype)
    except ValueError:
        raise ValueError(
            f"{name} has shape {array.shape}, and one that broadcasts to {logits.shape[:-1]} was wanted, a number for "
            f"each row of logits"
        ) from None
