"""ANARCII against the package it comes from: logits, tokens, scores and IMGT numbers; and where it ends."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import check
from graphmode.models import anarcii, installed
from graphmode.models.anarcii import case, numbering
from graphmode.models.anarcii.config import EOS, PAD, SOS, AnarciiConfig
from graphmode.models.anarcii.reference import AnarciiGenerator
from graphmode.models.anarcii.sequences import SEQUENCES, numbered, varied
from graphmode.models.anarcii.vocabulary import TCR_LABELS, labels, tokenise
from planting import quickly, with_some_inputs

from graphmode.weights import load

try:
    installed.installed_weights("anarcii")
    MISSING = ""
except ImportError as error:
    MISSING = str(error)
needs_weights = pytest.mark.skipif(bool(MISSING), reason=MISSING)

KNOWN = list(SEQUENCES.values())
LINKER = "GGGGSGGGGS"
TROUBLE = {
    "cut early": KNOWN[0][:112],
    "begins late": KNOWN[1][5:],
    "with a leader": "MKWVTFISLLFLFSSAYS" + KNOWN[0],
    "with a tail": KNOWN[2] + LINKER * 3,
    "unusual residues": KNOWN[0].replace("G", "B", 3).replace("K", "U", 1),
    "no antibody": "MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQAPILSRVGDGTQDNLSGAEKAVQVKVKALPDAQFEVVHSLAKWKRQTLGQHDFSAGEGLYTHMK",
    "too short": "EVQLVESGGG",
    "two insertions": KNOWN[2].replace("VSYLSTASSLDY", "VSYLSTASSTALDYYYGMDV"),
}
TCR = {
    "alpha": (
        "KEVEQNSGPLSVPEGAIASLNCTYSDRGSQSFFWYRQYSGKSPELIMFIYSNGDKEDGRFTAQLNKASQYVSLLIRDSQPSDSATYLCAVTTDSWGKLQFGAGTQVVVTP"
    ),
    "beta": (
        "NAGVTQTPKFQVLKTGQSMTLQCAQDMNHEYMSWYRQDPGMGLRLIHYSVGAGITDQGEVPNGYNVSRSTTEDFPLRLLSAAPSQTSVYFCASRPGLAGGRPEQYFGPG"
        "TRLTVTE"
    ),
}


def originals(sequences, seq_type="antibody"):
    """What the package gives for each of the sequences, which it sorts and pads itself."""
    threads = torch.get_num_threads()
    try:
        model = pytest.importorskip("anarcii").Anarcii(seq_type=seq_type, batch_size=8, cpu=True, ncpu=1)
        return list(model.number({str(i): sequence for i, sequence in enumerate(sequences)}).values())
    finally:
        torch.set_num_threads(threads)


def runner(monkeypatch, seen):
    """The package's inference, which writes the tokens and logits that it generates to `seen`."""
    from anarcii.inference.model_runner import ModelRunner

    original = ModelRunner("antibody", "accuracy", 8, torch.device("cpu"), False, False)
    decode = original.model.decoder.forward

    def forward(*args):
        logits, caches = decode(*args)
        seen.append(logits[:, -1])
        return logits, caches

    monkeypatch.setattr(original.model.decoder, "forward", forward)
    return original


@needs_weights
def test_tokens_are_those_of_the_package(monkeypatch):
    sequences = [*KNOWN, *TROUBLE.values()]
    src = tokenise(sequences)
    seen = []
    original = runner(monkeypatch, seen)
    original._predict_numbering([torch.from_numpy(src)])
    wanted, logits = torch.stack(seen, 1).argmax(-1).numpy(), torch.stack(seen, 1).max(-1).values.numpy()
    assert wanted.shape == src.shape
    port = anarcii.load()
    found = jax.jit(port.generate)(src)
    assert not np.asarray(found.cut_short)[: len(KNOWN)].any()
    assert len(set(np.asarray(found.lengths).tolist())) > 4
    for row, length in enumerate(np.asarray(found.lengths)):
        ends = np.flatnonzero(wanted[row] == EOS)
        assert length == (ends[0] + 1 if len(ends) else src.shape[1])
        assert bool(found.cut_short[row]) == (not len(ends))
        np.testing.assert_array_equal(found.tokens[row, :length], wanted[row, :length])
        np.testing.assert_allclose(found.logits[row, :length], logits[row, :length], atol=0.05)
        assert not np.asarray(found.tokens[row, length:]).any()
        assert not np.asarray(found.logits[row, length:]).any()
    assert [row[0] for row in labels(found.tokens, found.lengths)][: len(KNOWN)] == ["H", "K", "H", "K", "L", "H"]


