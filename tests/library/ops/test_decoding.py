"""Greedy decoding, sampling and beam search against eager PyTorch loops in float64: tokens, lengths, scores, steps."""

import functools
import inspect
import math

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from small_decoder import SIZE, VOCABULARY, SmallDecoder, eager_beam_search, eager_greedy

import graphmode as gm

FIRST = np.array([0, 3, 5, 1])
PAD = -7


@pytest.fixture(autouse=True)
def _double_precision():
    with jax.enable_x64(True):
        yield


def padded(tokens, length):
    return [*tokens, *[PAD] * (length - len(tokens))]


def with_weights(call):
    """`call(model)` as one graph for all models."""

    @jax.jit
    def compiled(weights):
        model = SmallDecoder(0)
        vars(model).update(weights)
        return call(model)

    return lambda model: compiled(vars(model))


@pytest.mark.parametrize("eos_id", [None, 2, (4, 1)])
def test_greedy_is_the_eager_loop(eos_id):
    most, eos_ids = 9, () if eos_id is None else np.atleast_1d(eos_id).tolist()
    options = {"max_new_tokens": most, "eos_id": eos_id, "pad_id": PAD}
    greedy = with_weights(lambda model: gm.greedy(model.step, model.start(4), FIRST, **options))
    for model in map(SmallDecoder, range(6)):
        found = greedy(model)
        wanted = [eager_greedy(model.logits_after, first, most, eos_ids) for first in FIRST]
        assert found.tokens.tolist() == [padded(tokens, most) for tokens, *_ in wanted]
        assert found.lengths.tolist() == [len(tokens) for tokens, *_ in wanted]
        assert found.cut_short.tolist() == [cut for *_, cut in wanted]
        np.testing.assert_allclose(found.scores, [score for _, score, _ in wanted], rtol=1e-13)
        assert int(found.state["steps"]) == max(len(tokens) for tokens, *_ in wanted)


def test_the_seeds_end_early_late_and_never():
    """The table above would show little if all its sequences were alike."""
    lengths = {
        len(eager_greedy(SmallDecoder(seed).logits_after, first, 9, (4, 1))[0]) for seed in range(6) for first in FIRST
    }
    assert len(lengths) > 4
    assert {1, 9} <= lengths


@pytest.mark.parametrize("logits", [[1, 3, 3, 2], [0, 0, 0, 0], [1, math.nan, 5, math.nan], [-math.inf] * 4])
def test_of_equals_greedy_takes_what_torch_takes(logits):
    found = gm.greedy(lambda state, t, i: (jnp.array([logits], float), state), None, [0], max_new_tokens=1)
    assert found.tokens.tolist() == [[int(torch.tensor(logits, dtype=torch.float64).argmax())]]


def test_each_sequence_has_its_own_place():
    model, start = SmallDecoder(1), np.array([0, 7, 2, 11])
    found = gm.greedy(model.step, model.start(4), FIRST, max_new_tokens=5, eos_id=2, pad_id=PAD, start=start)
    for row, first in enumerate(FIRST):
        tokens, score, _ = eager_greedy(lambda tokens: model.logits_after(tokens, start[row]), first, 5, [2])  # noqa: B023
        assert found.tokens[row].tolist() == padded(tokens, 5)
        assert float(found.scores[row]) == pytest.approx(score, rel=1e-13)


def test_what_has_ended_is_fed_its_end_at_one_place():
    fed = []

    def step(state, tokens, position):
        jax.debug.callback(lambda *now: fed.append(tuple(map(int, now))), tokens[0], position[0], ordered=True)
        return jax.nn.one_hot(tokens + 1, 9) * 30, state

    gm.greedy(step, None, np.array([5, 0]), max_new_tokens=6, eos_id=7, start=np.array([3, 0]))
    jax.effects_barrier()
    assert fed == [(5, 3), (6, 4), (7, 5), (7, 5), (7, 5), (7, 5)]


