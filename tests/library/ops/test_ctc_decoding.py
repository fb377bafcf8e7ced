"""CTC decoding against the loop of eager PyTorch, and against all alignments of all labels."""

import itertools
import math

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import graphmode as gm


@pytest.fixture(autouse=True)
def _double_precision():
    with jax.enable_x64(True):
        yield


def log_probs_of(seed, batch, frames, labels, sharpness=1.5):
    rng = np.random.default_rng(seed)
    return torch.tensor(sharpness * rng.standard_normal((batch, frames, labels))).log_softmax(-1).numpy()


def collapsed(alignment, blank):
    return tuple(label for label, _ in itertools.groupby(alignment) if label != blank)


@pytest.mark.parametrize("blank", [0, 2])
def test_greedy_is_the_eager_loop(blank):
    log_probs, lengths = log_probs_of(0, 6, 12, 3), [12, 0, 1, 7, 12, 5]
    found = jax.jit(lambda x, n: gm.ctc_greedy(x, n, blank=blank, pad_id=-1))(log_probs, jnp.array(lengths))
    for row, (frames, length) in enumerate(zip(torch.tensor(log_probs), lengths, strict=True)):
        best = frames[:length].max(-1)
        labels = collapsed(best.indices.tolist(), blank)
        assert found.tokens[row].tolist() == [*labels, *[-1] * (12 - len(labels))]
        assert int(found.lengths[row]) == len(labels)
        assert float(found.scores[row]) == pytest.approx(float(best.values.sum()), rel=1e-13)


def test_ties_and_nan_are_decided_as_torch_decides_them():
    frames = np.array([[[0, 1, 1], [2, 2, 2], [1, math.nan, 5], [math.nan, 0, math.nan]]], float)
    wanted = collapsed(torch.tensor(frames[0]).argmax(-1).tolist(), 2)
    found = gm.ctc_greedy(frames, blank=2)
    assert tuple(found.tokens[0, : int(found.lengths[0])].tolist()) == wanted


def all_labels(log_probs, blank):
    """The probability of each label sequence: the sum over its alignments, each of which is looked at."""
    totals = {}
    frames, labels = log_probs.shape
    for alignment in itertools.product(range(labels), repeat=frames):
        p = math.exp(sum(log_probs[t, label] for t, label in enumerate(alignment)))
        key = collapsed(alignment, blank)
        totals[key] = totals.get(key, 0.0) + p
    return totals


def transcripts(found, row):
    lengths, tokens = found.lengths[row].tolist(), found.tokens[row].tolist()
    return [tuple(one[:length]) for one, length in zip(tokens, lengths, strict=True)]


@pytest.mark.parametrize(("labels", "blank", "impossible"), [(2, 0, 0), (3, 0, 0.3), (3, 1, 0), (4, 3, 0.3)])
def test_a_wide_beam_knows_the_probability_of_every_label_sequence(labels, blank, impossible):
    lengths = [5, 4, 3, 0, 1]
    log_probs = log_probs_of(labels, 5, 5, labels)
    log_probs[np.random.default_rng(labels).random(log_probs.shape) < impossible] = -np.inf
    width = 2 + max(len(all_labels(one[:n], blank)) for one, n in zip(log_probs, lengths, strict=True))
    decode = jax.jit(lambda x, n: gm.ctc_beam_search(x, n, num_beams=width, blank=blank, pad_id=-1))
    found = decode(log_probs, jnp.array(lengths))
    for row, (frames, length) in enumerate(zip(log_probs, lengths, strict=True)):
        totals = {key: p for key, p in all_labels(frames[:length], blank).items() if p > 0}
        ranked = sorted(totals, key=lambda key: -totals[key])
        ours = transcripts(found, row)
        assert ours == ranked + [()] * (width - len(ranked))
        scores = [math.log(totals[key]) for key in ranked] + [-math.inf] * (width - len(ranked))
        np.testing.assert_allclose(found.scores[row], scores, rtol=1e-11)
        assert all((one[n:] == -1).all() for one, n in zip(found.tokens[row], found.lengths[row], strict=True))


def eager_prefix_beam(log_probs, beams, blank):
    """With dicts of prefixes, as Hannun et al. write it."""
    held = {(): (0.0, -math.inf)}

    def add(store, prefix, into, p):
        now = list(store.get(prefix, (-math.inf, -math.inf)))
        now[into] = float(np.logaddexp(now[into], p))
        store[prefix] = tuple(now)

    for frame in log_probs:
        new = {}
        for prefix, (blank_ended, label_ended) in held.items():
            total = np.logaddexp(blank_ended, label_ended)
            for label, p in enumerate(frame):
                if label == blank:
                    add(new, prefix, 0, total + p)
                elif prefix and label == prefix[-1]:
                    add(new, prefix, 1, label_ended + p)
                    add(new, (*prefix, label), 1, blank_ended + p)
                else:
                    add(new, (*prefix, label), 1, total + p)
        ranked = sorted(new, key=lambda prefix: -np.logaddexp(*new[prefix]))
        held = {prefix: new[prefix] for prefix in ranked[:beams]}
    return [(prefix, float(np.logaddexp(*both))) for prefix, both in held.items()]


