"""Groups of batches, and functions of them: nothing lost, whatever raises."""

import jax
import numpy as np
import pytest

from graphmode.training.data import as_source, from_arrays, mapped, stacked


def rows(count, epochs=2, **arguments):
    return from_arrays(np.arange(count), batch_size=1, shuffle=False, epochs=epochs, **arguments)


@pytest.mark.parametrize(
    ("remainder", "groups"),
    [
        ("carry", [[0, 1, 2], [3, 4, 0], [1, 2, 3], [4]]),
        ("short", [[0, 1, 2], [3, 4], [0, 1, 2], [3, 4]]),
        ("drop", [[0, 1, 2], [0, 1, 2]]),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_what_fills_no_group(remainder, groups, known):
    source = rows(5) if known else as_source(lambda: iter(np.arange(5)[:, None]), epochs=2)
    assert [group[:, 0].tolist() for group in stacked(source, 3, remainder=remainder)] == groups


def test_a_group_is_its_batches_side_by_side():
    def source():
        return from_arrays({"x": np.arange(24.0).reshape(12, 2), "y": (np.arange(12),)}, batch_size=2, epochs=1)

    batches = list(source())
    groups = list(stacked(source(), 3))
    assert len(groups) == 2
    for number, group in enumerate(groups):
        assert jax.tree.structure(group) == jax.tree.structure(batches[0])
        for i in range(3):
            got, want = jax.tree.map(lambda leaf: leaf[i], group), batches[3 * number + i]  # noqa: B023
            assert all((a == b).all() for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True))


def test_positions_are_the_sources_own():
    groups = stacked(rows(10, None), 3)
    next(groups)
    assert groups.state() == {**rows(10).state(), "batch": 3}
    other = stacked(rows(10, None), 4)
    other.restore(groups.state())
    assert next(other)[:, 0].tolist() == [3, 4, 5, 6]
    assert (len(stacked(rows(10), 5)), len(stacked(rows(9), 5, remainder="short"))) == (2, 2)


def test_one_epoch_of_groups():
    groups = stacked(rows(4, None), 2)
    for _ in range(3):
        assert [group[:, 0].tolist() for group in groups.one_epoch()] == [[0, 1], [2, 3]]
    for source in (stacked(rows(5, None), 2), mapped(stacked(rows(5, None), 2), np.array)):
        with pytest.raises(ValueError, match="may reach into the next epoch"):
            source.one_epoch()


class Flaky:
    """A list that fails once, at one place."""

    def __init__(self, at):
        self.at, self.failed = at, False

    def __iter__(self):
        for number in range(6):
            if number == self.at and not self.failed:
                self.failed = True
                raise OSError("disk")
            yield np.array([number])


def test_an_error_within_a_group_loses_no_batch():
    groups = stacked(as_source(Flaky(3), epochs=1), 2)
    got = [next(groups)[:, 0].tolist()]
    with pytest.raises(OSError, match="disk"):
        next(groups)
    assert groups.state()["batch"] == 2
    got += [group[:, 0].tolist() for group in groups]
    assert got == [[0, 1], [2, 3], [4, 5]]


def test_an_error_of_the_function_loses_no_batch():
    failures = [ZeroDivisionError("once")]

    def fn(batch):
        if batch[0] == 2 and failures:
            raise failures.pop()
        return batch

    source = mapped(rows(3, 1), fn)
    assert [next(source)[0], next(source)[0]] == [0, 1]
    with pytest.raises(ZeroDivisionError):
        next(source)
    assert source.state()["batch"] == 2
    assert [batch[0] for batch in source] == [2]


def test_refused():
    with pytest.raises(ValueError, match=r"shape \(2, 3\) in the first batch .* and batch 1 of it has \(1, 3\)"):
        next(stacked(from_arrays(np.ones((3, 3)), batch_size=2, drop_last=False), 2))
    for source in (rows(2), as_source(lambda: iter(np.arange(2)[:, None]))):
        with pytest.raises(ValueError, match="k is 3, and an epoch has 2 batches"):
            next(stacked(source, 3, remainder="drop"))
    with pytest.raises(ValueError, match="k is 0"):
        stacked(rows(2), 0)
    with pytest.raises(ValueError, match="choose 'carry'"):
        stacked(rows(2), 2, remainder="keep")
    with pytest.raises(TypeError, match="fn is 3"):
        mapped(rows(2), 3)