BEAMS = [
    {"num_beams": 1},
    {"num_beams": 1, "eos_id": None},
    {"num_beams": 2, "num_return_sequences": 2},
    {"num_beams": 3, "eos_id": None, "num_return_sequences": 3},
    {"num_beams": 3, "eos_id": (2, 5), "num_return_sequences": 2},
    {"num_beams": 4, "num_return_sequences": 4, "early_stopping": True},
    {"num_beams": 4, "num_return_sequences": 4, "early_stopping": "never"},
    {"num_beams": 4, "num_return_sequences": 4, "early_stopping": "never", "length_penalty": 2.0},
    {"num_beams": 4, "num_return_sequences": 4, "length_penalty": 0.0},
    {"num_beams": 4, "num_return_sequences": 4, "length_penalty": -1.3},
    {"num_beams": 3, "num_return_sequences": 3, "length_penalty": np.float32(2.5)},
    {"num_beams": 3, "num_return_sequences": 3, "length_penalty": 0.4, "early_stopping": True, "eos_id": (0, 2, 5)},
    {"num_beams": 2, "num_return_sequences": 2, "length_penalty": 3.0, "eos_id": (0, 2, 3, 5)},
    {"num_beams": 3, "num_return_sequences": 3, "length_penalty": -1.0, "early_stopping": "never", "eos_id": (2, 5)},
    {"num_beams": 2, "max_new_tokens": 1, "num_return_sequences": 2},
    {"num_beams": 60, "max_new_tokens": 2, "num_return_sequences": 60},  # more beams than sequences
]


def eager_options(options):
    eos_id = options.get("eos_id", 2)
    eos_ids = () if eos_id is None else np.atleast_1d(eos_id).tolist()
    return {
        "beams": options["num_beams"],
        "most": options.get("max_new_tokens", 8),
        "eos_ids": eos_ids,
        "penalty": float(options.get("length_penalty", 1.0)),
        "early": options.get("early_stopping", False),
    }


def beam_search(model, **options):
    options = {"eos_id": 2, "max_new_tokens": 8, **options}
    first = options.pop("first", FIRST)
    return gm.beam_search(model.step, model.start(len(first)), first, pad_id=PAD, **options)


def assert_beams(found, wanted, most, returned):
    for row, (ended, _) in enumerate(wanted):
        ended = ended[:returned]
        missing = returned - len(ended)
        assert found.tokens[row].tolist() == [padded(t, most) for t, *_ in ended] + [[PAD] * most] * missing
        assert found.lengths[row].tolist() == [len(t) for t, *_ in ended] + [0] * missing
        scores = [score for _, score, _ in ended] + [-math.inf] * missing
        np.testing.assert_allclose(found.scores[row], scores, rtol=1e-13)
        assert found.cut_short[row].tolist() == [cut for *_, cut in ended] + [False] * missing


@pytest.mark.parametrize("options", BEAMS, ids=str)
def test_beam_search_is_the_eager_loop(options):
    eager = eager_options(options)

    search = with_weights(lambda model: beam_search(model, **options))
    for model in map(SmallDecoder, range(4)):
        found = search(model)
        wanted = [eager_beam_search(model.logits_after, first, **eager) for first in FIRST]
        assert_beams(found, wanted, eager["most"], options.get("num_return_sequences", 1))
        assert int(found.state["steps"]) == max(steps for _, steps in wanted)


def test_the_cases_of_beam_search_differ():
    """Each option changes what some seed finds; else a port that ignored it would pass."""
    found = [
        [str(eager_beam_search(SmallDecoder(seed).logits_after, 3, **eager_options(options))) for seed in range(4)]
        for options in BEAMS
    ]
    assert len({str(one) for one in found}) == len(BEAMS)


def test_a_beam_as_wide_as_all_sequences_finds_the_likeliest():
    model = SmallDecoder(3, vocabulary=4)
    scores = {}

    def grow(tokens, score):
        for token, more in enumerate(model.logits_after([0, *tokens]).log_softmax(-1).tolist()):
            longer = (*tokens, token)
            if token == 2 or len(longer) == 4:
                scores[longer] = (score + more) / len(longer)
            else:
                grow(longer, score + more)

    grow((), 0.0)
    found = beam_search(
        model, first=[0], num_beams=81, max_new_tokens=4, num_return_sequences=5, early_stopping="never"
    )
    best = sorted(scores, key=lambda one: -scores[one])[:5]
    assert found.tokens[0].tolist() == [padded(tokens, 4) for tokens in best]
    np.testing.assert_allclose(found.scores[0], [scores[tokens] for tokens in best], rtol=1e-13)


