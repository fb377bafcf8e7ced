"""ALBERT: our transcription against `transformers`, the port against both, rxnmapper's tokens and published mapping."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import jax
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import check
from graphmode.models import albert, installed
from graphmode.models.albert import AlbertConfig, ReactionTokenizer
from graphmode.models.albert.case import CASE, reference, sequences
from graphmode.models.albert.model import WEIGHTS, Albert
from graphmode.models.albert.reactions import MASKED, installed_tokenizer, readings
from graphmode.models.config_json import read_config
from planting import needs_transformers, quickly, with_some_inputs

from graphmode.weights import load, to_state_dict

TINY = AlbertConfig.tiny()
CONFIGS = {
    "tiny": TINY,
    "odd": replace(
        TINY, hidden_size=18, num_attention_heads=3, num_hidden_layers=1, pad_token_id=2, layer_norm_eps=1e-3
    ),
}
TOKENS = {  # reaction: what rxnmapper's regex makes of it
    "CCO>>CC=O": ["C", "C", "O", ">>", "C", "C", "=", "O"],
    "BrC[C@@H](Cl)c1>O>[Na+]": ["Br", "C", "[C@@H]", "(", "Cl", ")", "c", "1", ">", "O", ">", "[Na+]"],
    "C%12/C": ["C", "%12", "/", "C"],
    "C[MASK]~B": ["C", "[MASK]", "~", "B"],
    "": [],
}


def weights_or_skip() -> Path:
    try:
        return installed.installed_weights("albert")
    except ImportError as error:
        pytest.skip(str(error))


def tensors(inputs: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(value) for name, value in inputs.items()}


def run(model: nnx.Module, inputs: dict[str, np.ndarray]):
    graphdef, state = nnx.split(model)
    return jax.jit(lambda state, inputs: nnx.merge(graphdef, state)(**inputs))(state, inputs)


@needs_transformers
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_the_transcription_is_transformers(config):
    import transformers

    theirs_config = transformers.AlbertConfig(
        **asdict(config), hidden_act="gelu", num_hidden_groups=1, inner_group_num=1, attn_implementation="eager"
    )
    torch.manual_seed(0)
    ours = reference(config).double().eval()
    for parameter in ours.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    state = ours.state_dict()
    model = transformers.AlbertModel(theirs_config).double().eval()
    model.load_state_dict({k.removeprefix("albert."): v for k, v in state.items() if k.startswith("albert.")})
    head = transformers.AlbertForMaskedLM(theirs_config).double().eval()
    head.load_state_dict({k: v for k, v in state.items() if "pooler" not in k})
    rng = np.random.default_rng(0)
    inputs = tensors(sequences(rng, np.array([9, 4, 1]), 9, config))
    with torch.inference_mode():
        outputs, wanted = ours(**inputs), model(**inputs, output_attentions=True)
        logits = head(**inputs).logits
    torch.testing.assert_close(outputs.last_hidden_state, wanted.last_hidden_state)
    torch.testing.assert_close(outputs.pooler_output, wanted.pooler_output)
    torch.testing.assert_close(outputs.attentions, torch.stack(wanted.attentions))
    torch.testing.assert_close(outputs.logits, logits)


def test_a_state_dict_goes_by_name_there_and_back():
    original = reference(TINY).state_dict()
    port = nnx.eval_shape(lambda: Albert(TINY, rngs=nnx.Rngs(0)))
    load(port, original, WEIGHTS)
    back = to_state_dict(port, WEIGHTS)
    assert len(original) == 32
    assert back.keys() == original.keys()
    assert all(torch.equal(back[name], original[name]) for name in original)


def tiny(scan: bool) -> Albert:
    return Albert(TINY, scan=scan, rngs=nnx.Rngs(0))


@pytest.mark.parametrize("scan", [True, False], ids=["scan", "unrolled"])
def test_it_is_equal_and_precise(scan):
    """A gradient that the scan did not sum over its layers would be a third of the right one."""
    case = replace(
        CASE,
        reference=lambda: reference(TINY),
        pretrained=None,
        model=lambda rngs: Albert(TINY, scan=scan, rngs=rngs),
        inputs=lambda rng: sequences(rng, np.array([7, 3]), 7, TINY),
        edge_inputs={},
        interpret={},
    )
    report = check(case, draws=1)
    assert report.passed, str(report)


def test_the_scan_traces_one_layer_and_stacks_no_weights():
    inputs = sequences(np.random.default_rng(0), np.array([7, 3]), 7, TINY)

    def traced(scan: bool, layers: int):
        model = Albert(replace(TINY, num_hidden_layers=layers), scan=scan, rngs=nnx.Rngs(0))
        graphdef, state = nnx.split(model)
        return jax.jit(lambda state: nnx.merge(graphdef, state)(**inputs)).trace(state).jaxpr

    (loop,) = [equation for equation in traced(True, 12).eqns if equation.primitive.name == "scan"]
    assert loop.params["length"] == 12
    assert len(loop.invars) == loop.params["num_consts"] + loop.params["num_carry"]  # nothing is scanned over
    products = {(scan, n): str(traced(scan, n)).count("dot_general") for scan in (True, False) for n in (3, 12)}
    assert products[True, 12] == products[True, 3] < products[False, 3] < products[False, 12]


@pytest.mark.parametrize(("reaction", "tokens"), TOKENS.items())
def test_tokens(reaction, tokens, tmp_path):
    assert tokenizer(tmp_path).tokenize(reaction) == tokens


def tokenizer(folder: Path) -> ReactionTokenizer:
    path = folder / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "C", "O", "=", ">>"]) + "\n")
    return ReactionTokenizer(path)


def test_ids_have_their_ends_and_unknown_tokens_their_own(tmp_path):
    batch = tokenizer(tmp_path).batch(["CCO>>CC=O", "N>>C"], length=11)
    assert batch.values.tolist() == [[2, 5, 5, 6, 8, 5, 5, 7, 6, 3, 0], [2, 1, 8, 5, 3, 0, 0, 0, 0, 0, 0]]
    assert batch.lengths.tolist() == [10, 5]


def test_what_the_tokenizer_cannot_read_is_told(tmp_path):
    ours = tokenizer(tmp_path)
    with pytest.raises(ValueError, match=r"'x y' is no SMILES"):
        ours.tokenize("CxC yC")
    with pytest.raises(ValueError, match=r"nothing is cut"):
        ours.batch(["CCO>>CC=O"], length=9)
    (tmp_path / "short.txt").write_text("[PAD]\nC\n")
    with pytest.raises(ValueError, match=r"\[UNK\], \[CLS\], \[SEP\], \[MASK\] is not in it"):
        ReactionTokenizer(tmp_path / "short.txt")


def test_the_regex_is_the_original_s():
    """Read from the package's source, which is not imported: it needs rdkit."""
    source = weights_or_skip().parents[3] / "smiles_utils.py"
    (pattern,) = (
        ast.literal_eval(node.value)
        for node in ast.parse(source.read_text()).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "SMI_REGEX_PATTERN"
    )
    assert albert.reactions.TOKEN.pattern == pattern
    for reaction, tokens in TOKENS.items():
        assert re.findall(pattern, reaction) == tokens


