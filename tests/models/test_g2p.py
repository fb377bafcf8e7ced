"""g2p against the numpy class it comes from: states, logits and phonemes; and decoding within its bounds."""

from __future__ import annotations

import ast
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from graphmode.compare import check
from graphmode.models import g2p, installed
from graphmode.models.g2p import case
from graphmode.models.g2p.model import PAD, STEPS, WEIGHTS, G2pConfig
from graphmode.models.g2p.reference import G2p as Reference
from graphmode.models.g2p.spelling import GRAPHEMES, PHONEMES, pronounced, spelt
from graphmode.models.g2p.words import NEW_WORDS, PRONUNCIATIONS, dictionary, some
from planting import quickly, with_some_inputs

from graphmode.weights import to_state_dict

try:
    PUBLISHED = installed.installed_weights("g2p")
    MISSING = ""
except ImportError as error:
    MISSING = str(error)
needs_weights = pytest.mark.skipif(bool(MISSING), reason=MISSING)

WORDS = [*NEW_WORDS, *PRONUNCIATIONS, "", "pneumonoultramicroscopicsilicovolcanoconiosis"]


@pytest.fixture(scope="module")
def original():
    """The package's own `G2p`, whose module would import nltk and fetch a dictionary: its class alone, as it stands."""
    source = ast.parse(PUBLISHED.with_name("g2p.py").read_text())
    (body,) = (node for node in source.body if isinstance(node, ast.ClassDef))
    names = {
        "np": np,
        "os": __import__("os"),
        "dirname": str(PUBLISHED.parent),
        "cmudict": SimpleNamespace(dict=dict),
        "construct_homograph_dictionary": dict,
    }
    exec(compile(ast.Module([body], []), "g2p.py", "exec"), names)
    return names["G2p"]()


@needs_weights
@pytest.mark.filterwarnings("ignore")
def test_phonemes_are_those_of_the_package(original):
    wanted = [[str(phoneme) for phoneme in original.predict(word)] for word in WORDS]
    found = jax.jit(g2p.load().pronounce)(spelt(WORDS))
    assert pronounced(found.tokens, found.lengths) == wanted
    assert [not cut for cut in np.asarray(found.cut_short)] == [len(row) < STEPS for row in wanted]
    assert wanted[0] == ["AE2", "K", "T", "IH0", "V", "EY1", "SH", "AH0", "N", "IH0", "S", "T"]
    assert len({len(row) for row in wanted}) > 5
    assert list(GRAPHEMES) == original.graphemes
    assert list(PHONEMES) == original.phonemes


@needs_weights
def test_the_reference_is_the_package(original):
    """The state at the end of each word, and the logits after each phoneme, in float64."""
    reference = Reference().double()
    reference.load_state_dict(case.CASE.pretrained())
    for name, array in original.variables.items():
        setattr(original, name, np.float64(array))
    original.gru = lambda x, steps, *weights, h0: in_float64(original, x, steps, *weights, h0=h0)
    words = ["knight", "pronunciation", "x", "don't"]
    graphemes, phonemes = spelt(words), np.array([[2, 9, 45], [2, 56, 57], [2, 26, 45], [2, 24, 5]])
    with torch.no_grad():
        states = reference.encode(torch.from_numpy(graphemes))
        logits = reference(torch.from_numpy(graphemes), torch.from_numpy(phonemes))
    decoder = [getattr(original, f"dec_{name}") for name in ("w_ih", "w_hh", "b_ih", "b_hh")]
    encoder = [getattr(original, f"enc_{name}") for name in ("w_ih", "w_hh", "b_ih", "b_hh")]
    for row, word in enumerate(words):
        h = original.gru(original.encode(word), len(word) + 1, *encoder, h0=np.zeros((1, 256)))[:, -1]
        np.testing.assert_allclose(states[row], h[0], rtol=0, atol=1e-13)
        for t, token in enumerate(phonemes[row]):
            h = original.grucell(original.dec_emb[[token]], h, *decoder)
            np.testing.assert_allclose(logits[row, t], (h @ original.fc_w.T + original.fc_b)[0], rtol=0, atol=1e-12)


