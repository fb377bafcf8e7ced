"""Ragged batches against PyTorch's `pad_sequence`, brute force over buckets, and loops over packed sequences."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils import rnn

import graphmode as gm

LENGTHS = st.lists(st.integers(0, 12), min_size=1, max_size=9)
quick = settings(max_examples=30, derandomize=True, database=None)


def sequences_of(lengths, columns=(), dtype="float32"):
    rng = np.random.default_rng(sum(lengths))
    return [rng.standard_normal((n, *columns)).astype(dtype) for n in lengths]


@quick
@given(LENGTHS, st.sampled_from([(), (2,)]), st.sampled_from(["right", "left"]), st.sampled_from([0, -1]))
def test_padding_is_that_of_pytorch(lengths, columns, side, fill_value):
    sequences = sequences_of(lengths, columns)
    batch = gm.pad_sequences(sequences, side=side, fill_value=fill_value)
    tensors = [torch.tensor(sequence) for sequence in sequences]
    wanted = rnn.pad_sequence(tensors, batch_first=True, padding_value=fill_value, padding_side=side)
    np.testing.assert_array_equal(batch.values, wanted)
    assert batch.lengths.tolist() == lengths
    assert batch.mask.sum(1).tolist() == lengths
    for got, given_one in zip(gm.unpad_sequences(batch.values, batch.mask), sequences, strict=True):
        np.testing.assert_array_equal(got, given_one)
    longer = gm.pad_sequences(sequences, side=side, multiple_of=5)
    assert longer.values.shape[1] % 5 == 0
    assert 0 <= longer.values.shape[1] - max(lengths) < 5
    if max(lengths):
        assert gm.lengths_to_mask(lengths, max(lengths), side=side).tolist() == batch.mask.tolist()


@pytest.mark.parametrize("dtype", ["float64", "int32", "bool", "bfloat16"])
def test_padding_keeps_the_dtype(dtype):
    batch = gm.pad_sequences(
        [jnp.zeros(2, dtype), jnp.zeros(1, dtype)] if dtype == "bfloat16" else [np.zeros(2, dtype)]
    )
    assert batch.values.dtype == dtype


def test_an_empty_list_has_no_say_in_the_dtype():
    assert gm.pad_sequences([[1, 2], []]).values.dtype == np.int64
    assert gm.pad_sequences([np.array([1], np.int32), np.array([0.5], np.float32)]).values.dtype == np.float64


def fewest_padded(lengths, buckets):
    """Over all choices of bucket lengths."""
    distinct = sorted({max(length, 1) for length in lengths})
    choices = itertools.combinations(distinct, min(buckets, len(distinct)))
    return min(padding(lengths, choice) for choice in choices if choice[-1] == distinct[-1])


def padding(lengths, buckets):
    return sum(gm.bucket_for(length, buckets) - length for length in lengths)


@quick
@given(LENGTHS, st.integers(1, 4))
def test_bucket_lengths_pad_least(lengths, buckets):
    chosen = gm.bucket_lengths(lengths, buckets=buckets)
    assert len(chosen) <= buckets
    assert list(chosen) == sorted(set(chosen))
    assert padding(lengths, chosen) == fewest_padded(lengths, buckets)
    assert all(length % 4 == 0 for length in gm.bucket_lengths(lengths, buckets=buckets, multiple_of=4))


def test_a_choice_of_buckets_that_pads_more_is_caught():
    lengths = [1, 1, 1, 8, 9, 10]
    assert (
        padding(lengths, (9, 10)) > fewest_padded(lengths, 2) == padding(lengths, gm.bucket_lengths(lengths, buckets=2))
    )


@pytest.mark.parametrize(("shortest", "longest", "ratio"), [(1, 100, 1.1), (16, 1000, 2), (7, 7, 2), (5, 6, 3)])
def test_geometric_lengths_bound_the_padding(shortest, longest, ratio):
    lengths = gm.geometric_lengths(shortest, longest, ratio=ratio)
    assert lengths[-1] == longest
    for length in range(shortest, longest + 1):
        assert gm.bucket_for(length, lengths) <= np.ceil(length * ratio)


@quick
@given(LENGTHS, st.integers(1, 3), st.sampled_from([(12,), (3, 6, 12)]))
def test_every_sequence_comes_once_in_its_bucket(lengths, batch_size, buckets):
    sequences = sequences_of(lengths)
    seen = {}
    for indices, batch in gm.batches_by_bucket(iter(sequences), lengths=buckets, batch_size=batch_size):
        assert batch.values.shape in {(batch_size, bucket) for bucket in buckets}
        for row, index in enumerate(indices):
            if index < len(sequences):
                assert index not in seen
                seen[index] = batch.values[row][batch.mask[row]]
                assert gm.bucket_for(len(sequences[index]), buckets) == batch.values.shape[1]
            else:
                assert index == len(sequences)
                assert not batch.mask[row].any()
    assert sorted(seen) == list(range(len(sequences)))
    for index, got in seen.items():
        np.testing.assert_array_equal(got, sequences[index])


def test_as_many_graphs_as_buckets():
    traces = []

    @jax.jit
    def total(batch):
        traces.append(batch.values.shape)
        return gm.masked_sum(batch.values, batch.mask, 1)

    sequences = sequences_of([1, 5, 7, 2, 3, 8, 8, 1, 4])
    size = {4: 3, 8: 2}
    for indices, batch in gm.batches_by_bucket(sequences, lengths=(4, 8), batch_size=size.__getitem__):
        sums = total(batch)
        for index, got in zip(indices, sums, strict=True):
            assert got == pytest.approx(sequences[index].sum() if index < 9 else 0, abs=1e-5)
    assert sorted(traces) == [(2, 8), (3, 4)]


@quick
@given(LENGTHS, st.sampled_from([(), (2,)]), st.sampled_from([12, 13, 30]))
def test_packing_keeps_every_sequence_whole(lengths, columns, length):
    sequences = sequences_of(lengths, columns)
    packed = gm.pack_sequences(sequences, length=length, fill_value=-7)
    for got, wanted in zip(gm.unpack_sequences(packed.values, packed), sequences, strict=True):
        np.testing.assert_array_equal(got, wanted)
    positions = gm.unpack_sequences(packed.positions, packed)
    assert [list(row) for row in positions] == [list(range(n)) for n in lengths]
    assert (packed.segment_ids > 0).sum() == sum(lengths)
    assert (packed.values[packed.segment_ids == 0] == -7).all()
    for row in packed.segment_ids:
        ids = row[row > 0]
        # 1, 2, ... from left to right without a gap
        assert (np.diff(ids) >= 0).all()
        assert sorted(set(ids)) == list(range(1, len(set(ids)) + 1))
    per_sequence = {(r, i) for r, row in enumerate(packed.segment_ids) for i in set(row[row > 0])}
    assert len(per_sequence) == sum(n > 0 for n in lengths)
    most = max(1, -(-sum(lengths) // length))
    assert most <= len(packed.values) <= max(1, 2 * most)


def test_packing_into_more_rows_than_needed():
    packed = gm.pack_sequences([[1, 2], [3]], length=3, rows=2)
    assert packed.values.tolist() == [[1, 2, 3], [0, 0, 0]]
    assert packed.segment_ids.tolist() == [[1, 1, 2], [0, 0, 0]]


@quick
@given(st.lists(st.integers(0, 4), max_size=5), st.sampled_from([1, 6, 20]))
def test_segment_ids_are_repeat_interleave(lengths, capacity):
    ids = jax.jit(lambda lengths: gm.segment_ids(lengths, capacity=capacity))(jnp.array(lengths, jnp.int32))
    wanted = torch.repeat_interleave(torch.arange(len(lengths)) + 1, torch.tensor(lengths, dtype=torch.int64))
    held = wanted[:capacity].tolist()
    assert ids.values.tolist() == held + [0] * (capacity - len(held))
    assert ids.valid.tolist() == [i < len(wanted) for i in range(capacity)]
    assert int(ids.count) == len(wanted)
    assert bool(ids.overflow) == (len(wanted) > capacity)


def test_segment_ids_that_find_no_room():
    raising = jax.jit(lambda n: gm.segment_ids(n, capacity=4, on_overflow="raise"))
    with pytest.raises(Exception, match="segment_ids found 5 entries, and its capacity is 4"):
        jax.block_until_ready(raising(jnp.array([2, 3]))), jax.effects_barrier()
    huge = gm.segment_ids(jnp.full(3, 2**31 - 1), capacity=4)
    assert (huge.values.tolist(), int(huge.count), bool(huge.overflow)) == ([1] * 4, 2**31 - 1, True)
    assert jax.vmap(lambda n: gm.segment_ids(n, capacity=2))(jnp.array([[1, 3], [0, 1]])).count.tolist() == [4, 1]


@pytest.mark.parametrize("causal", [False, True])
def test_attention_over_packed_rows_is_attention_over_each_sequence(causal):
    lengths, heads, size = [3, 5, 1, 4], 2, 4
    rng = np.random.default_rng(0)
    queries, keys, values = ([rng.standard_normal((n, heads, size)) for n in lengths] for _ in range(3))
    with jax.enable_x64():
        packs = [gm.pack_sequences(part, length=8, fill_value=9) for part in (queries, keys, values)]
        mask = jax.jit(lambda ids: gm.segment_mask(ids, causal=causal))(packs[0].segment_ids)
        q, k, v = (jnp.asarray(pack.values) for pack in packs)
        # jax.nn.dot_product_attention takes the same mask, and computes in single precision
        weights = gm.masked_softmax(jnp.einsum("bthd,bshd->bhts", q, k) / size**0.5, mask[:, None])
        out = jnp.einsum("bhts,bshd->bthd", weights, v)
        single = jax.nn.dot_product_attention(*(part.astype("float32") for part in (q, k, v)), mask=mask[:, None])
    there = packs[0].segment_ids > 0
    np.testing.assert_allclose(single[there], out[there], rtol=0, atol=2e-5)
    for got, q, k, v in zip(gm.unpack_sequences(out, packs[0]), queries, keys, values, strict=True):
        parts = (torch.tensor(part).transpose(0, 1) for part in (q, k, v))
        wanted = torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=causal).transpose(0, 1)
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-12)


def test_segment_mask_between_two_sides():
    mask = gm.segment_mask([[1, 2, 0]], [[2, 0, 1, 1]])
    assert mask.astype(int).tolist() == [[[0, 0, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0]]]


def test_ragged_batches_go_through_export():
    batch = gm.pad_sequences([[1.0], [2.0, 3.0]])
    exported = jax.export.export(jax.jit(lambda batch: batch._replace(values=batch.values * 2)))(batch)
    again = jax.export.deserialize(exported.serialize()).call(jax.tree.map(jnp.asarray, batch))
    assert isinstance(again, gm.PaddedBatch)
    assert again.values.tolist() == [[2, 0], [4, 6]]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: gm.pad_sequences([]), "sequences is empty"),
        (lambda: gm.pad_sequences([[1], 2]), r"sequences\[1\]"),
        (lambda: gm.pad_sequences([np.ones((2, 3)), np.ones((2, 4))]), r"sequences\[1\] has entries of shape \(4,\)"),
        (lambda: gm.pad_sequences([[1, 2, 3]], length=2), r"sequences\[0\] has 3 entries, and length is 2"),
        (lambda: gm.pad_sequences([[1]], length=3, multiple_of=2), "no multiple"),
        (lambda: gm.pad_sequences([[1]], side="top"), "side is 'top'"),
        (lambda: gm.pad_sequences([[1], [2, 3]], fill_value=0.5), "fill_value is 0.5"),
        (lambda: gm.pad_sequences([np.ones(2, np.uint8)], fill_value=-1), "fill_value is -1"),
        (lambda: gm.pad_sequences([["a"]]), "numbers"),
        (lambda: gm.unpad_sequences(np.ones((2, 3)), np.ones((2, 4), bool)), r"give \[B, T"),
        (lambda: gm.lengths_to_mask([1, 5], 4), "lengths are from 1 to 5"),
        (lambda: gm.lengths_to_mask([-1, 3], 4), "lengths are from -1 to 3"),
        (lambda: gm.lengths_to_mask([1.0], 4), "integers"),
        (lambda: gm.bucket_lengths([], buckets=2), "at least one"),
        (lambda: gm.bucket_lengths([1.5], buckets=2), "integer"),
        (lambda: gm.bucket_lengths([1], buckets=0), "buckets is 0"),
        (lambda: gm.geometric_lengths(8, 4), "longest is 4"),
        (lambda: gm.geometric_lengths(4, 8, ratio=1), "ratio is 1"),
        (lambda: gm.bucket_for(9, (4, 8)), "9 entries, and the longest of lengths is 8"),
        (lambda: list(gm.batches_by_bucket([[1] * 9], lengths=(4, 8), batch_size=2)), "9 entries"),
        (lambda: list(gm.batches_by_bucket([[1]], lengths=(4,), batch_size=0)), "batch_size is 0"),
        (lambda: list(gm.batches_by_bucket([1], lengths=(4,), batch_size=1)), "scalar"),
        (lambda: gm.pack_sequences([[1], [1, 2, 3]], length=2), r"sequences\[1\] has 3 entries, and length is 2"),
        (lambda: gm.pack_sequences([[1, 2], [3, 4]], length=2, rows=1), "rows is 1, and these sequences need 2"),
        (
            lambda: gm.unpack_sequences(np.ones((3, 4)), gm.pack_sequences([[1]], length=4)),
            r"values has shape \(3, 4\)",
        ),
        (lambda: gm.segment_ids([[1]], capacity=3), r"lengths has shape \(1, 1\)"),
        (lambda: gm.segment_ids([1, -2], capacity=3), "lengths holds -2"),
        (lambda: gm.segment_ids([1], capacity=3, on_overflow="nan"), "no NaN"),
        (lambda: gm.segment_mask([1.0]), "integers"),
        (lambda: gm.segment_mask(1), "scalar"),
        (lambda: gm.segment_mask([[1, 2]], [1, 2]), "make batches agree"),
        (lambda: gm.segment_mask([1], [1], causal=True), "causal is True with key_segment_ids"),
    ],
)
def test_bad_input_says_what_is_wanted(call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call()


def test_traced_lengths_are_checked_where_that_is_asked_for():
    masks = jax.jit(lambda lengths: gm.lengths_to_mask(lengths, 2, strict=True))
    assert masks(jnp.array([0, 2])).tolist() == [[False, False], [True, True]]
    with pytest.raises(Exception, match="lengths are from 1 to 3, and length is 2"):
        jax.block_until_ready(masks(jnp.array([1, 3]))), jax.effects_barrier()
