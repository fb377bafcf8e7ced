"""`gm.KVCache` against a cache that grows with `torch.cat`, at its capacity and beyond."""

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

import graphmode as gm

B, H, C, D, E = 3, 2, 7, 4, 5
F = gm.nn.functional


def drawn(rng, tokens):
    shapes = (B, H, tokens, D), (B, H, tokens, D), (B, H, tokens, E)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]  # queries, keys, values


def empty(**options):
    return gm.KVCache.empty(B, H, D, value_size=E, capacity=C, **options)


def held(cache, row):
    """What the cache holds of a sequence, as far as it has room."""
    length = min(int(np.broadcast_to(cache.lengths, (B,))[row]), cache.capacity)
    return np.asarray(cache.keys)[row, :, :length], np.asarray(cache.values)[row, :, :length]


@pytest.mark.parametrize("per_sequence", [False, True])
@pytest.mark.parametrize("pieces", [(1,) * 7, (4, 1, 2), (7,), (3, 6, 1), (1,) * 9, (7, 7), (5, 2, 3), (2, 6)])
def test_it_holds_what_cat_holds_and_counts_what_it_does_not(pieces, per_sequence):
    rng, cache = np.random.default_rng(0), empty(per_sequence=per_sequence)
    keys, values = [], []
    append = jax.jit(gm.KVCache.append)
    for tokens in pieces:
        _, key, value = drawn(rng, tokens)
        cache = append(cache, key, value)
        keys.append(torch.tensor(key))
        values.append(torch.tensor(value))
    for row in range(B):
        for found, wanted in zip(held(cache, row), (torch.cat(keys, 2), torch.cat(values, 2)), strict=True):
            np.testing.assert_array_equal(found, wanted[row, :, :C])
    assert (np.asarray(cache.lengths) == sum(pieces)).all()
    assert (np.asarray(cache.overflow) == (sum(pieces) > C)).all()
    assert cache.lengths.shape == ((B,) if per_sequence else ())


def test_each_sequence_counts_its_own_tokens():
    """Prompts that are padded on the right, then tokens of some sequences alone."""
    rng, cache = np.random.default_rng(1), empty(per_sequence=True)
    wanted = [[torch.zeros(H, 0, D)] for _ in range(B)]
    for counts in ([4, 1, 0], [1, 1, 1], [0, 1, 1], [3, 0, 2], [2, 4, 4]):
        tokens = max(counts)
        _, key, value = drawn(rng, tokens)
        cache = jax.jit(gm.KVCache.append)(cache, key, value, lengths=jnp.array(counts))
        for row, count in enumerate(counts):
            wanted[row].append(torch.tensor(key[row, :, :count]))
    assert cache.lengths.tolist() == [10, 7, 8]
    assert cache.overflow.tolist() == [True, False, True]
    for row in range(B):
        np.testing.assert_array_equal(held(cache, row)[0], torch.cat(wanted[row], 1)[:, :C])


def test_a_position_forgets_what_comes_after_it():
    rng, cache = np.random.default_rng(2), empty(per_sequence=True)
    _, first, value = drawn(rng, 5)
    cache = cache.append(first, value)
    _, second, value = drawn(rng, 1)
    cache = cache.append(second, value, position=np.array([5, 2, 0]))
    assert cache.lengths.tolist() == [6, 3, 1]
    for row, kept in enumerate([5, 2, 0]):
        wanted = np.concatenate([first[row, :, :kept], second[row]], 1)
        np.testing.assert_array_equal(held(cache, row)[0], wanted)


@pytest.mark.parametrize("wrong", [{"position": 4}, {"position": -1}, {"lengths": 3}, {"lengths": -1}])
def test_a_gap_is_an_overflow_for_good(wrong):
    rng, cache = np.random.default_rng(3), empty()
    _, key, value = drawn(rng, 2)
    cache = jax.jit(lambda cache, n: cache.append(key, value, **dict.fromkeys(wrong, n)))(
        cache.append(key, value), jnp.int32(next(iter(wrong.values())))
    )
    assert bool(cache.overflow)
    assert bool(cache.append(key, value, position=0).overflow)


@pytest.mark.parametrize("per_sequence", [False, True])
def test_attention_over_it_is_attention_over_what_grows(per_sequence):
    with jax.enable_x64(True):
        rng, cache = np.random.default_rng(4), empty(dtype=jnp.float64, per_sequence=per_sequence)
        keys, values, at = [], [], 0
        for tokens in (3, 1, 1, 2):
            query, key, value = (torch.tensor(x).double() for x in drawn(rng, tokens))
            keys, values = [*keys, key], [*values, value]
            cache = cache.append(key.numpy(), value.numpy())
            position = np.arange(at, at + tokens)
            at += tokens
            found = F.scaled_dot_product_attention(
                jnp.asarray(query.numpy()), cache.keys, cache.values, cache.mask(position)
            )
            seen = torch.arange(at) <= torch.tensor(position)[:, None]
            wanted = torch.nn.functional.scaled_dot_product_attention(
                query, torch.cat(keys, 2), torch.cat(values, 2), seen
            )
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-14)


def test_masks_are_those_of_each_place():
    cache = gm.KVCache.empty(2, 1, 1, capacity=4, per_sequence=True)
    cache = cache.append(jnp.zeros((2, 1, 3, 1)), jnp.zeros((2, 1, 3, 1)), lengths=np.array([3, 1]))
    assert cache.mask().astype(int).tolist() == [[[[1, 1, 1, 0]]], [[[1, 0, 0, 0]]]]
    assert cache.mask([0, 2]).astype(int)[:, 0].tolist() == [[[1, 0, 0, 0], [1, 1, 1, 0]], [[1, 0, 0, 0]] * 2]
    assert cache.mask([[1], [0]]).astype(int)[:, 0].tolist() == [[[1, 1, 0, 0]], [[1, 0, 0, 0]]]