@pytest.mark.parametrize(("beams", "labels", "sharpness"), [(1, 4, 1.5), (2, 3, 0.3), (5, 3, 0.3), (8, 5, 2.0)])
def test_a_narrow_beam_is_the_eager_prefix_search(beams, labels, sharpness):
    lengths = [40, 17, 39, 1, 25, 40]
    log_probs = log_probs_of(beams, 6, 40, labels, sharpness)
    found = gm.ctc_beam_search(log_probs, np.array(lengths), num_beams=beams)
    for row, length in enumerate(lengths):
        wanted = eager_prefix_beam(log_probs[row, :length], beams, 0)
        assert transcripts(found, row)[: len(wanted)] == [prefix for prefix, _ in wanted]
        np.testing.assert_allclose(found.scores[row, : len(wanted)], [p for _, p in wanted], rtol=1e-11)


def test_the_beam_finds_what_greedy_does_not():
    frames = np.log([[[0.6, 0.4], [0.6, 0.4]]])
    assert gm.ctc_greedy(frames).lengths.tolist() == [0]
    assert transcripts(gm.ctc_beam_search(frames, num_beams=2), 0) == [(1,), ()]


def test_scores_are_those_of_ctc_loss():
    log_probs = log_probs_of(9, 2, 6, 3)
    found = gm.ctc_beam_search(log_probs, num_beams=200)
    for row in range(2):
        labels = transcripts(found, row)[0]
        loss = torch.nn.functional.ctc_loss(
            torch.tensor(log_probs[row]), torch.tensor(labels), (6,), (len(labels),), reduction="sum"
        )
        assert float(found.scores[row, 0]) == pytest.approx(-float(loss), rel=1e-12)


WAYS = {
    "ctc_greedy": lambda x, n: gm.ctc_greedy(x, n),
    "ctc_beam_search": lambda x, n: gm.ctc_beam_search(x, n, num_beams=4),
}


@pytest.mark.parametrize("way", WAYS)
def test_under_vmap_and_after_export(way):
    log_probs = jnp.stack([log_probs_of(seed, 3, 9, 4) for seed in range(2)])
    lengths = jnp.array([[9, 2, 5], [0, 7, 1]])
    mapped = jax.jit(jax.vmap(WAYS[way]))(log_probs, lengths)
    graph = jax.export.export(jax.jit(WAYS[way]))(log_probs[0], lengths[0]).serialize()
    again = jax.export.deserialize(bytearray(graph)).call
    for lane in range(2):
        alone, back = WAYS[way](log_probs[lane], lengths[lane]), again(log_probs[lane], lengths[lane])
        assert type(back) is gm.Transcripts
        for other in (jax.tree.map(lambda leaf, lane=lane: leaf[lane], mapped), back):
            np.testing.assert_array_equal(other.tokens, alone.tokens)
            np.testing.assert_array_equal(other.lengths, alone.lengths)
            np.testing.assert_allclose(other.scores, alone.scores, rtol=1e-13)


@pytest.mark.parametrize("way", WAYS)
def test_lengths_out_of_range_are_seen(way):
    log_probs = log_probs_of(0, 2, 5, 3)
    with pytest.raises(ValueError, match="lengths holds 6, and log_probs has 5 frames"):
        WAYS[way](log_probs, np.array([5, 6]))
    scores = jax.jit(WAYS[way])(log_probs, jnp.array([5, 6])).scores
    assert np.isnan(scores).reshape(2, -1).all(1).tolist() == [False, True]
    assert not np.isnan(scores[0]).any()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: gm.ctc_greedy(x[0]), r"log_probs is float64\[5,3\], and floats of shape \[B, T, V\]"),
        (lambda x: gm.ctc_greedy(x.astype(int)), r"log_probs is int64\[2,5,3\]"),
        (lambda x: gm.ctc_greedy(x, blank=3), "blank is 3, and log_probs has 3 labels"),
        (lambda x: gm.ctc_greedy(x, [1, 2, 3]), r"lengths has shape \(3,\), and \(2,\)"),
        (lambda x: gm.ctc_greedy(x, [1.0, 2.0]), "lengths has dtype float64, and integers"),
        (lambda x: gm.ctc_beam_search(x, num_beams=0), "num_beams is 0"),
        (lambda x: gm.ctc_beam_search(x, num_beams=2, pad_id=0.5), "pad_id is 0.5"),
    ],
)
def test_bad_input_says_what_is_wanted(call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call(log_probs_of(0, 2, 5, 3))