def in_float64(original, x, steps, *weights, h0):
    """The package's `gru`, whose outputs are an array of float32."""
    outputs, h = [], h0
    for t in range(steps):
        h = original.grucell(x[:, t], h, *weights)
        outputs.append(h)
    return np.stack(outputs, 1)


@needs_weights
def test_every_array_goes_by_a_rule_there_and_back():
    arrays = np.load(PUBLISHED, allow_pickle=False)
    back = to_state_dict(g2p.load(), WEIGHTS, framework="numpy")
    assert back.keys() == set(arrays) == set(Reference().state_dict())
    for name in arrays:
        np.testing.assert_array_equal(back[name], arrays[name])


@needs_weights
def test_padding_changes_nothing():
    port = g2p.load()
    short, long = (port.pronounce(spelt(WORDS, length=length)) for length in (46, 60))
    for a, b in zip(short, long, strict=True):
        np.testing.assert_array_equal(a, b)


@needs_weights
def test_too_few_steps_are_told():
    port = g2p.load()
    whole, short = port.pronounce(spelt(WORDS)), port.pronounce(spelt(WORDS), max_new_tokens=5)
    late = np.asarray(whole.lengths) > 5
    assert 0 < late.sum() < len(WORDS)
    np.testing.assert_array_equal(short.cut_short, late)
    np.testing.assert_array_equal(short.tokens, np.asarray(whole.tokens)[:, :5])


@pytest.mark.parametrize("suffix", [".npz", ".pt"])
def test_a_file_of_another_size_loads(tmp_path, suffix):
    torch.manual_seed(0)
    config = G2pConfig(graphemes=31, phonemes=40, embedding=5, hidden=7)
    theirs = Reference(config)
    state = theirs.state_dict()
    if suffix == ".npz":
        np.savez(tmp_path / "mine.npz", **{name: tensor.numpy() for name, tensor in state.items()})
    else:
        torch.save(state, tmp_path / "mine.pt")
    port = g2p.load(tmp_path / f"mine{suffix}")
    rng = np.random.default_rng(0)
    graphemes, phonemes = rng.integers(1, 31, (3, 6)), rng.integers(0, 40, (3, 4))
    graphemes[1, 2:] = PAD
    with torch.no_grad():
        wanted = theirs(torch.from_numpy(graphemes), torch.from_numpy(phonemes)).numpy()
    np.testing.assert_allclose(port(jnp.asarray(graphemes), jnp.asarray(phonemes)), wanted, atol=1e-6)
    np.savez(tmp_path / "other.npz", weight=np.ones(2))
    with pytest.raises(ValueError, match="state has no enc_emb, fc_w"):
        g2p.load(tmp_path / "other.npz")


def test_words_that_are_too_long_are_told():
    with pytest.raises(ValueError, match="words has 'knight', and length is 6; give at least 7"):
        spelt(["a", "knight"], length=6)


def test_words_follow_the_generator():
    first, again, other = (some(np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert first == again != other
    graphemes, phonemes = dictionary(np.random.default_rng(0))
    assert graphemes.shape == phonemes.shape == (8, 16)


def test_missing_weights_say_what_to_install(monkeypatch):
    monkeypatch.setattr(installed, "find_spec", lambda name: None)
    for load_them in (case.CASE.pretrained, g2p.load):
        with pytest.raises(ImportError, match="pip install --no-deps g2p-en=="):
            load_them()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["CASE", "DECODE_CASE"])
def test_a_whole_case_passes(name):
    report = check(with_some_inputs(getattr(case, name)), draws=1)
    assert report.passed, str(report)


@pytest.mark.parametrize("name", ["CASE", "DECODE_CASE"])
def test_a_case_passes_with_random_weights(name, monkeypatch):
    monkeypatch.setattr(installed, "find_spec", lambda name: None)
    report = check(quickly(getattr(case, name)), draws=1)
    assert report.passed, str(report)