def test_beams_go_on_though_the_likeliest_tokens_all_end_a_sequence():
    logits, eos_ids = [0.3, 0.25, 0.25, 0.2], [0, 1, 2]
    options = {"num_beams": 1, "max_new_tokens": 4, "length_penalty": 3.0, "early_stopping": "never"}
    wanted = eager_beam_search(
        lambda tokens: torch.tensor(logits, dtype=torch.float64).log(), 0, 1, 4, eos_ids, 3.0, "never"
    )
    assert wanted[0][0][0] == [3, 3, 3, 0]

    def step(state, tokens, position):
        return jnp.log(jnp.array([logits])), state

    assert_beams(gm.beam_search(step, None, [0], eos_id=eos_ids, pad_id=PAD, **options), [wanted], 4, 1)


def test_tokens_that_never_come_make_no_beams():
    banned = jnp.array([0, 0, 0, -math.inf, -math.inf, -math.inf, -math.inf])

    def step(state, tokens, position):
        return jnp.broadcast_to(banned, (tokens.shape[0], VOCABULARY)), state

    found = gm.beam_search(step, None, [0], num_beams=4, max_new_tokens=1, num_return_sequences=4, pad_id=PAD)
    assert found.tokens[0, :, 0].tolist() == [0, 1, 2, PAD]
    assert found.lengths[0].tolist() == [1, 1, 1, 0]


def test_a_dead_end_is_left_and_a_nan_is_told():
    table = jnp.log(jnp.array([[0.1, 0.6, 0.3], [0.5, 0.5, 1.0], [0.2, 0.3, 0.5]]))

    @functools.partial(jax.jit, static_argnums=0)
    def found(beams, after_one):
        logits = table.at[1].set(after_one)
        options = {"num_beams": beams, "max_new_tokens": 3, "eos_id": 2}
        return gm.beam_search(lambda state, t, i: (logits[t], state), None, jnp.array([0, 2]), **options)

    dead = found(2, jnp.full(3, -math.inf))
    assert dead.tokens[:, 0].tolist() == [[2, 2, 2]] * 2
    np.testing.assert_allclose(dead.scores[:, 0], np.log([0.3, 0.5]), rtol=1e-13)
    spoilt = found(1, jnp.array([0, math.nan, 0]))  # the second row is done before
    assert np.isnan(spoilt.scores[:, 0]).tolist() == [True, False]


def test_there_may_be_no_sequence():
    def step(state, tokens, position):
        return jnp.zeros((0, 3)), state

    assert gm.beam_search(step, None, np.zeros(0, int), num_beams=2, max_new_tokens=2).tokens.shape == (0, 1, 2)


def drawing(key, first, model, **options):
    return gm.sample(key, model.step, model.start(len(first)), first, max_new_tokens=6, eos_id=2, pad_id=PAD, **options)


def beams_of(key, first, model, **options):
    return beam_search(model, first=first, num_beams=3, **options)


def likeliest(key, first, model, **options):
    return gm.greedy(model.step, model.start(len(first)), first, max_new_tokens=6, eos_id=2, pad_id=PAD, **options)


WAYS = {"greedy": likeliest, "sample": drawing, "beam_search": beams_of}


