"""Connectionist temporal classification: one scan forward, one backward, and the gradient by hand."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..arguments import as_integer, check_floating
from ..autocast import autocasts
from .reduction import (
    Loss,
    Reduction,
    as_array,
    as_indices,
    as_reduction,
    check_within,
    in_float32,
    is_known,
    poisoned,
    reduced,
)

Lengths = jax.Array | np.ndarray | Sequence[int]


@autocasts
def ctc_loss(
    log_probs: jax.Array,
    targets: jax.Array,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    reduction: Reduction = "mean",
    zero_infinity: bool = False,
) -> jax.Array:
    """Negative log-probability of the targets, over all their alignments with the input.

    The gradient is PyTorch's, which is right for `log_probs` that a log-softmax gave, and for those only. With targets
    in one row and lengths that only the graph knows, every target is given room for all of them; pass the lengths as a
    tuple there.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.ctc_loss.html

    Args:
      log_probs: `[T, N, C]` or `[T, C]`.
      targets: class indices, `[N, S]`, or all after each other, `[sum(target_lengths)]`. In a graph, one out of range
        gives NaN.
      input_lengths: of integers, `[N]` (or one, without a batch), at most T.
      target_lengths: the same for `targets`, at most S.
      blank: class that stands for nothing.
      reduction: none (`[N]` or `[]`), sum, or mean: each loss divided by its target's length (at least 1), then
        averaged.
      zero_infinity: whether a target that no alignment gives (it is too long) counts as 0, and not as infinite.

    Raises:
      ValueError: for another reduction, shapes that do not fit, or (outside a graph, where they give NaN) lengths or
        targets out of range.
      TypeError: where `log_probs` is not floating, or lengths or targets are not integers.
    """
    reduction = as_reduction(reduction)
    log_probs, targets = as_array(log_probs), as_indices("targets", as_array(targets))
    check_floating("log_probs", log_probs)
    if log_probs.ndim not in (2, 3) or log_probs.size == 0:
        raise ValueError(f"log_probs has shape {log_probs.shape}, and a filled [T, N, C] or [T, C] was wanted")
    batched = log_probs.ndim == 3
    steps, batch, classes = log_probs.shape if batched else (log_probs.shape[0], 1, log_probs.shape[1])
    blank = as_integer("blank", blank, least=0)
    if blank >= classes:
        raise ValueError(f"blank is {blank}, and log_probs has {classes} classes; give one of them")
    of_inputs, of_targets = _gathered(input_lengths), _gathered(target_lengths)
    inputs, lengths = _lengths("input_lengths", of_inputs, batch), _lengths("target_lengths", of_targets, batch)
    in_range = (inputs >= 0) & (inputs <= steps)
    check_within("input_lengths", inputs, in_range, f"0 to {steps}, log_probs' first axis,")
    labels, fits = _labels(targets, lengths, of_targets, batch, blank)
    used = jnp.arange(labels.shape[1]) < lengths[:, None]
    known = ~used | ((labels >= 0) & (labels < classes))
    check_within("targets", labels, known, f"a class from 0 to {classes - 1}")
    valid = in_range & fits & known.all(-1)
    labels = jnp.where(used & known, labels, blank)
    (wide,) = in_float32(log_probs.reshape(steps, batch, classes))
    inputs, lengths = jnp.clip(inputs, 0, steps), jnp.clip(lengths, 0, labels.shape[1])
    loss = poisoned(_negative_log_likelihood(wide, labels, inputs, lengths, blank, zero_infinity), valid)
    if reduction == "mean":
        loss = loss / jnp.maximum(lengths, 1).astype(loss.dtype)
    return reduced(loss if batched or reduction != "none" else loss[0], reduction, log_probs.dtype)


def _gathered(lengths: Lengths) -> jax.Array | np.ndarray:
    """One array, of numpy where the lengths are known: a sequence of integers stays known inside a graph."""
    if isinstance(lengths, jax.Array | np.ndarray):
        return lengths
    known = not isinstance(lengths, Sequence) or is_known(*lengths)
    return np.asarray(lengths) if known else jnp.asarray(lengths)


def _lengths(name: str, lengths: Lengths, batch: int) -> jax.Array:
    array = as_array(lengths)
    if not jnp.issubdtype(array.dtype, jnp.integer):
        raise TypeError(f"{name} is {array.dtype}, and integers were wanted; cast it")
    if array.size != batch or array.ndim > 1:
        raise ValueError(f"{name} has shape {array.shape}, and one length for each of {batch} was wanted")
    return array.reshape(batch)


def _labels(
    targets: jax.Array, lengths: jax.Array, given: Lengths, batch: int, blank: int
) -> tuple[jax.Array, jax.Array]:
    """Targets as `[N, S]`, S as small as the lengths are known to allow; and whether each length fits, `[N]`."""
    known = np.asarray(given).reshape(batch) if is_known(given) else None
    if targets.ndim == 2:
        if targets.shape[0] != batch:
            raise ValueError(f"targets has shape {targets.shape}, and {batch} rows were wanted, as log_probs says")
        fits = (lengths >= 0) & (lengths <= targets.shape[1])
        check_within("target_lengths", lengths, fits, f"0 to {targets.shape[1]}, targets' second axis,")
        return targets if known is None else targets[:, : max(known.max(), 0)], fits
    if targets.ndim != 1:
        raise ValueError(f"targets has shape {targets.shape}, and [N, S] or [sum(target_lengths)] was wanted")
    total = targets.shape[0]
    fits = lengths >= 0
    check_within("target_lengths", lengths, fits, "0 or more")
    if known is not None and known.sum() != total:
        raise ValueError(f"targets has {total} entries, and target_lengths add up to {known.sum()}")
    ends = jnp.cumsum(lengths)
    longest = total if known is None else int(known.max())
    places = (ends - lengths)[:, None] + jnp.arange(longest)
    if total == 0:
        return jnp.full(places.shape, blank, targets.dtype), fits & (ends[-1] == 0)
    return targets[jnp.clip(places, 0, total - 1)], fits & (ends[-1] == total)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
@functools.partial(jax.jit, static_argnums=(4, 5))
def _negative_log_likelihood(
    log_probs: jax.Array,  # [T, N, C]
    labels: jax.Array,  # [N, S]
    inputs: jax.Array,  # [N]
    lengths: jax.Array,  # [N]
    blank: int,
    zero_infinity: bool,
) -> jax.Array:  # [N]
    states, skips = _states(labels, blank)
    last, _ = _alphas(log_probs, states, skips, inputs, lengths, keep=False)
    return _zeroed(_likelihood(last, inputs, lengths), zero_infinity)


# Compiled once a shape where they are called outside a graph, and part of the graph inside one.
@functools.partial(jax.jit, static_argnums=(4, 5))
def _forward(log_probs, labels, inputs, lengths, blank, zero_infinity):
    states, skips = _states(labels, blank)
    last, alphas = _alphas(log_probs, states, skips, inputs, lengths, keep=True)
    loss = _likelihood(last, inputs, lengths)
    return _zeroed(loss, zero_infinity), (log_probs, labels, inputs, lengths, alphas, loss)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _backward(blank, zero_infinity, residuals, cotangent):
    log_probs, labels, inputs, lengths, alphas, loss = residuals
    steps, batch, classes = log_probs.shape
    states, skips = _states(labels, blank)
    emitted = _emitted(log_probs, states)
    betas = _betas(emitted, skips, inputs, lengths)
    # A state's posterior. Where a class is impossible PyTorch gives NaN, which is put in below.
    never = jnp.isneginf(emitted)
    passed = jnp.exp(alphas + betas + loss[:, None] - jnp.where(never, 0, emitted))  # [T, N, 2S + 1]
    passed = jnp.where(never, 0, passed)
    collected = jnp.zeros((batch, classes, steps), log_probs.dtype)  # time last: whole rows are added
    collected = collected.at[jnp.arange(batch)[:, None], labels].add(passed[..., 1::2].transpose(1, 2, 0))
    collected = collected.at[:, blank].add(passed[..., ::2].sum(-1).T)
    gradient = jnp.exp(log_probs) - collected.transpose(2, 0, 1)
    gradient = jnp.where(jnp.isneginf(log_probs) | jnp.isposinf(loss)[:, None], jnp.nan, gradient)
    counts = jnp.arange(steps)[:, None] < inputs
    if zero_infinity:
        counts &= ~jnp.isposinf(loss)
    return jnp.where(counts[..., None], gradient * cotangent[:, None], 0)


_negative_log_likelihood.defvjp(_forward, lambda *args: (_backward(*args), None, None, None))


def _zeroed(loss: jax.Array, zero_infinity: bool) -> jax.Array:
    return jnp.where(jnp.isposinf(loss), 0, loss) if zero_infinity else loss


def _states(labels: jax.Array, blank: int) -> tuple[jax.Array, jax.Array]:
    """The labels with blanks around them, `[N, 2S + 1]`, and whether a state may follow the one two before it."""
    batch, length = labels.shape
    states = jnp.full((batch, 2 * length + 1), blank, labels.dtype).at[:, 1::2].set(labels)
    skips = jnp.pad(states[:, 2:] != states[:, :-2], ((0, 0), (2, 0))) if length else jnp.zeros_like(states, bool)
    return states, skips


def _emitted(log_probs: jax.Array, states: jax.Array) -> jax.Array:
    """Each state's log-probability at each time, `[T, N, 2S + 1]`."""
    return jnp.take_along_axis(log_probs, states[None], 2)


