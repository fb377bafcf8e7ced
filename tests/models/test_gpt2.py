"""GPT-2 against `transformers.GPT2LMHeadModel`: names, sizes, first values, both verdicts, faults that are located."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import check
from graphmode.models.gpt2.case import CASE, CONFIG, padded, reference, texts
from graphmode.models.gpt2.model import WEIGHTS, GPT2Attention, GPT2Config, GPT2LMHeadModel, GPT2Model
from planting import assert_drawn_alike, becomes, has, located, needs_transformers, part, some

from graphmode.nn.functional import scaled_dot_product_attention
from graphmode.weights import LINEAR, TRANSFORM, WeightsError, load, to_state_dict

ODD = GPT2Config(vocab_size=61, n_positions=16, n_embd=18, n_layer=1, n_head=3, layer_norm_epsilon=1e-3)


def port(config: GPT2Config = CONFIG) -> GPT2LMHeadModel:
    return GPT2LMHeadModel(config, rngs=nnx.Rngs(0))


@needs_transformers
def test_a_state_dict_goes_there_and_back_with_its_tied_head():
    original = reference().state_dict()
    empty = nnx.eval_shape(port)
    load(empty, original, WEIGHTS)
    back = to_state_dict(empty, WEIGHTS)
    assert len(original) == 29
    assert back.keys() == original.keys()
    assert all(torch.equal(back[name], original[name]) for name in original)


@needs_transformers
def test_a_head_that_is_not_tied_is_refused():
    original = reference().state_dict()
    original["lm_head.weight"] = original["lm_head.weight"] + 1
    with pytest.raises(WeightsError, match=r"lm_head.weight: tied to transformer.wte.weight, and the two differ"):
        load(nnx.eval_shape(port), original, WEIGHTS)


@needs_transformers
@pytest.mark.parametrize(("config", "published"), [(GPT2Config.small(), 124_439_808), (ODD, None)])
def test_both_sides_have_the_sizes_of_the_config(config, published):
    with torch.device("meta"):
        theirs = reference(config)
    ours = jax.tree.leaves(nnx.state(nnx.eval_shape(lambda: port(config)), nnx.Param))
    assert sum(leaf.size for leaf in ours) == theirs.num_parameters() == (published or theirs.num_parameters())


@needs_transformers
def test_first_values_are_drawn_as_the_original_draws_them():
    config = replace(CONFIG, vocab_size=500, n_positions=30, n_embd=64, n_inner=160)
    assert_drawn_alike(to_state_dict(port(config), WEIGHTS), reference(config).state_dict(), rel=0.1)


@needs_transformers
def test_it_is_equal_and_precise():
    report = check(CASE, draws=1)
    assert report.passed, str(report)


@needs_transformers
def test_it_is_equal_in_another_config():
    other = replace(
        CASE,
        reference=partial(reference, ODD),
        model=lambda rngs: GPT2LMHeadModel(ODD, rngs=rngs),
        inputs=lambda rng: texts(rng, padded(np.array([11, 3]), 11), ODD),
        edge_inputs={},
        modes=("inference",),
    )
    report = check(other, draws=1)
    assert report.passed, str(report)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"n_embd is 32, which n_head = 5"):
        replace(CONFIG, n_head=5)
    ids = np.ones((1, CONFIG.n_positions + 1), np.int32)
    with pytest.raises(ValueError, match=r"input_ids has shape \(1, 25\), and there are 24 positions"):
        nnx.eval_shape(port)(ids, ids)
    with pytest.raises(ValueError, match=r"input_ids has shape \(2, 5\) and attention_mask \(2, 4\), and \[B, T\]"):
        port()(jnp.ones((2, 5), int), jnp.ones((2, 4), int))
    with pytest.raises(ValueError, match=r"input_ids has shape \(5,\) .* a single text is a batch of one"):
        port()(jnp.ones(5, int), jnp.ones(5, int))


def test_an_empty_batch():
    logits = port()(jnp.ones((0, 5), int), jnp.ones((0, 5), int))["logits"]
    assert logits.shape == (0, 5, CONFIG.vocab_size)


class NotCausal(GPT2Model):
    def _additive(self, attention_mask, dtype):
        keys = jnp.where(attention_mask != 0, 0.0, jnp.finfo(dtype).min)[:, None, None].astype(dtype)
        return jnp.broadcast_to(keys, (len(keys), 1, keys.shape[-1], keys.shape[-1]))


class CausalAlone(GPT2Model):
    def _additive(self, attention_mask, dtype):
        return super()._additive(jnp.ones_like(attention_mask), dtype)


class InvertedMask(GPT2Model):
    def _additive(self, attention_mask, dtype):
        return super()._additive(1 - attention_mask, dtype)


class ZerosForNothing(GPT2Model):
    """A query that may attend to nothing gives zeros, as PyTorch's fused attention has it."""

    def _additive(self, attention_mask, dtype):
        mask = super()._additive(attention_mask, dtype)
        return jnp.where(mask < 0, -jnp.inf, mask)