@pytest.mark.parametrize("way", WAYS)
def test_under_vmap_and_after_export(way):
    model, key = SmallDecoder(2), jax.random.key(0)
    firsts = jnp.array([[0, 3], [5, 1], [6, 2]])

    def call(first, start):
        return WAYS[way](key, first, model, start=start)

    starts = jnp.array([[0, 4], [1, 1], [9, 0]])
    mapped = jax.jit(jax.vmap(call))(firsts, starts)
    graph = jax.export.export(jax.jit(call))(firsts[0], starts[0]).serialize()
    again = jax.export.deserialize(bytearray(graph)).call
    for lane, (first, start) in enumerate(zip(firsts, starts, strict=True)):
        alone = call(first, start)
        assert isinstance(alone, gm.Decoded)
        lane = jax.tree.map(lambda leaf, lane=lane: leaf[lane], mapped)
        back = again(first, start)
        assert type(back) is gm.Decoded
        for part in ("tokens", "lengths", "cut_short"):
            np.testing.assert_array_equal(getattr(lane, part), getattr(alone, part))
            np.testing.assert_array_equal(getattr(back, part), getattr(alone, part))
        np.testing.assert_allclose(lane.scores, alone.scores, rtol=1e-13)
        np.testing.assert_allclose(back.scores, alone.scores, rtol=1e-13)
        assert int(lane.state["steps"]) == int(alone.state["steps"])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_scores_are_in_single_precision_at_least(way, dtype):
    model = SmallDecoder(2, dtype=jnp.dtype(dtype))
    assert WAYS[way](jax.random.key(0), [0, 3], model).scores.dtype == jnp.float32


class Counting(nnx.Module):
    """A decoder with a state of its own: how often it was called."""

    def __init__(self, model):
        self.mix, self.tokens, self.head = (nnx.Param(jnp.asarray(x)) for x in (model.mix, model.tokens, model.head))
        self.h = nnx.Cache(jnp.zeros((4, SIZE)))
        self.calls = nnx.Variable(jnp.int32(0))

    def __call__(self, h, tokens):
        h = jnp.tanh(h @ self.mix[...] + self.tokens[...][tokens])
        return h @ self.head[...], h


def test_a_module_in_the_state_is_changed_and_one_outside_is_read():
    model = SmallDecoder(4)
    model.places[:] = 0
    wanted = [eager_greedy(model.logits_after, first, 9, [2]) for first in FIRST]
    read, changed = Counting(model), Counting(model)
    outside = gm.greedy(lambda h, t, i: read(h, t), jnp.zeros((4, SIZE)), FIRST, max_new_tokens=9, eos_id=2, pad_id=PAD)

    def step(module, tokens, position):
        logits, h = module(module.h[...], tokens)
        module.h[...] = h
        module.calls[...] += 1
        return logits, module

    @nnx.jit
    def inside(module):
        found = gm.greedy(step, module, FIRST, max_new_tokens=9, eos_id=2, pad_id=PAD)
        return found.tokens, found.lengths

    tokens, lengths = inside(changed)
    for found in (outside.tokens, tokens):
        assert found.tolist() == [padded(tokens, 9) for tokens, *_ in wanted]
    assert int(changed.calls[...]) == max(lengths.tolist()) == max(len(tokens) for tokens, *_ in wanted)
    assert int(read.calls[...]) == 0

    def beam(h, tokens, position):
        return read(h, tokens)

    beams = gm.beam_search(beam, jnp.zeros((4, SIZE)), FIRST, num_beams=3, max_new_tokens=9, eos_id=2, pad_id=PAD)
    options = {"beams": 3, "most": 9, "eos_ids": [2]}
    assert_beams(beams, [eager_beam_search(model.logits_after, first, **options) for first in FIRST], 9, 1)


def test_the_state_of_beams_is_reordered_as_the_user_says():
    model = SmallDecoder(2)

    def step(state, tokens, position):
        logits, new = model.step({"h": state["h"].T, "steps": 0}, tokens, position)
        return logits, {"h": new["h"].T}

    def reorder(state, rows):
        return {"h": state["h"][:, rows]}

    options = {"num_beams": 3, "max_new_tokens": 8, "eos_id": 2, "num_return_sequences": 3}
    sideways = gm.beam_search(step, {"h": jnp.zeros((SIZE, 4))}, FIRST, reorder=reorder, **options)
    assert sideways.tokens.tolist() == gm.beam_search(model.step, model.start(4), FIRST, **options).tokens.tolist()


