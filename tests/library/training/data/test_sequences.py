"""Sequences of many lengths: each once an epoch, in batches of the promised shapes."""

import numpy as np
import pytest

from graphmode.training.data import from_sequences

RNG = np.random.default_rng(0)
SEQUENCES = [RNG.integers(1, 100, length) for length in RNG.integers(1, 40, 60)]
LABELS = {"length": np.array([len(s) for s in SEQUENCES]), "first": np.array([s[0] for s in SEQUENCES])}


@pytest.mark.parametrize("shuffle", [True, False])
def test_each_sequence_once_with_its_row(shuffle):
    source = from_sequences(
        SEQUENCES, batch_size=lambda length: 128 // length, buckets=(8, 16, 40), arrays=LABELS, shuffle=shuffle
    )
    for _ in range(2):
        seen, batches = [], 0
        for (indices, padded), rows in source.one_epoch():
            batches += 1
            assert padded.values.shape in {(16, 8), (8, 16), (3, 40)}
            for slot, index in enumerate(indices):
                if index == len(SEQUENCES):
                    assert padded.lengths[slot] == 0 == rows["length"][slot] == rows["first"][slot]
                    assert not padded.mask[slot].any()
                    continue
                seen.append(int(index))
                assert padded.values[slot][padded.mask[slot]].tolist() == SEQUENCES[index].tolist()
                assert (rows["length"][slot], rows["first"][slot]) == (len(SEQUENCES[index]), SEQUENCES[index][0])
        assert sorted(seen) == list(range(60))
        assert batches == len(source)


def test_epochs_differ_and_repeat():
    def orders(seed):
        source = from_sequences(SEQUENCES, batch_size=4, buckets=3, seed=seed)
        return [[batch.indices.tolist() for batch in source.one_epoch()] for _ in range(3)]

    first = orders(0)
    assert first == orders(0)
    assert len({str(order) for order in [*first, *orders(1)]}) == 6


def test_lengths_are_chosen():
    source = from_sequences(SEQUENCES, batch_size=4, buckets=3, multiple_of=8)
    assert len(source.lengths) == 3
    assert all(length % 8 == 0 for length in source.lengths)
    assert source.lengths[-1] == 40


def test_refused():
    with pytest.raises(ValueError, match=r"sequences? .*3 entries, and the longest of lengths is 2"):
        from_sequences([[1], [1, 2, 3]], batch_size=1, buckets=(1, 2))
    with pytest.raises(ValueError, match="sequences is empty"):
        from_sequences([], batch_size=1, buckets=2)
    with pytest.raises(ValueError, match="arrays have 1 rows, and there are 2 sequences"):
        from_sequences([[1], [2]], batch_size=1, buckets=2, arrays=np.ones(1))
    with pytest.raises(ValueError, match="batch_size is 0"):
        from_sequences([[1], [2]], batch_size=0, buckets=2)
    other = from_sequences(SEQUENCES, batch_size=4, buckets=2)
    with pytest.raises(ValueError, match=r"buckets is .* in the state"):
        from_sequences(SEQUENCES, batch_size=4, buckets=3).restore(other.state())
