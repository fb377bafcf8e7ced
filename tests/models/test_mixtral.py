"""Mixtral against `transformers.MixtralForCausalLM`: names, sizes, both dispatches, faults that are located."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import check
from graphmode.models.mixtral.case import CASE, CONFIG, reference, texts
from graphmode.models.mixtral.experts import EXPERTS, ExpertsInBlocks, MixtralExperts, MixtralTopKRouter, Routed
from graphmode.models.mixtral.model import (
    MixtralAttention,
    MixtralConfig,
    MixtralForCausalLM,
    MixtralModel,
    _frequencies,
)
from planting import assert_drawn_alike, becomes, has, located, needs_transformers, some

from graphmode.weights import load, to_state_dict

ODD = MixtralConfig(
    vocab_size=61,
    hidden_size=36,
    intermediate_size=20,
    num_hidden_layers=1,
    num_attention_heads=3,
    num_key_value_heads=3,
    num_experts_per_tok=3,
    num_local_experts=7,
    max_position_embeddings=16,
    rms_norm_eps=1e-3,
)


def port(config: MixtralConfig = CONFIG, **kwargs) -> MixtralForCausalLM:
    return MixtralForCausalLM(config, rngs=nnx.Rngs(0), **kwargs)


@needs_transformers
def test_a_state_dict_goes_there_and_back():
    original = reference().state_dict()
    empty = nnx.eval_shape(port)
    load(empty, original)
    back = to_state_dict(empty)
    assert back.keys() == original.keys()
    assert all(torch.equal(back[name], original[name]) for name in original)


@needs_transformers
@pytest.mark.parametrize(("config", "published"), [(MixtralConfig.mixtral_8x7b(), 46_702_792_704), (ODD, None)])
def test_both_sides_have_the_sizes_of_the_config(config, published):
    with torch.device("meta"):
        theirs = reference(config)
    ours = jax.tree.leaves(nnx.state(nnx.eval_shape(lambda: port(config)), nnx.Param))
    assert sum(leaf.size for leaf in ours) == theirs.num_parameters() == (published or theirs.num_parameters())


@needs_transformers
def test_first_values_are_drawn_as_the_original_draws_them():
    config = replace(CONFIG, vocab_size=500, hidden_size=96, intermediate_size=70)
    assert_drawn_alike(to_state_dict(port(config)), reference(config).state_dict(), rel=0.15)


@needs_transformers
@pytest.mark.parametrize(("head_dim", "theta"), [(8, 1e4), (12, 1e6), (64, 5e5), (128, 1e6)])
def test_positions_turn_at_the_speeds_of_the_original(head_dim, theta):
    config = MixtralConfig(
        hidden_size=2 * head_dim, num_attention_heads=2, num_key_value_heads=1, num_hidden_layers=1, rope_theta=theta
    )
    with torch.device("cpu"):
        wanted = reference(replace(config, vocab_size=5, intermediate_size=4)).model.rotary_emb.inv_freq.numpy()
    np.testing.assert_allclose(_frequencies(head_dim, theta), wanted, rtol=3e-7)
    assert _frequencies(head_dim, theta).dtype == wanted.dtype == np.float32


@needs_transformers
def test_it_is_equal_and_precise():
    report = check(CASE, draws=1)
    assert report.passed, str(report)


@needs_transformers
@pytest.mark.slow
@pytest.mark.parametrize("dispatch", EXPERTS)
def test_it_is_equal_in_another_config(dispatch):
    other = replace(
        CASE,
        reference=partial(reference, ODD),
        model=lambda rngs: MixtralForCausalLM(ODD, dispatch=dispatch, rngs=rngs),
        inputs=lambda rng: texts(rng, np.arange(11) < np.array([[11], [3]]), ODD),
        edge_inputs={},
        modes=("inference",),
    )
    report = check(other, draws=1)
    assert report.passed, str(report)


def test_an_expert_that_overflows_for_others_tokens_spoils_none():
    """Each row meets every expert, and what it did not choose must not show, in no value and in no gradient."""
    experts = MixtralExperts(2, 3, 4)
    experts.gate_up_proj.set_value(jnp.ones((2, 3, 8)) * jnp.array([1.0, 1e38])[:, None, None])
    experts.down_proj.set_value(jnp.ones((2, 4, 3)))
    rows, picked, weights = jnp.full((2, 3), 10.0), jnp.zeros((2, 1), int), jnp.ones((2, 1))
    assert jnp.isfinite(experts(rows, picked, weights)).all()
    blocks = ExpertsInBlocks(2, 3, 4)
    nnx.update(blocks, nnx.state(experts))
    np.testing.assert_allclose(experts(rows, picked, weights), blocks(rows, picked, weights), rtol=1e-6)
    assert jnp.isfinite(jax.grad(lambda rows: blocks(rows, picked, weights).sum())(rows)).all()


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"num_experts_per_tok is 6, and there are 5 experts; give 1 to that many"):
        replace(CONFIG, num_experts_per_tok=6)
    with pytest.raises(ValueError, match=r"num_attention_heads is 6, which num_key_value_heads = 4 does not divide"):
        replace(CONFIG, num_key_value_heads=4)
    with pytest.raises(ValueError, match=r"hidden_size / num_attention_heads is 3; pairs are rotated"):
        replace(CONFIG, hidden_size=18)
    with pytest.raises(ValueError, match=r"dispatch is 'sort'; choose from 'all', 'blocks'"):
        port(dispatch="sort")
    ids = np.ones((1, CONFIG.max_position_embeddings + 1), np.int32)
    with pytest.raises(ValueError, match=r"input_ids has shape \(1, 25\), and there are 24 positions"):
        nnx.eval_shape(port)(ids, ids)
    with pytest.raises(ValueError, match=r"input_ids has shape \(2, 5\) and attention_mask \(2, 4\), and \[B, T\]"):
        port()(jnp.ones((2, 5), int), jnp.ones((2, 4), int))
    with pytest.raises(ValueError, match=r"input_ids has shape \(5,\) .* a single text is a batch of one"):
        port()(jnp.ones(5, int), jnp.ones(5, int))


@pytest.mark.parametrize("dispatch", EXPERTS)
def test_an_empty_batch(dispatch):
    logits = port(dispatch=dispatch)(jnp.ones((0, 5), int), jnp.ones((0, 5), int))["logits"]
    assert logits.shape == (0, 5, CONFIG.vocab_size)


class WithoutRenormalising(MixtralTopKRouter):
    def __call__(self, hidden_states):
        routed = super().__call__(hidden_states)
        weights, _ = jax.lax.top_k(jax.nn.softmax(routed.logits), self.top_k)
        return Routed(routed.logits, weights, routed.experts)


class GateAndUpSwapped(MixtralExperts):
    def __call__(self, hidden_states, experts, weights):
        narrow = self.down_proj.shape[1]
        swapped = MixtralExperts(self.num_experts, hidden_states.shape[-1], narrow)
        swapped.gate_up_proj.set_value(jnp.roll(self.gate_up_proj[...], narrow, axis=-1))
        swapped.down_proj.set_value(self.down_proj[...])
        return swapped(hidden_states, experts, weights)


class AMeanOfExperts(MixtralExperts):
    def __call__(self, hidden_states, experts, weights):
        return super().__call__(hidden_states, experts, jnp.full_like(weights, 1 / weights.shape[-1]))


class NotCausal(MixtralModel):
    def _additive(self, attention_mask, dtype):
        keys = jnp.where(attention_mask != 0, 0.0, jnp.finfo(dtype).min)[:, None, None].astype(dtype)
        return jnp.broadcast_to(keys, (len(keys), 1, keys.shape[-1], keys.shape[-1]))


class HeadsByTurns(MixtralAttention):
    """Keys and values for heads 0, 2, 4 and 1, 3, 5, where the original has 0, 1, 2 and 3, 4, 5."""

    def _split(self, x):
        heads = super()._split(x)
        number = CONFIG.num_attention_heads
        turns = np.arange(number).reshape(-1, CONFIG.num_key_value_heads).T.ravel()
        return heads[:, turns] if heads.shape[1] == number else heads


FAULTS = {  # name: (what is planted, the module of the port that is to be found)
    "probabilities as they are": (becomes("model.layers.0.mlp.gate", WithoutRenormalising), "model.layers.0.mlp.gate"),
    "one expert for each": (has("model.layers.1.mlp.gate", top_k=1), "model.layers.1.mlp.gate"),
    "gate and up swapped": (becomes("model.layers.1.mlp.experts", GateAndUpSwapped), "model.layers.1.mlp.experts"),
    "a mean of experts": (becomes("model.layers.0.mlp.experts", AMeanOfExperts), "model.layers.0.mlp.experts"),
    "torch's eps": (has("model.norm", eps=None), "model.norm"),
    "no causal mask": (becomes("model", NotCausal), "model"),
    "heads by turns": (becomes("model.layers.0.self_attn", HeadsByTurns), "model.layers.0.self_attn"),
}


@pytest.mark.slow
@needs_transformers
def test_faults_are_caught_and_located():
    case = replace(CASE, reference=reference, model=lambda rngs: MixtralForCausalLM(CONFIG, rngs=rngs))
    found = located(case, {name: plant for name, (plant, _) in some(FAULTS).items()})
    assert found == {name: [module] for name, (_, module) in some(FAULTS).items()}