@needs_weights
def test_logits_are_those_of_the_package_in_float64():
    from anarcii.inference.model_loader import Loader

    original = Loader("antibody", "accuracy", torch.device("cpu")).model.double()
    for part in (original.encoder, original.decoder):
        part.scale = torch.tensor(128.0, dtype=torch.float64).sqrt()  # no buffer, so `double` leaves it in float32
    src, trg = numbered(np.random.default_rng(0), [KNOWN[0][:20], KNOWN[1][:30]], 40)
    with torch.no_grad():
        mine, theirs = torch.from_numpy(src), torch.from_numpy(trg)
        padding = original.make_src_mask(mine)
        memory = original.encoder(mine, padding)
        wanted, _ = original.decoder(theirs, memory, *original.make_trg_mask(theirs), padding)
    with jax.enable_x64(True):
        port = jax.tree.map(lambda x: x.astype(jnp.float64), anarcii.load())
        np.testing.assert_allclose(jax.jit(port)(src, trg), wanted.numpy(), atol=1e-11 * np.abs(wanted.numpy()).max())


@needs_weights
@pytest.mark.parametrize("kind", ["antibody", "tcr"])
def test_numbers_are_those_of_the_package(kind):
    sequences = [*KNOWN, *TROUBLE.values()] if kind == "antibody" else list(TCR.values())
    wanted = originals(sequences, kind)
    if kind == "antibody":
        found = numbering.number(anarcii.load(), sequences)
        assert {"H", "K", "L", "F"} == {one.chain_type for one in found}
    else:
        path = installed.installed_weights("anarcii").parents[1] / "tcr" / "tcr_4_2_128_512.pt"
        found = numbering.number(anarcii.load(path), sequences, names=TCR_LABELS, cutoff=25)
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine.score == pytest.approx(theirs["score"], abs=0.05)
        assert mine.numbering == theirs["numbering"]
        for name in ("chain_type", "query_start", "query_end", "error"):
            assert getattr(mine, name) == theirs[name], name


def corrupted(rng, names):
    """What a model might say of the first 128 residues: rising numbers with runs of X, gaps, skips and nonsense."""
    words = ["<SKIP>"] * rng.integers(0, 3) + [str(n) for n in range(rng.integers(1, 10), rng.integers(116, 129))]
    for _ in range(rng.integers(0, 4)):
        at, width = rng.integers(0, len(words)), rng.integers(1, 8)
        edits = {"X": ["X"] * width, "gap": [], "<SKIP>": ["<SKIP>"], "H": ["H"], "again": [words[at - 1]] * 2}
        edit = rng.choice(list(edits), p=[0.5, 0.35, 0.05, 0.05, 0.05])
        if edit == "X" and rng.random() < 0.7:
            at = words.index(str(rng.choice([32, 60, 111]))) + 1 if {"32", "60", "111"} <= set(words) else at
        words[at : at + (width if edit == "gap" else 0)] = edits[edit]
    words = [str(rng.choice(["H", "K", "L"])), *words]
    return [names.index(word) for word in words] + ([EOS] if rng.random() < 0.9 else [])


