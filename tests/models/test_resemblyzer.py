"""Resemblyzer's speaker encoder against what its package gave, against itself at other lengths, and at its capacity."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import check
from graphmode.models import resemblyzer
from graphmode.models.installed import installed_weights
from graphmode.models.resemblyzer.case import CASE
from graphmode.models.resemblyzer.model import Slicing, VoiceEncoder
from graphmode.models.resemblyzer.reference import VoiceEncoder as Reference
from graphmode.models.resemblyzer.reference import partial_starts
from graphmode.models.synthetic_speech import utterance
from planting import with_some_inputs

# What resemblyzer 0.1.4 with librosa 0.11.0 gave for `spoken(0 .. 4)`: `VoiceEncoder("cpu").embed_utterance(wav)`, the
# sum of each band of `wav_to_mel_spectrogram(wav)`, and the number of windows.
ORIGINAL = np.load(Path(__file__).with_name("resemblyzer_original.npz"))
SPOKEN = ((24000, 120), (31519, 150), (31520, 150), (80001, 210), (1, 100))  # samples, pitch


def spoken(seed: int) -> np.ndarray:
    samples, pitch = SPOKEN[seed]
    return utterance(np.random.default_rng(seed), seconds=6, pitch=pitch).audio[:samples]


@cache
def port() -> VoiceEncoder:
    try:
        installed_weights("resemblyzer")
    except ImportError as error:
        pytest.skip(str(error))
    return resemblyzer.load()


embedded = nnx.jit(lambda model, wavs, lengths: model.embed_utterances(wavs, lengths))


def small(**sizes: int) -> VoiceEncoder:
    return VoiceEncoder(sizes.get("hidden_size", 8), sizes.get("embedding_size", 12), rngs=nnx.Rngs(0))


@pytest.mark.parametrize("seed", range(len(SPOKEN)))
def test_the_mel_spectrogram_is_librosas(seed):
    wav = spoken(seed)
    mel = np.asarray(resemblyzer.mel_spectrogram(jnp.asarray(wav)))
    assert mel.shape == (1 + len(wav) // 160, 40)
    bands = ORIGINAL["bands"][seed]
    np.testing.assert_allclose(mel.sum(0, dtype=np.float64), bands, rtol=3e-5, atol=1e-6 * bands.max())


def test_one_batch_of_all_lengths_has_the_packages_embeddings():
    wavs = np.zeros((len(SPOKEN), 80001), np.float32)
    for row, seed in zip(wavs, range(len(SPOKEN)), strict=True):
        row[: SPOKEN[seed][0]] = spoken(seed)
    found = embedded(port(), wavs, np.array([samples for samples, _ in SPOKEN]))
    assert found.count.tolist() == ORIGINAL["windows"].tolist()
    np.testing.assert_allclose(found.embedding, ORIGINAL["embeddings"], atol=2e-5)


def test_windows_are_the_originals_at_every_length():
    for slicing in (Slicing(), Slicing(rate=2.5, min_coverage=0.5), Slicing(rate=0.7, min_coverage=1.0)):
        lengths = np.r_[1:4000:37, 20000:90000:61, 25600:25605, 31515:31525]
        expected = [len(partial_starts(int(n), slicing.rate, slicing.min_coverage)) for n in lengths]
        assert np.asarray(slicing.count(lengths)).tolist() == expected


def test_what_stands_beyond_a_length_is_not_heard():
    model, wav = small(), utterance(np.random.default_rng(3), seconds=4).audio
    lengths = np.array([40000, 50000])
    noisy = np.stack([wav, wav])
    silent = np.where(np.arange(len(wav)) < lengths[:, None], noisy, 0)
    noisy[:, 50000:] = np.nan
    for a, b in zip(embedded(model, noisy, lengths), embedded(model, silent, lengths), strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.isfinite(np.asarray(embedded(model, noisy, lengths).embedding)).all()


def test_more_windows_than_the_capacity_are_counted():
    model, wav = small(), utterance(np.random.default_rng(3), seconds=4).audio[None]
    whole = model.embed_utterances(jnp.asarray(wav))
    cut = model.embed_utterances(jnp.asarray(wav), capacity=2)
    roomy = model.embed_utterances(jnp.asarray(wav), capacity=9)
    expected = len(partial_starts(wav.shape[1], Slicing().rate, Slicing().min_coverage))
    assert whole.count.item() == cut.count.item() == roomy.count.item() == expected
    assert cut.partials.shape[1] == 2
    np.testing.assert_allclose(cut.partials, whole.partials[:, :2], atol=1e-6)
    np.testing.assert_allclose(roomy.partials[0, expected:], 0)
    np.testing.assert_allclose(roomy.embedding, whole.embedding, atol=1e-6)


@pytest.mark.parametrize("layers", [1, 3])
def test_a_file_of_other_sizes_loads(tmp_path, layers):
    torch.manual_seed(0)
    reference = Reference(10, 14, layers)
    torch.save(reference.state_dict(), tmp_path / "encoder.pt")
    model = resemblyzer.load(tmp_path / "encoder.pt")
    mels = np.abs(np.random.default_rng(0).standard_normal((2, 160, 40))).astype(np.float32)
    with torch.no_grad():
        expected = reference.embed(torch.as_tensor(mels)).numpy()
    np.testing.assert_allclose(model(jnp.asarray(mels)), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: small().embed_utterances(jnp.zeros(400)), r"wavs has shape \(400,\)"),
        (lambda: small().embed_utterances(jnp.zeros((1, 400)), capacity=0), "capacity is 0"),
        (lambda: Slicing(rate=0).step, "rate is 0"),
        (lambda: Slicing(rate=0.1).step, "rate is 0.1 windows"),
        (lambda: Slicing(min_coverage=1.5).step, "min_coverage is 1.5"),
    ],
)
def test_bad_input_is_told(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.slow
def test_the_whole_case_passes():
    assert check(with_some_inputs(CASE)).passed