class ShiftedPositions(GPT2Model):
    def _positions(self, attention_mask):
        return jnp.arange(1, attention_mask.shape[1] + 1)[None]

    def __call__(self, input_ids, attention_mask):
        x = self.wte(input_ids) + self.wpe(self._positions(attention_mask))
        mask = self._additive(attention_mask, x.dtype)
        for block in self.h:
            x = block(x, mask)
        return self.ln_f(x)


class PositionsOfText(ShiftedPositions):
    """Counted from the first token of the text, as generation from padded prompts counts them."""

    def _positions(self, attention_mask):
        return jnp.maximum(jnp.cumsum(attention_mask, axis=1) - 1, 0)


class SwappedProjections(GPT2Attention):
    def __call__(self, hidden_states, attention_mask):
        key, query, value = map(self._split, jnp.split(self.c_attn(hidden_states), 3, axis=-1))
        attended = scaled_dot_product_attention(query, key, value, attention_mask)
        return self.c_proj(attended.swapaxes(1, 2).reshape(hidden_states.shape))


def transposed(path: str):
    """As `torch.nn.Linear` would lie; the weight is square."""

    def plant(model):
        part(model, path).weight.set_metadata(TRANSFORM, LINEAR)

    return plant


FAULTS = {  # name: (what is planted, the module of the port that is to be found)
    "the exact gelu": (has("transformer.h.1.mlp.act", approximate="none"), "transformer.h.1.mlp.act"),
    "Flax's eps": (has("transformer.ln_f", eps=1e-6), "transformer.ln_f"),
    "no causal mask": (becomes("transformer", NotCausal), "transformer"),
    "a causal mask alone": (becomes("transformer", CausalAlone), "transformer"),
    "mask inverted": (becomes("transformer", InvertedMask), "transformer"),
    "zeros where nothing is seen": (becomes("transformer", ZerosForNothing), "transformer"),
    "positions shifted": (becomes("transformer", ShiftedPositions), "transformer"),
    "positions of another shape": (becomes("transformer", PositionsOfText), "transformer"),
    "query and key swapped": (becomes("transformer.h.0.attn", SwappedProjections), "transformer.h.0.attn"),
    "a weight transposed": (transposed("transformer.h.1.attn.c_proj"), "transformer.h.1.attn.c_proj"),
}
PADDING_FIRST = {name: CASE.edge_inputs[name] for name in ("padding before the text",)}


@pytest.mark.slow
@needs_transformers
def test_faults_are_caught_and_located():
    """Some show only where padding comes first."""
    found = located(CASE, {name: plant for name, (plant, _) in some(FAULTS).items()}, edge_inputs=PADDING_FIRST)
    assert found == {name: [module] for name, (_, module) in some(FAULTS).items()}
