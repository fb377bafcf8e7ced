"""Silero's voice detector against its TorchScript file and its package, chunk by chunk and segment by segment."""

from __future__ import annotations

import math
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import check
from graphmode.models import silero_vad
from graphmode.models.installed import installed_weights
from graphmode.models.silero_vad.case import CASE, TIMESTAMPS
from graphmode.models.silero_vad.model import SileroConfig, SileroVAD
from graphmode.models.silero_vad.reference import SileroVAD as Reference
from graphmode.models.silero_vad.reference import pretrained_weights
from graphmode.models.silero_vad.speech_timestamps import (
    get_speech_timestamps,
    get_speech_timestamps_from_probs,
)
from graphmode.models.synthetic_speech import utterance

from graphmode import weights

CHUNKS = 150

OPTIONS = {
    "default": {},
    "low threshold": {"threshold": 0.3},
    "silence from above speech": {"threshold": 0.35, "neg_threshold": 0.5},
    "every silence ends": {"min_silence_duration_ms": 0, "min_speech_duration_ms": 0, "max_speech_duration_s": 0.7},
    "cut at the longest silence": {"max_speech_duration_s": 3.0},
    "cut at the last silence": {"max_speech_duration_s": 3.0, "use_max_poss_sil_at_max_speech": False},
    "short cuts": {"max_speech_duration_s": 1.33, "min_silence_at_max_speech": 30, "min_silence_duration_ms": 300},
    "short cuts at the last silence": {
        "max_speech_duration_s": 1.33,
        "min_silence_at_max_speech": 30,
        "min_silence_duration_ms": 300,
        "use_max_poss_sil_at_max_speech": False,
    },
    "two segments in one chunk": {
        "max_speech_duration_s": 0.01,
        "min_silence_at_max_speech": 0,
        "min_silence_duration_ms": 0,
        "min_speech_duration_ms": 0,
    },
    "no padding": {"speech_pad_ms": 0},
    "padding that meets": {"speech_pad_ms": 500},
    "odd padding": {"speech_pad_ms": 33, "min_silence_duration_ms": 32},
}


