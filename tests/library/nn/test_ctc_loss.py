"""CTC: ragged lengths, targets in rows and after each other, and the gradient that PyTorch gives."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import graphmode.nn as ours
from graphmode.nn import functional as F

STEPS, BATCH, CLASSES = 7, 4, 5
ROWS = np.array([[1, 2, 2], [3, 3, 3], [4, 1, 2], [2, 0, 1]])  # repeats, and a blank among them


def log_probs(seed=0, *, normal=True):
    scores = np.random.default_rng(seed).standard_normal((STEPS, BATCH, CLASSES))
    return scores - np.log(np.exp(scores).sum(-1, keepdims=True)) if normal else scores


def both(values, targets, inputs, lengths, *, compiled=True, **kwargs):
    """Loss and gradient of a random weighting, ours and PyTorch's; lengths as arrays of the graph where compiled."""
    leaf = torch.tensor(values, requires_grad=True)
    wanted = torch.nn.functional.ctc_loss(leaf, torch.tensor(targets), inputs, lengths, **kwargs)
    cotangent = np.random.default_rng(9).standard_normal(tuple(wanted.shape))
    wanted.backward(torch.tensor(cotangent))
    with jax.enable_x64(True):

        def run(values, targets, inputs, lengths):
            got, pull = jax.vjp(lambda v: F.ctc_loss(v, targets, inputs, lengths, **kwargs), values)
            return got, pull(jnp.asarray(cotangent))[0]

        if compiled:
            got = jax.jit(run)(jnp.asarray(values), jnp.asarray(targets), jnp.asarray(inputs), jnp.asarray(lengths))
        else:
            got = run(jnp.asarray(values), jnp.asarray(targets), inputs, lengths)
    return tuple(map(np.asarray, got)), (wanted.detach().numpy(), leaf.grad.numpy())


