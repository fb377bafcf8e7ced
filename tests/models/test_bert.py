"""BERT against `transformers.BertModel`: names, sizes, first values, both verdicts, and faults that are located."""

import sys
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import CaseError, check
from graphmode.compare.comparison import run
from graphmode.compare.plan import Plan
from graphmode.models import zoo
from graphmode.models.bert.case import CASE, CONFIG, reference, sentences
from graphmode.models.bert.model import BertConfig, BertEmbeddings, BertModel, BertPooler, BertSelfAttention
from planting import becomes, has, located, needs_transformers, planted, some

from graphmode.nn.functional import scaled_dot_product_attention
from graphmode.weights import load, to_state_dict

ODD = BertConfig(
    vocab_size=61,
    hidden_size=18,
    num_hidden_layers=1,
    num_attention_heads=3,
    intermediate_size=50,
    max_position_embeddings=16,
    type_vocab_size=4,
    pad_token_id=2,
    layer_norm_eps=1e-3,
)


def port(config: BertConfig = CONFIG) -> BertModel:
    return BertModel(config, rngs=nnx.Rngs(0))


@needs_transformers
def test_a_state_dict_goes_by_name_there_and_back():
    original = reference().state_dict()
    assert not CASE.weights
    empty = nnx.eval_shape(port)
    load(empty, original)
    back = to_state_dict(empty)
    assert len(original) == 39
    assert back.keys() == original.keys()
    assert all(torch.equal(back[name], original[name]) for name in original)


@needs_transformers
@pytest.mark.parametrize(("config", "published"), [(BertConfig.base(), 109_482_240), (ODD, None)])
def test_both_sides_have_the_sizes_of_the_config(config, published):
    with torch.device("meta"):
        theirs = reference(config)
    ours = jax.tree.leaves(nnx.state(nnx.eval_shape(lambda: port(config)), nnx.Param))
    assert len(ours) == len(theirs.state_dict())
    assert sum(leaf.size for leaf in ours) == theirs.num_parameters() == (published or theirs.num_parameters())


@needs_transformers
def test_first_values_are_drawn_as_the_original_draws_them():
    config = replace(CONFIG, vocab_size=500, hidden_size=64, intermediate_size=160)
    theirs, ours = reference(config).state_dict(), to_state_dict(port(config))
    for name, wanted in theirs.items():
        drawn = ours[name]
        if wanted.std() == 0 or wanted.numel() < 1000:
            assert drawn.float().std() == pytest.approx(wanted.std().item(), rel=0.5), name
            continue
        assert drawn.std().item() == pytest.approx(wanted.std().item(), rel=0.1), name
        assert abs(drawn.mean().item()) < 0.002, name
    assert not ours["embeddings.word_embeddings.weight"][config.pad_token_id].any()


@needs_transformers
def test_it_is_equal_and_precise():
    report = check(CASE, draws=1)
    assert report.passed, str(report)


@needs_transformers
def test_it_is_equal_in_another_config():
    """With another padding token, and an eps that counts."""
    other = replace(
        CASE,
        reference=partial(reference, ODD),
        model=lambda rngs: BertModel(ODD, rngs=rngs),
        inputs=lambda rng: sentences(rng, np.array([11, 3]), 11, ODD),
        edge_inputs={},
        modes=("inference",),
    )
    report = check(other, draws=1)
    assert report.passed, str(report)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"hidden_size is 32, which num_attention_heads = 5"):
        replace(CONFIG, num_attention_heads=5)
    ids = np.ones((1, CONFIG.max_position_embeddings + 1), np.int32)
    with pytest.raises(ValueError, match=r"input_ids has shape \(1, 41\), and there are 40 positions"):
        nnx.eval_shape(port)(ids, ids)


def test_missing_transformers_costs_no_other_case(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r"pip install 'graphmode\[huggingface\]'"):
        CASE.reference()
    with pytest.raises(CaseError, match=r"case 'bert': .*pip install 'graphmode\[huggingface\]'"):
        check(CASE)
    results = run([CASE, zoo.load("scale_add")], Plan(speed=False, device="cpu"))
    (problem,) = results.problems
    assert "graphmode[huggingface]" in problem
    assert [(p.case, p.passed) for p in results.parity] == [("scale_add", True)]


class ShiftedPositions(BertEmbeddings):
    """As RoBERTa counts them."""

    def __call__(self, input_ids, token_type_ids):
        positions = np.arange(input_ids.shape[1])[None] + 2
        x = self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids)
        return self.LayerNorm(x + self.position_embeddings(positions))


class SwappedProjections(BertSelfAttention):
    def __call__(self, hidden_states, attention_mask):
        projected = (layer(hidden_states) for layer in (self.key, self.query, self.value))
        attended = scaled_dot_product_attention(*map(self._split, projected), attention_mask)
        return attended.swapaxes(1, 2).reshape(hidden_states.shape)


class LastToken(BertPooler):
    def __call__(self, hidden_states):
        return super().__call__(hidden_states[:, ::-1])


class InvertedMask(BertModel):
    def _additive(self, attention_mask, dtype):
        return super()._additive(1 - attention_mask, dtype)


class NoMask(BertModel):
    def _additive(self, attention_mask, dtype):
        return super()._additive(jnp.ones_like(attention_mask), dtype)


FAULTS = {  # name: (what is planted, the module of the port that is to be found)
    "gelu by a tanh": (
        has("encoder.layer.1.intermediate.intermediate_act_fn", approximate="tanh"),
        "encoder.layer.1.intermediate.intermediate_act_fn",
    ),
    "Flax's eps": (
        has("encoder.layer.0.attention.output.LayerNorm", eps=1e-6),
        "encoder.layer.0.attention.output.LayerNorm",
    ),
    "mask inverted": (becomes("", InvertedMask), ""),
    "no mask": (becomes("", NoMask), ""),
    "positions shifted": (becomes("embeddings", ShiftedPositions), "embeddings"),
    "query and key swapped": (
        becomes("encoder.layer.1.attention.self", SwappedProjections),
        "encoder.layer.1.attention.self",
    ),
    "heads of another width": (has("encoder.layer.0.attention.self", heads=8), "encoder.layer.0.attention.self"),
    "the last token pooled": (becomes("pooler", LastToken), "pooler"),
}


@pytest.mark.slow
@needs_transformers
def test_faults_are_caught_and_located():
    found = located(CASE, {name: plant for name, (plant, _) in some(FAULTS).items()}, edge_inputs={})
    assert found == {name: [module] for name, (_, module) in some(FAULTS).items()}


@pytest.mark.slow
@needs_transformers
def test_a_gradient_to_the_padding_row_is_located():
    """The forward pass is right."""
    port = planted(CASE, has("embeddings.word_embeddings", padding_idx=None))
    report = check(replace(CASE, model=port, modes=("forward_backward",), edge_inputs={}), draws=1, hasty=True)
    assert not report.equal
    assert [d.module for d in report.divergences] == ["embeddings.word_embeddings"], str(report)
    (finding,) = report.divergences[0].findings
    assert finding.what == "parameter_gradient"
