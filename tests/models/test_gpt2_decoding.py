"""GPT-2 generates with `gm.KVCache` what `transformers` generates: greedily, with beams, from prompts of any length."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.models.gpt2.case import CONFIG, reference
from graphmode.models.gpt2.model import WEIGHTS, GPT2LMHeadModel
from planting import needs_transformers

import graphmode as gm
from graphmode.nn.functional import linear, scaled_dot_product_attention
from graphmode.weights import load

# larger weights than GPT-2 starts with: likelihoods are far apart
SHARP = replace(CONFIG, initializer_range=0.35)
PROMPTS = [[5, 17, 60, 2], [9], [88, 3, 41, 41, 0, 23, 7], [12, 30]]
LENGTHS = np.array([len(prompt) for prompt in PROMPTS])
NEW = 12


@pytest.fixture(autouse=True)
def _double_precision():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def pair():
    """The original in float64, and the port with its weights."""
    torch.manual_seed(0)
    original = reference(SHARP).eval().double()
    original.config.use_cache = True
    with jax.enable_x64(True):
        port = nnx.eval_shape(lambda: GPT2LMHeadModel(SHARP, rngs=nnx.Rngs(0)))
        load(port, original.state_dict(), WEIGHTS)
    return original, port


def advance(model, caches, tokens, position, lengths=None):
    """Logits `[B, T, V]` of tokens `[B, T]` that stand from `position` `[B]` on, and the caches with them."""
    places = position[:, None] + jnp.arange(tokens.shape[1])
    x = model.transformer.wte(tokens) + model.transformer.wpe(places)
    new = []
    for block, cache in zip(model.transformer.h, caches, strict=True):
        query, key, value = map(block.attn._split, jnp.split(block.attn.c_attn(block.ln_1(x)), 3, axis=-1))
        cache = cache.append(key, value, lengths=lengths, position=position)
        attended = scaled_dot_product_attention(query, cache.keys, cache.values, cache.mask(places))
        x = x + block.attn.c_proj(jnp.swapaxes(attended, 1, 2).reshape(x.shape))
        x = x + block.mlp(block.ln_2(x))
        new.append(cache)
    return linear(model.transformer.ln_f(x), model.transformer.wte.weight[...].T), new


def empty_caches(capacity):
    size = SHARP.n_embd // SHARP.n_head
    options = {"capacity": capacity, "dtype": jnp.float64, "per_sequence": True}
    return [gm.KVCache.empty(len(PROMPTS), SHARP.n_head, size, **options) for _ in range(SHARP.n_layer)]


def generate(way, model, capacity=SHARP.n_positions, **options):
    """The prompts but for their last tokens at once, then token by token."""
    padded = gm.pad_sequences(PROMPTS).values

    def step(caches, tokens, position):
        logits, caches = advance(model, caches, tokens[:, None], position)
        return logits[:, 0], caches

    @jax.jit
    def whole(prompts, lengths):
        before = lengths - 1
        _, caches = advance(model, empty_caches(capacity), prompts[:, :-1], jnp.zeros_like(lengths), before)
        last = jnp.take_along_axis(prompts, before[:, None], axis=1)[:, 0]
        return way(step, caches, last, start=before, max_new_tokens=NEW, **options)

    return whole(jnp.asarray(padded), jnp.asarray(LENGTHS))


def originals(original, eos, **options):
    """What `generate` gives for each prompt alone, the new tokens of each sequence up to its end."""
    found = []
    for prompt in PROMPTS:
        out = original.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=int),
            max_new_tokens=NEW,
            do_sample=False,
            eos_token_id=eos or None,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_scores=True,
            **options,
        )
        found.append(([cut(row[len(prompt) :].tolist(), eos) for row in out.sequences], out.get("sequences_scores")))
    return found


def cut(tokens, eos):
    ends = [i for i, token in enumerate(tokens) if token in eos]
    return tokens[: ends[0] + 1] if ends else tokens


def some_ends(original):
    """Two tokens that greedy decoding comes upon, in some texts early."""
    texts = [rows[0] for rows, _ in originals(original, [])]
    return [texts[0][1], texts[2][4]]


@needs_transformers
def test_greedy_is_that_of_transformers_and_of_the_eager_loop(pair):
    original, port = pair
    eos = some_ends(original)
    found = generate(gm.greedy, port, eos_id=eos, pad_id=0)
    wanted = [rows[0] for rows, _ in originals(original, eos)]
    assert len({len(tokens) for tokens in wanted}) > 1
    assert found.tokens.tolist() == [[*tokens, *[0] * (NEW - len(tokens))] for tokens in wanted]
    assert found.lengths.tolist() == [len(tokens) for tokens in wanted]
    assert found.cut_short.tolist() == [tokens[-1] not in eos for tokens in wanted]
    for row, (prompt, tokens) in enumerate(zip(PROMPTS, wanted, strict=True)):
        with torch.no_grad():
            logits = original(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
        score = logits.log_softmax(-1)[range(len(tokens)), tokens].sum()
        assert logits.argmax(-1).tolist() == tokens
        assert float(found.scores[row]) == pytest.approx(float(score), rel=1e-12)
    assert not any(cache.overflow.any() for cache in found.state)


@needs_transformers
@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 3},
        {"num_beams": 4, "num_return_sequences": 3, "length_penalty": 0.0},
        {"num_beams": 4, "num_return_sequences": 4, "early_stopping": True, "length_penalty": 1.7},
        {"num_beams": 2, "num_return_sequences": 2, "early_stopping": "never", "length_penalty": -0.5},
    ],
    ids=str,
)
def test_beam_search_is_that_of_transformers(pair, options):
    original, port = pair
    eos = some_ends(original)
    found = generate(gm.beam_search, port, eos_id=eos, pad_id=0, **options)
    wanted = originals(original, eos, **options)
    assert len({len(tokens) for rows, _ in wanted for tokens in rows}) > 1
    for row, (rows, scores) in enumerate(wanted):
        ours = [one[:n] for one, n in zip(found.tokens[row].tolist(), found.lengths[row].tolist(), strict=True)]
        assert ours == rows
        np.testing.assert_allclose(found.scores[row], scores, rtol=1e-5)  # theirs are in single precision


@needs_transformers
def test_a_text_that_has_ended_takes_no_room_and_one_that_has_not_says_so(pair):
    """The longest prompt ends first: its cache is just large enough."""
    original, port = pair
    longest = int(LENGTHS.argmax())
    texts = [rows[0] for rows, _ in originals(original, [])]
    eos = texts[longest][1]
    lengths = [len(cut(tokens, [eos])) for tokens in texts]
    need = [int(n) + more - 1 for n, more in zip(LENGTHS, lengths, strict=True)]
    steps = max(lengths)
    assert lengths[longest] < steps
    room = max(n + (more < steps) for n, more in zip(need, lengths, strict=True))
    assert room < LENGTHS[longest] + steps - 1
    found = generate(gm.greedy, port, capacity=room, eos_id=eos, pad_id=0)
    assert found.lengths.tolist() == lengths
    assert not any(cache.overflow.any() for cache in found.state)
    tight = generate(gm.greedy, port, capacity=max(need) - 1, eos_id=eos, pad_id=0)
    assert all(cache.overflow.any() for cache in tight.state)