def test_scores_have_gradients():
    model, first = SmallDecoder(4), FIRST

    def score(head):
        own = SmallDecoder(4)
        own.head = head
        return gm.greedy(own.step, own.start(4), first, max_new_tokens=9, eos_id=2).scores.sum()

    head = torch.tensor(model.head, requires_grad=True)
    total = 0.0
    for one in first:
        tokens = [one, *eager_greedy(model.logits_after, one, 9, [2])[0]]
        for i in range(1, len(tokens)):
            h = torch.linalg.lstsq(head.detach().T, model.logits_after(tokens[:i])[:, None]).solution[:, 0]
            total = total + (h @ head).log_softmax(-1)[tokens[i]]
    total.backward()
    np.testing.assert_allclose(jax.jit(jax.grad(score))(jnp.asarray(model.head)), head.grad, rtol=0, atol=1e-9)


def call(way=gm.greedy, **options):
    options = {"step": SmallDecoder(0).step, "state": SmallDecoder(0).start(2), "tokens": [0, 1]} | options
    return way(**{"max_new_tokens": 3, **options})


def of_logits(logits):
    return {"step": lambda state, tokens, position: (logits, state), "state": None}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"tokens": [[0, 1]]}, r"tokens has shape \(1, 2\), and \[B\] was wanted"),
        ({"tokens": [0.5, 1.0]}, "tokens has dtype float64, and integers"),
        ({"start": [1, 2, 3]}, r"start has shape \(3,\), and \(\) or \(2,\)"),
        ({"eos_id": -1}, "eos_id is -1"),
        ({"eos_id": 7}, "there are 7 tokens"),
        ({"eos_id": ()}, "one id, several that differ, or None"),
        ({"eos_id": 1.5}, "eos_id is 1.5, and an integer"),
        ({"pad_id": True}, "pad_id is True"),
        ({"step": lambda state, tokens, position: state}, r"step returns dict, and \(logits, state\)"),
        (of_logits(jnp.zeros((3, 7))), r"logits float32\[3,7\], and floats of shape \[2, V\]"),
        (of_logits(jnp.zeros((2, 7), int)), r"logits int32\[2,7\]"),
        ({"way": gm.beam_search, "num_beams": 2, "num_return_sequences": 3}, "num_return_sequences is 3"),
        ({"way": gm.beam_search, "num_beams": 0}, "num_beams is 0"),
        ({"way": gm.beam_search, "num_beams": 2, "early_stopping": "often"}, "early_stopping is 'often'"),
        (
            {"way": gm.beam_search, "num_beams": 2, "state": {"h": jnp.zeros((3, 5))}},
            r"state\['h'\] has shape \(3, 5\)",
        ),
        ({"way": gm.beam_search, "num_beams": 2, "state": [nnx.Cache(jnp.zeros(2))]}, r"state\[0\] is a Cache"),
        ({"way": gm.beam_search, "num_beams": 2, "early_stopping": 1}, "early_stopping is 1"),
        ({"way": gm.beam_search, "num_beams": 2, "length_penalty": jnp.ones(())}, "length_penalty is Array"),
        ({"way": gm.sample, "key": 5}, r"key is 5, and a key of jax.random was wanted; give jax.random.key\(5\)"),
        ({"way": gm.sample, "key": jax.random.key(0), "temperature": 0.0}, "temperature is 0.0"),
        ({"way": gm.sample, "key": jax.random.key(0), "temperature": np.float32(0)}, r"temperature is np\.float32\(0"),
        ({"way": gm.sample, "key": jax.random.key(0), "top_p": -1}, "top_p is -1"),
        ({"way": gm.sample, "key": jax.random.key(0), "top_p": jnp.zeros(2)}, "top_p is .*, and numbers above 0"),
        ({"way": gm.sample, "key": jax.random.key(0), "top_k": 0}, "top_k is 0"),
        ({"way": gm.sample, "key": jax.random.key(0), "top_p": np.ones(3)}, r"top_p has shape \(3,\)"),
    ],
)
def test_bad_input_says_what_is_wanted(wrong, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call(**wrong)


def test_the_three_share_their_options():
    shared = {"step", "state", "tokens", "max_new_tokens", "eos_id", "pad_id", "start"}
    for way in (gm.greedy, gm.sample, gm.beam_search):
        assert shared <= set(inspect.signature(way).parameters)