def _alphas(log_probs, states, skips, inputs, lengths, *, keep: bool) -> tuple[jax.Array, jax.Array | None]:
    """Log-probabilities of having come to each state: at each input's end, and (where kept) at all times."""
    count = states.shape[1]
    emitted = _emitted(log_probs, states)
    place = jnp.arange(count)
    begins = (place == 0) | ((place == 1) & (lengths[:, None] > 0))
    before = jnp.full(states.shape, -jnp.inf, log_probs.dtype)

    def step(alpha, now):
        time, emission = now
        come = _log_sum(alpha, _shift(alpha, 1), jnp.where(skips, _shift(alpha, 2), -jnp.inf))
        alpha_now = jnp.where(time == 0, jnp.where(begins, 0, -jnp.inf), come) + emission
        held = jnp.where((time < inputs)[:, None], alpha_now, alpha)
        return held, alpha_now if keep else None

    return jax.lax.scan(step, before, (jnp.arange(log_probs.shape[0]), emitted))


def _betas(emitted: jax.Array, skips: jax.Array, inputs: jax.Array, lengths: jax.Array) -> jax.Array:
    """Log-probabilities of going from each state to the end, its own emission in them, `[T, N, 2S + 1]`."""
    steps, batch, count = emitted.shape
    place = jnp.arange(count)
    ends = (place == 2 * lengths[:, None]) | (place == 2 * lengths[:, None] - 1)
    skipped = _shift(skips, -2, False)

    def step(beta, now):
        time, emission = now
        go = _log_sum(beta, _shift(beta, -1), jnp.where(skipped, _shift(beta, -2), -jnp.inf))
        go = jnp.where((time == inputs - 1)[:, None], jnp.where(ends, 0, -jnp.inf), go)
        beta = jnp.where((time < inputs)[:, None], go + emission, -jnp.inf)
        return beta, beta

    start = jnp.full((batch, count), -jnp.inf, emitted.dtype)
    return jax.lax.scan(step, start, (jnp.arange(steps), emitted), reverse=True)[1]