CASES = {
    "padded": (log_probs(), ROWS, (7, 6, 5, 7), (3, 3, 2, 3), {}),
    "one after another": (log_probs(), np.array([1, 2, 2, 3, 4, 1, 2]), (7, 6, 5, 7), (2, 2, 0, 3), {}),
    "no log-probabilities": (log_probs(normal=False), ROWS, (7, 6, 5, 7), (3, 3, 2, 3), {}),
    "another blank": (log_probs(), ROWS, (7, 6, 5, 7), (3, 3, 2, 1), {"blank": 4}),
    "empty targets": (log_probs(), ROWS, (7, 6, 5, 0), (0, 3, 0, 0), {}),
    "all targets empty": (log_probs(), np.zeros(0, np.int64), (7, 6, 5, 0), (0, 0, 0, 0), {}),
    "too long": (log_probs(), ROWS, (3, 4, 0, 7), (3, 3, 1, 3), {}),
    "too long, zeroed": (log_probs(), ROWS, (3, 4, 0, 7), (3, 3, 1, 3), {"zero_infinity": True}),
    "one step": (log_probs()[:1], ROWS, (1, 1, 1, 1), (1, 0, 1, 1), {}),
}


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("name", CASES)
def test_losses_and_gradients_are_pytorchs(name, reduction):
    *args, kwargs = CASES[name]
    got, wanted = both(*args, compiled=reduction == "mean", reduction=reduction, **kwargs)
    np.testing.assert_allclose(got[0], wanted[0], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(got[1], wanted[1], rtol=1e-10, atol=1e-12)


def test_impossible_classes_give_the_nan_that_pytorch_gives():
    values = log_probs()
    values[2, 0, 3] = values[1, 1, 3] = values[0, 2, 0] = -math.inf
    for kwargs in ({}, {"zero_infinity": True}):
        got, wanted = both(values, ROWS, (7, 6, 5, 7), (3, 3, 2, 3), reduction="none", **kwargs)
        np.testing.assert_allclose(got[0], wanted[0], rtol=1e-12)
        np.testing.assert_allclose(got[1], wanted[1], rtol=1e-10, atol=1e-12)


def test_without_a_batch():
    values = log_probs()[:, 0]
    for inputs, lengths in (((7,), (2,)), (np.array(6), np.array(2))):
        for reduction in ("none", "mean"):
            leaf = torch.tensor(values)
            given = [torch.tensor(x) if isinstance(x, np.ndarray) else x for x in (inputs, lengths)]
            wanted = torch.nn.functional.ctc_loss(leaf, torch.tensor([1, 2]), *given, reduction=reduction)
            with jax.enable_x64(True):
                got = F.ctc_loss(jnp.asarray(values), jnp.array([1, 2]), inputs, lengths, reduction=reduction)
            assert got.shape == tuple(wanted.shape)
            np.testing.assert_allclose(got, wanted, rtol=1e-12)


def test_through_a_log_softmax_the_gradient_is_the_true_one():
    with jax.enable_x64(True):
        scores = jnp.asarray(log_probs(1, normal=False))

        def loss(scores):
            return F.ctc_loss(
                jax.nn.log_softmax(scores), jnp.asarray(ROWS), (7, 6, 5, 7), (3, 3, 2, 3), reduction="sum"
            )

        direction = jnp.asarray(np.random.default_rng(2).standard_normal(scores.shape))
        slope = (jax.grad(loss)(scores) * direction).sum()
        step = 1e-6
        by_difference = (loss(scores + step * direction) - loss(scores - step * direction)) / (2 * step)
        np.testing.assert_allclose(slope, by_difference, rtol=1e-7)


def test_long_inputs_in_float32_are_as_precise_as_pytorchs():
    rng = np.random.default_rng(3)
    scores = torch.tensor(rng.standard_normal((200, 3, 20)), dtype=torch.float64)
    targets = torch.tensor(rng.integers(1, 20, (3, 40)))
    given = (targets, (200, 180, 150), (40, 30, 20))

    def reference(dtype):
        leaf = scores.to(dtype).log_softmax(-1).detach().requires_grad_()
        loss = torch.nn.functional.ctc_loss(leaf, *given, reduction="none")
        loss.sum().backward()
        return loss.detach().double().numpy(), leaf.grad.double().numpy(), leaf.detach()

    exact, usual = reference(torch.float64), reference(torch.float32)
    values, pull = jax.vjp(
        lambda x: F.ctc_loss(x, jnp.asarray(targets.numpy()), *given[1:], reduction="none"),
        jnp.asarray(usual[2].numpy()),
    )
    gradient = pull(jnp.ones_like(values))[0]
    error = [np.sqrt(np.mean((np.asarray(p) - e) ** 2)) for p, e in zip((values, gradient), exact, strict=False)]
    theirs = [np.sqrt(np.mean((u - e) ** 2)) for u, e in zip(usual[:2], exact[:2], strict=True)]
    assert error[0] <= 5 * max(theirs[0], 1e-7 * exact[0].max())
    assert error[1] <= 5 * theirs[1]


def test_mapped_over_a_further_axis():
    many = jnp.stack([jnp.asarray(log_probs(s), jnp.float32) for s in range(3)])
    loss = ours.CTCLoss(reduction="none")
    lengths = jnp.array([7, 6, 5, 7]), jnp.array([3, 3, 2, 3])
    mapped = jax.jit(jax.vmap(lambda x: loss(x, jnp.asarray(ROWS), *lengths)))(many)
    np.testing.assert_allclose(mapped, [loss(x, jnp.asarray(ROWS), *lengths) for x in many], rtol=1e-5)


def test_halves_keep_their_dtype():
    got = F.ctc_loss(jnp.asarray(log_probs(), jnp.bfloat16), jnp.asarray(ROWS), (7, 6, 5, 7), (3, 3, 2, 3))
    assert got.dtype == jnp.bfloat16


GOOD = (log_probs(), ROWS, (7, 6, 5, 7), (3, 3, 2, 3))
BAD = [
    ({0: np.zeros((7, 0, 5))}, ValueError, "log_probs has shape"),
    ({0: np.zeros(7)}, ValueError, "log_probs has shape"),
    ({0: np.zeros((7, 4, 5), int)}, TypeError, "log_probs is int"),
    ({1: ROWS[:2]}, ValueError, "4 rows were wanted"),
    ({1: ROWS.astype(float)}, TypeError, "targets is float"),
    ({1: np.arange(1, 4)}, ValueError, "add up to 11"),
    ({1: ROWS[None]}, ValueError, "targets has shape"),
    ({1: ROWS + 3}, ValueError, "targets holds"),
    ({2: (7, 6, 5, 8)}, ValueError, "input_lengths holds 8"),
    ({2: (7, -1, 5, 7)}, ValueError, "input_lengths holds -1"),
    ({2: (7, 6, 5)}, ValueError, "input_lengths has shape"),
    ({2: (7.0, 6.0, 5.0, 7.0)}, TypeError, "input_lengths is float"),
    ({3: (4, 3, 2, 3)}, ValueError, "target_lengths holds 4"),
    ({3: (-1, 3, 2, 3)}, ValueError, "target_lengths holds -1"),
    ({4: 5}, ValueError, "blank is 5"),
    ({5: "average"}, ValueError, "reduction is"),
]


@pytest.mark.parametrize("case", BAD, ids=lambda case: case[2])
def test_bad_arguments_are_told(case):
    changed, error, told = case
    args = dict(enumerate((*GOOD, 0, "mean"))) | changed
    with pytest.raises(error, match=told):
        F.ctc_loss(*args.values())


def test_what_is_out_of_range_in_a_graph_gives_nan():
    loss = jax.jit(lambda *args: F.ctc_loss(*args, reduction="none"))
    values = jnp.asarray(log_probs(), jnp.float32)
    cases = (
        (ROWS, [7, 8, 5, -1], [3, 3, 2, 3], [1, 3]),
        (ROWS, [7, 6, 5, 7], [3, 4, 2, -1], [1, 3]),
        (np.where(ROWS == 3, 9, ROWS), [7, 6, 5, 7], [3, 3, 2, 3], [1]),
        (np.arange(1, 5), [7, 6, 5, 7], [1, 1, 1, 2], [0, 1, 2, 3]),
    )
    for targets, inputs, lengths, wrong in cases:
        got = loss(values, jnp.asarray(targets), jnp.asarray(inputs), jnp.asarray(lengths))
        assert np.flatnonzero(np.isnan(got)).tolist() == wrong