def test_masked_atoms_are_read_from_the_reactants():
    weights_or_skip()
    batch = installed_tokenizer().batch(MASKED)
    outputs = run(albert.load(), {"input_ids": batch.values, "attention_mask": batch.mask})
    assert list(readings(outputs.logits).values()) == ["S", "C", "O"]


def test_a_file_of_other_sizes_loads_as_its_config_says(tmp_path):
    config = CONFIGS["odd"]
    torch.manual_seed(0)
    theirs = reference(config).eval()
    torch.save(theirs.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"no config.json lies beside it"):
        albert.load(tmp_path / "pytorch_model.bin")
    (tmp_path / "config.json").write_text(json.dumps({**asdict(config), "hidden_act": "gelu"}))
    port = albert.load(tmp_path / "pytorch_model.bin")
    inputs = sequences(np.random.default_rng(0), np.array([5, 3]), 5, config)
    with torch.inference_mode():
        wanted = theirs(**tensors(inputs))
    for ours, theirs_ in zip(run(port, inputs), wanted, strict=True):
        np.testing.assert_allclose(ours, theirs_, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"hidden_act": "gelu_new"}', r"hidden_act is 'gelu_new'; the port knows"),
        ('{"num_hidden_groups": 3, "inner_group_num": 2}', r"num_hidden_groups is 3 and inner_group_num is 2"),
        ("[]", r"holds a list, and an object"),
        ("{", r"is no JSON"),
        ('{"hidden_size": 30, "num_attention_heads": 4}', r"hidden_size is 30, which num_attention_heads = 4 does not"),
    ],
)
def test_a_config_that_the_port_does_not_know_is_refused(text, words, tmp_path):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=words):
        read_config(AlbertConfig, tmp_path / "weights.bin", fixed=albert.config.FIXED)


def test_the_installed_sizes_are_the_defaults():
    assert read_config(AlbertConfig, weights_or_skip(), fixed=albert.config.FIXED) == AlbertConfig()


def test_too_many_tokens_are_refused():
    ids = np.ones((1, TINY.max_position_embeddings + 1), np.int32)
    with pytest.raises(ValueError, match=r"input_ids has shape \(1, 41\), and there are 40 positions"):
        nnx.eval_shape(lambda: tiny(True))(ids, ids)


def test_missing_weights_say_what_to_install(monkeypatch):
    monkeypatch.setattr(installed, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install --no-deps rxnmapper=="):
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