def _likelihood(last: jax.Array, inputs: jax.Array, lengths: jax.Array) -> jax.Array:
    """Negative log-likelihoods from the alphas at each input's end."""
    final = jnp.take_along_axis(last, 2 * lengths[:, None], 1)[:, 0]
    before = jnp.take_along_axis(last, jnp.maximum(2 * lengths - 1, 0)[:, None], 1)[:, 0]
    loss = -jnp.where(lengths > 0, _log_sum(final, before), final)
    return jnp.where(inputs > 0, loss, jnp.where(lengths > 0, jnp.inf, 0).astype(loss.dtype))


def _shift(values: jax.Array, by: int, fill: Any = -jnp.inf) -> jax.Array:
    """The values `by` places further on along the last axis; `fill` comes in."""
    width = values.shape[-1]
    empty = jnp.full((*values.shape[:-1], min(abs(by), width)), fill, values.dtype)
    if by > 0:
        return jnp.concatenate([empty, values[..., : max(width - by, 0)]], -1)
    return jnp.concatenate([values[..., -by:], empty], -1)


def _log_sum(*terms: jax.Array) -> jax.Array:
    """log(sum(exp)), -inf where all are."""
    largest = functools.reduce(jnp.maximum, terms)
    safe = jnp.where(jnp.isneginf(largest), 0, largest)
    return jnp.log(sum(jnp.exp(term - safe) for term in terms)) + safe


class CTCLoss(Loss):
    """Negative log-probability of the targets, over all their alignments with the input.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.CTCLoss.html

    Args:
      blank: class that stands for nothing.
      reduction: none, sum, or mean: each loss divided by its target's length, then averaged.
      zero_infinity: whether a target that no alignment gives (it is too long) counts as 0, and not as infinite.

    Raises:
      ValueError: for another reduction or a negative blank; called, as `functional.ctc_loss`.

    Example:
      >>> log_probs = jnp.log(jnp.full((3, 1, 2), 0.5))
      >>> round(float(CTCLoss()(log_probs, jnp.array([[1]]), (3,), (1,))), 4)
      0.2877
    """

    def __init__(self, blank: int = 0, reduction: Reduction = "mean", zero_infinity: bool = False):
        super().__init__(reduction=reduction)
        self.blank = as_integer("blank", blank, least=0)
        self.zero_infinity = zero_infinity

    def __call__(
        self, log_probs: jax.Array, targets: jax.Array, input_lengths: Lengths, target_lengths: Lengths
    ) -> jax.Array:
        return ctc_loss(
            log_probs,
            targets,
            input_lengths,
            target_lengths,
            self.blank,
            self.reduction,
            self.zero_infinity,
        )