@needs_weights
def test_numbers_of_any_answer_are_those_of_the_package():
    """Its post-processing alone, with a model for which we say what it answers, over hundreds of odd answers."""
    from anarcii.inference.model_runner import ModelRunner

    rng = np.random.default_rng(0)
    sequences = [KNOWN[i % len(KNOWN)] + LINKER * int(rng.integers(0, 3)) for i in range(400)]
    src = tokenise(sequences)
    batch, length = src.shape
    tokens = np.zeros((batch, length), np.int32)
    for row in tokens:
        answer = corrupted(rng, numbering.LABELS)[:length]
        row[: len(answer)] = answer
    ends = np.argmax(tokens == EOS, axis=1)
    lengths = np.where((tokens == EOS).any(1), ends + 1, length)
    logits = rng.uniform(13, 22, (batch, 1)) + rng.uniform(0, 1, (batch, length))
    scores = torch.zeros(batch, length, len(numbering.LABELS))
    scores.scatter_(2, torch.from_numpy(tokens).long()[..., None], torch.from_numpy(logits).float()[..., None])
    answers = iter(scores.split(1, dim=1))
    original = ModelRunner("antibody", "accuracy", 8, torch.device("cpu"), False, False)
    original.model = SimpleNamespace(
        make_src_mask=lambda src: None,
        make_trg_mask=lambda trg: (None, None),
        encoder=lambda *args: None,
        decoder=lambda *args: (next(answers), None),
    )
    wanted = original._predict_numbering([torch.from_numpy(src)])
    said = set()
    for *row, theirs in zip(sequences, tokens, lengths, logits, wanted, strict=True):
        mine = numbering.numbered(*row)
        assert mine.score == pytest.approx(theirs["score"], rel=1e-5)
        for name in ("error", "chain_type", "numbering", "query_start", "query_end"):
            assert getattr(mine, name) == theirs[name], name
        said.add(mine.error)
    assert {None, "Score less than cut off.", "Model predicted duplicate numbers"} <= said
    assert len(said) > 5


@needs_weights
def test_other_models_of_the_package_load():
    folder = installed.installed_weights("anarcii").parents[1]
    sizes = {
        "antibody/antibody_4_1_128_512.pt": AnarciiConfig(n_layers=1),
        "tcr/tcr_4_2_128_512.pt": AnarciiConfig(output_dim=137),
        "shark/shark_4_2_128_512.pt": AnarciiConfig(),
    }
    for path, config in sizes.items():
        assert anarcii.load(folder / path).config == config


@pytest.fixture(scope="module")
def pair():
    """The reference in float64 with random weights of a tiny size, and the port with the same."""
    torch.manual_seed(3)
    reference = AnarciiGenerator(AnarciiConfig.tiny()).double().eval()
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter *= 5  # likelihoods far apart
        reference.decoder.fc_out.bias[[PAD, EOS]] += 8
    with jax.enable_x64(True):
        port = nnx.eval_shape(lambda: anarcii.Anarcii(AnarciiConfig.tiny(), rngs=nnx.Rngs(0)))
        load(port, reference.state_dict())
    return reference, port


def asked(rng, batch, length):
    """Random residues of random lengths."""
    src = rng.integers(4, 25, (batch, length)).astype(np.int32)
    ends = rng.integers(1, length, batch)
    places = np.arange(length)
    src = np.where(places < ends[:, None], src, np.where(places == ends[:, None], EOS, PAD))
    return np.where(places == 0, SOS, src).astype(np.int32)


def test_random_weights_generate_what_the_eager_loop_does(pair):
    """Padding tokens among them, which the next ones do not attend to."""
    reference, port = pair
    src = asked(np.random.default_rng(0), 64, 12)
    with torch.no_grad():
        wanted = reference(torch.from_numpy(src))
    with jax.enable_x64(True):
        found = jax.jit(port.generate)(src)
        for ours, theirs in zip(found, wanted, strict=True):
            np.testing.assert_allclose(ours, theirs.numpy(), rtol=0, atol=1e-11)
    inside = np.arange(12) < np.asarray(found.lengths)[:, None]
    assert (np.asarray(found.tokens)[inside] == PAD).any()
    assert len(set(np.asarray(found.lengths).tolist())) > 2
    assert 0 < np.asarray(found.cut_short).sum() < 64


def test_step_by_step_is_all_at_once(pair):
    """Logits of the generated tokens, from the cache, against those of the whole answer at once."""
    _, port = pair
    src = asked(np.random.default_rng(1), 8, 12)
    with jax.enable_x64(True):
        found = jax.jit(port.generate)(src)
        trg = np.concatenate([src[:, :1], np.asarray(found.tokens)[:, :-1]], axis=1)
        logits = np.take_along_axis(np.asarray(port(src, trg)), np.asarray(found.tokens)[..., None], axis=-1)[..., 0]
    inside = np.arange(12) < np.asarray(found.lengths)[:, None]
    np.testing.assert_allclose(np.asarray(found.logits)[inside], logits[inside], rtol=0, atol=1e-11)