@pytest.mark.parametrize("per_sequence", [False, True])
def test_reordered_it_holds_the_beams_that_go_on(per_sequence):
    cache = empty(per_sequence=per_sequence).append(*drawn(np.random.default_rng(5), 2)[1:])
    rows = np.array([2, 0, 0, 1])
    moved = jax.jit(gm.KVCache.reorder)(cache, rows)
    np.testing.assert_array_equal(moved.keys, np.asarray(cache.keys)[rows])
    np.testing.assert_array_equal(moved.values, np.asarray(cache.values)[rows])
    np.testing.assert_array_equal(moved.lengths, [2] * 4 if per_sequence else 2)


@pytest.mark.parametrize("per_sequence", [False, True])
@pytest.mark.parametrize("wrong", [3, -1])
def test_a_row_that_there_is_not_is_an_overflow_for_good(per_sequence, wrong):
    _, key, value = drawn(np.random.default_rng(5), 1)
    moved = empty(per_sequence=per_sequence).append(key, value).reorder(np.array([0, wrong, 1]))
    after = moved.append(key, value)
    assert moved.overflow.tolist() == after.overflow.tolist() == ([False, True, False] if per_sequence else True)


@pytest.mark.parametrize("per_sequence", [False, True])
def test_overflow_is_seen_under_vmap_in_loops_and_after_export(per_sequence):
    _, key, value = drawn(np.random.default_rng(6), 1)

    def filled(steps):
        cache = empty(per_sequence=per_sequence)
        return gm.fori(0, steps, lambda i, cache: cache.append(key, value), cache, max_steps=20)[0]

    lanes = jax.jit(jax.vmap(filled))(jnp.array([C, C + 1]))
    assert lanes.overflow.reshape(2, -1).any(1).tolist() == [False, True]
    graph = jax.export.export(jax.jit(filled))(jnp.int32(0)).serialize()
    again = jax.export.deserialize(bytearray(graph)).call
    assert type(again(jnp.int32(3))) is gm.KVCache
    assert not again(jnp.int32(C)).overflow.any()
    assert again(jnp.int32(C + 1)).overflow.all()


def test_overflow_raises_or_spoils_where_that_is_asked_for():
    rng = np.random.default_rng(7)
    _, *seven = drawn(rng, 7)
    _, *one = drawn(rng, 1)
    raising = gm.checked(jax.jit(lambda cache: cache.append(*one, on_overflow="raise")))
    assert int(raising(empty()).lengths) == 1
    with pytest.raises(ValueError, match=r"KVCache.append: 8 tokens, and its capacity is 7; give a larger capacity"):
        raising(empty().append(*seven))
    cache = empty(per_sequence=True).append(*seven, lengths=np.array([7, 6, 0])).append(*one, on_overflow="nan")
    assert np.isnan(cache.keys).all((1, 2, 3)).tolist() == [True, False, False]
    assert not np.isnan(cache.keys[1:]).any()
    assert np.isnan(cache.values).all((1, 2, 3)).tolist() == [True, False, False]


class Remembering(nnx.Module):
    """Holds a cache in a variable."""

    def __init__(self):
        self.cache = nnx.Cache(empty())

    def __call__(self, key, value):
        self.cache.set_value(self.cache.get_value().append(key, value))
        return self.cache.get_value().lengths


def test_a_module_holds_it_in_a_variable():
    _, key, value = drawn(np.random.default_rng(8), 1)
    module = Remembering()
    call = nnx.jit(lambda module: module(key, value))
    assert [int(call(module)) for _ in range(3)] == [1, 2, 3]
    cache = module.cache.get_value()
    assert isinstance(cache, gm.KVCache)
    np.testing.assert_array_equal(held(cache, 0)[0], np.repeat(key[0], 3, 1))

    def step(module, tokens, position):
        module(key, value)
        return jnp.zeros((1, 4)), module

    gm.greedy(step, module, [0], max_new_tokens=6)
    assert int(module.cache.get_value().lengths) == 9
    assert bool(module.cache.get_value().overflow)


def zeros(*shape, dtype=jnp.float32):
    return jnp.zeros(shape, dtype)


GOOD = zeros(B, H, 1, D), zeros(B, H, 1, E)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: empty().append(zeros(B, H, D), GOOD[1]), r"keys are float32\[3,2,4\], and float32\[3,2,T,4\]"),
        (lambda: empty().append(GOOD[0], GOOD[0]), r"values are float32\[3,2,1,4\], and float32\[3,2,T,5\]"),
        (lambda: empty().append(GOOD[0].astype(jnp.bfloat16), GOOD[1]), r"keys are bfloat16\[3,2,1,4\]"),
        (lambda: empty().append(zeros(B, H, 8, D), zeros(B, H, 8, E)), "keys are of 8 tokens, and the capacity is 7"),
        (lambda: empty().append(GOOD[0], zeros(B, H, 2, E)), "keys are of 1 tokens and values of 2"),
        (lambda: empty().append(*GOOD, lengths=[1, 1, 0]), r"lengths has shape \(3,\).*per_sequence=True"),
        (lambda: empty().append(*GOOD, position=0.5), "position has dtype float32, and integers"),
        (lambda: empty().append(*GOOD, on_overflow="drop"), "on_overflow is 'drop'"),
        (lambda: empty().mask(3), r"position has shape \(\), and \[T\] or \[B, T\]"),
        (lambda: gm.KVCache.empty(B, H, D, capacity=0), "capacity is 0"),
    ],
)
def test_bad_input_says_what_is_wanted(call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call()