@pytest.fixture(scope="module", autouse=True)
def _threads():
    """Importing the package sets PyTorch to one thread."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@cache
def original():
    try:
        return torch.jit.load(installed_weights("silero_vad"))
    except ImportError as error:
        pytest.skip(str(error))


def package():
    return pytest.importorskip("silero_vad", reason="pip install --no-deps silero-vad==6.2.3")


@cache
def recordings() -> np.ndarray:
    """`[2, N]`, where the last chunk is not full."""
    return np.stack([utterance(np.random.default_rng(s), seconds=6, pitch=110 + 80 * s).audio for s in (0, 1)])[:, :-99]


@cache
def port() -> SileroVAD:
    original()
    return silero_vad.load()


heard = nnx.jit(lambda model, audio: model(audio))


@cache
def theirs() -> np.ndarray:
    """Probabilities of the file itself, each chunk of both recordings."""
    with torch.no_grad():
        return original().audio_forward(torch.tensor(recordings()), 16000).numpy()


def test_the_reference_is_the_file():
    original()
    reference = Reference()
    reference.load_state_dict(pretrained_weights())
    state = [torch.zeros(2, size) for size in (64, 128, 128)]
    with torch.no_grad():
        ours, *_ = reference(torch.tensor(recordings()), *state)
    assert (theirs() > 0.5).any()
    assert (theirs() < 0.35).any()
    np.testing.assert_allclose(ours, theirs(), atol=1e-6)


def test_a_whole_recording_is_the_file():
    probabilities, _ = heard(port(), recordings())
    np.testing.assert_allclose(probabilities, theirs(), atol=1e-5)


def test_a_step_at_a_time_is_the_file():
    model = port()
    step = nnx.jit(lambda model, chunk, state: model.step(chunk, state))
    state = model.initial_state(2)
    for i in range(40):
        probability, state = step(model, recordings()[:, 512 * i : 512 * (i + 1)], state)
        np.testing.assert_allclose(probability, theirs()[:, i], atol=1e-5)


def test_a_part_goes_on_where_the_one_before_ended():
    model = SileroVAD(SileroConfig.tiny(), rngs=nnx.Rngs(0))
    audio = jax.random.normal(jax.random.key(0), (2, 10 * 64))
    whole, last = model(audio)
    first, state = model(audio[:, : 3 * 64])
    second, end = model(audio[:, 3 * 64 :], state)
    np.testing.assert_allclose(jnp.concatenate([first, second], 1), whole, atol=1e-6)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-6), end, last)


def test_the_spectrum_of_random_weights_is_the_files():
    original()
    ours = weights.to_state_dict(SileroVAD(rngs=nnx.Rngs(0)))
    name = "stft.forward_basis_buffer"
    np.testing.assert_allclose(ours[name], pretrained_weights()[name], atol=2e-7)
    np.testing.assert_allclose(Reference().state_dict()[name], ours[name], atol=2e-7)


def test_speech_is_found_where_it_was_made():
    audio, voiced = utterance(np.random.default_rng(0), seconds=6)
    found = get_speech_timestamps(jnp.asarray(audio), port(), capacity=8, speech_pad_ms=0).to_list()
    inside = np.zeros(len(audio), bool)
    for start, end in voiced:
        inside[start:end] = True
    said = np.zeros(len(audio), bool)
    for segment in found:
        said[segment["start"] : segment["end"]] = True
    assert (inside & said).sum() > 0.8 * (inside | said).sum()


@pytest.mark.parametrize("name", ["default", "cut at the last silence", "padding that meets"])
def test_segments_of_a_recording_are_the_packages(name):
    audio = recordings()[0]
    wanted = package().get_speech_timestamps(torch.tensor(audio), original(), **OPTIONS[name])
    find = nnx.jit(lambda model, x: get_speech_timestamps(x, model, capacity=16, **OPTIONS[name]))
    assert len(wanted) > 1
    assert find(port(), audio).to_list() == wanted


def test_a_buffer_longer_than_the_recording():
    audio = recordings()[0]
    find = nnx.jit(lambda model, x, n: get_speech_timestamps(x, model, capacity=16, audio_length_samples=n))
    for length in (30000, 61234):
        wanted = package().get_speech_timestamps(torch.tensor(audio[:length]), original())
        assert find(port(), audio, length).to_list() == wanted


def random_probabilities(rng: np.random.Generator) -> np.ndarray:
    """`[CHUNKS]` float32: a random walk, with some that are just at a threshold."""
    walk = np.cumsum(rng.normal(0, rng.uniform(0.3, 2), CHUNKS))
    logits = (walk - np.linspace(walk[0], walk[-1], CHUNKS) * rng.random()) * rng.uniform(0.3, 3)
    at_threshold = rng.random(CHUNKS) < 0.1
    return np.where(at_threshold, rng.choice([0.5, 0.35, 0.3, 0.15], CHUNKS), 1 / (1 + np.exp(-logits))).astype("f4")


@pytest.mark.parametrize("name", OPTIONS)
def test_segments_are_the_packages(name):
    segments = package().get_speech_timestamps_from_probs
    find = jax.jit(partial(get_speech_timestamps_from_probs, capacity=2 * CHUNKS, **OPTIONS[name]))
    numbers = set()
    for seed in range(60):
        rng = np.random.default_rng(seed)
        probs = random_probabilities(rng)
        length = int(rng.integers(1, 512 * CHUNKS)) if seed % 2 else 512 * CHUNKS - int(rng.integers(512))
        live = probs[: -(-length // 512)].astype(float).tolist()
        wanted = segments(live, audio_length_samples=length, **OPTIONS[name])
        assert find(probs, audio_length_samples=length).to_list() == wanted
        numbers.add(len(wanted))
    assert len(numbers) > 3


def test_a_threshold_between_two_float32_numbers():
    above = np.float32(0.35)  # above 0.35 itself
    below = np.nextafter(above, np.float32(0))
    probs = np.array([0.9] * 10 + [above, below] * 10, np.float32)
    wanted = package().get_speech_timestamps_from_probs(probs.astype(float).tolist(), threshold=0.35)
    found = get_speech_timestamps_from_probs(jnp.asarray(probs), capacity=4, threshold=0.35)
    assert found.to_list() == wanted


def test_more_segments_than_room_is_told():
    probs = jnp.tile(jnp.repeat(jnp.array([0.9, 0.1]), 10), 5)
    whole = get_speech_timestamps_from_probs(probs, capacity=5)
    cut = get_speech_timestamps_from_probs(probs, capacity=3)
    assert (int(whole.count), bool(whole.overflow)) == (5, False)
    assert (int(cut.count), bool(cut.overflow)) == (5, True)
    kept = [{key: int(cut.values[key][i]) for key in ("start", "end")} for i in range(3)]
    assert kept == whole.to_list()[:3]
    with pytest.raises(ValueError, match="5 entries, and its capacity is 3"):
        jax.block_until_ready(get_speech_timestamps_from_probs(probs, capacity=3, on_overflow="raise"))


def test_several_recordings_at_once():
    rows = jnp.stack([jnp.asarray(random_probabilities(np.random.default_rng(seed))) for seed in range(3)])
    find = partial(get_speech_timestamps_from_probs, capacity=40)
    together = jax.vmap(find)(rows)
    assert together.count.tolist() == [int(find(row).count) for row in rows]


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_a_file_of_another_size_loads(tmp_path, suffix):
    config = SileroConfig.tiny()
    mine = SileroVAD(config, rngs=nnx.Rngs(3))
    state, path = weights.to_state_dict(mine), tmp_path / f"mine{suffix}"
    if suffix == ".pth":
        torch.save(state, path)
    else:
        pytest.importorskip("safetensors.torch").save_file(state, path)
    loaded = silero_vad.load(path)
    assert loaded.config == config
    audio = jax.random.normal(jax.random.key(0), (1, 200))
    np.testing.assert_array_equal(loaded(audio)[0], mine(audio)[0])


@pytest.mark.parametrize(
    ("error", "words", "call"),
    [
        (ValueError, "chunk has shape", lambda: tiny().step(jnp.zeros((1, 63)), tiny().initial_state(1))),
        (ValueError, "audio has shape", lambda: tiny()(jnp.zeros(64))),
        (ValueError, "audio has a batch of 2", lambda: tiny()(jnp.zeros((2, 64)), tiny().initial_state(1))),
        (ValueError, "speech_probs has shape", lambda: get_speech_timestamps_from_probs(jnp.ones((2, 3)), capacity=1)),
        (TypeError, "speech_pad_ms is 0.5", lambda: get_speech_timestamps_from_probs(P, capacity=1, speech_pad_ms=0.5)),
        (ValueError, "speech_pad_ms is -1", lambda: get_speech_timestamps_from_probs(P, capacity=1, speech_pad_ms=-1)),
        (
            ValueError,
            "max_speech_duration_s is nan",
            lambda: get_speech_timestamps_from_probs(P, capacity=1, max_speech_duration_s=math.nan),
        ),
    ],
)
def test_wrong_arguments(error, words, call):
    with pytest.raises(error, match=words):
        call()


P = jnp.ones(3)


def tiny() -> SileroVAD:
    return SileroVAD(SileroConfig.tiny(), rngs=nnx.Rngs(0))


def test_missing_weights_say_what_to_install(monkeypatch):
    from graphmode.models import installed

    monkeypatch.setattr(installed, "find_spec", lambda name: None)
    for load in (CASE.pretrained, silero_vad.load):
        with pytest.raises(ImportError, match="pip install --no-deps silero-vad=="):
            load()


@pytest.mark.slow
@pytest.mark.parametrize("case", [CASE, TIMESTAMPS], ids=lambda case: case.name)
def test_a_whole_case_passes(case):
    report = check(case, draws=1)
    assert report.passed, str(report)