def test_padding_changes_nothing(pair):
    _, port = pair
    src = asked(np.random.default_rng(2), 8, 10)
    with jax.enable_x64(True):
        short = port.generate(src, max_new_tokens=9)
        long = port.generate(np.pad(src, ((0, 0), (0, 5))), max_new_tokens=9)
    for a, b in zip(short, long, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


def test_too_few_tokens_are_told(pair):
    _, port = pair
    src = asked(np.random.default_rng(0), 64, 12)
    with jax.enable_x64(True):
        whole = port.generate(src)
        short = port.generate(src, max_new_tokens=2)
    late = np.asarray(whole.lengths) > 2
    assert 0 < late.sum() < 64
    np.testing.assert_array_equal(short.cut_short, late)
    np.testing.assert_array_equal(short.tokens, np.asarray(whole.tokens)[:, :2])


def test_more_tokens_than_positions_are_refused(pair):
    _, port = pair
    with pytest.raises(ValueError, match=r"src has shape .* there are 16 positions"):
        port(np.ones((1, 17), np.int32), np.ones((1, 3), np.int32))
    with pytest.raises(ValueError, match="trg has shape"):
        port(np.ones((1, 3), np.int32), np.ones((1, 17), np.int32))
    with pytest.raises(ValueError, match="max_new_tokens is 17, and there are 16 positions"):
        port.generate(np.ones((1, 3), np.int32), max_new_tokens=17)


def test_a_file_of_another_size_loads(tmp_path, pair):
    reference, port = pair
    torch.save(reference.float().state_dict(), tmp_path / "mine.pt")
    mine = anarcii.load(tmp_path / "mine.pt", n_heads=2)
    reference.double()
    assert mine.config == AnarciiConfig.tiny()
    assert anarcii.load(tmp_path / "mine.pt").config.n_heads == 4
    (tmp_path / "mine.json").write_text('{"HEADS": 2}')
    assert anarcii.load(tmp_path / "mine.pt").config.n_heads == 2
    src = asked(np.random.default_rng(4), 3, 9)
    trg = src % 19
    with jax.enable_x64(True):
        wanted = port(src, trg)
    np.testing.assert_allclose(mine(src, trg), wanted, atol=1e-3)
    torch.save({"weight": torch.ones(2)}, tmp_path / "other.pt")
    with pytest.raises(ValueError, match=r"state has no encoder\.tok_embedding.weight, .*ANARCII"):
        anarcii.load(tmp_path / "other.pt")


def test_tokens_are_those_of_the_packages_tokeniser():
    tokeniser = pytest.importorskip("anarcii.input_data_processing.tokeniser")
    theirs = tokeniser.NumberingTokeniser("protein_antibody")
    sequences = [*KNOWN, "BOJUZX", ""]
    tokens = tokenise(sequences, length=150)
    assert tokens.shape == (len(sequences), 150)
    for row, sequence in zip(tokens, sequences, strict=True):
        wanted = theirs.encode([theirs.start, *sequence, theirs.end])
        np.testing.assert_array_equal(row[: len(wanted)], wanted)
        assert not row[len(wanted) :].any()
    for kind, names in (("number_antibody", numbering.LABELS), ("number_tcr", TCR_LABELS)):
        assert [str(token) for token in tokeniser.NumberingTokeniser(kind).tokens] == list(names)


def test_what_cannot_be_tokenised_is_named():
    with pytest.raises(ValueError, match=r"sequences\[1\] has 201 residues, and at most 200 fit"):
        tokenise(["A", "A" * 201])
    with pytest.raises(ValueError, match=r"sequences\[0\] has '-', 'a', which no amino acid.*sequences\[1\] has 4 res"):
        tokenise(["a-A", "AAAA"], length=5)
    with pytest.raises(ValueError, match="'<PAD>'"):
        tokenise([["<PAD>"]])


def test_varied_domains_follow_the_generator():
    first, again, other = (varied(np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert first == again != other
    assert len({len(sequence) for sequence in first}) > 1


def test_missing_weights_say_what_to_install(monkeypatch):
    monkeypatch.setattr(installed, "find_spec", lambda name: None)
    for load_them in (case.CASE.pretrained, anarcii.load):
        with pytest.raises(ImportError, match=r"pip install .*anarcii=="):
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
