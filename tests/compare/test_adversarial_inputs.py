"""Inputs of the check's own making: what each kind is, and the domain that they keep to."""

import numpy as np
import pytest
from graphmode.compare.parity.adversarial import KINDS, adversarial_inputs


def made(*draws, kinds=KINDS):
    return dict(adversarial_inputs([draw if isinstance(draw, dict) else (draw,) for draw in draws], kinds))


def normal(shape=(4, 3), seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_each_kind_is_what_its_name_says():
    x = normal()
    found = {kind: inputs[0] for kind, inputs in made(x).items()}
    scaled = {"0.001 as large", "1e-06 as large", "1e-09 as large", "1000 as large"}
    assert found.keys() == {"zeros", "ties", *scaled, "a large mean", "all positive", "all negative", "a batch of one"}
    assert not found["zeros"].any()
    assert len(np.unique(found["ties"])) < len(np.unique(x))
    np.testing.assert_allclose(found["1e-06 as large"], 1e-6 * x, rtol=1e-6)
    assert found["a large mean"].mean() > 50 * x.std()
    assert (found["all positive"] >= 0).all()
    assert (found["all negative"] <= 0).all()
    assert found["a batch of one"].shape == (1, 3)
    assert all(array.dtype == np.float32 for array in found.values())


def test_the_domain_is_that_of_the_draws():
    """What is never negative stays so, and what is a probability does not leave its interval."""
    found = made(np.abs(normal()), np.abs(normal(seed=1)))
    assert not {"a large mean", "all negative"} & found.keys()
    assert all((inputs[0] >= 0).all() for inputs in found.values())
    probabilities = np.float32([[0.02, 0.97], [0.5, 0.4]])
    assert made(probabilities)["ties"][0].max() <= np.float32(0.97)
    assert made(probabilities)["1e-06 as large"][0].max() < 1e-6
    assert not any("as large" in kind for kind in made(1 + np.abs(normal())))  # of which none is near zero
    assert not {"all positive", "a large mean"} & made(-np.abs(normal())).keys()


@pytest.mark.parametrize("scale", [0.7, 1.0, 1.3])
def test_ties_meet_one_where_limits_lie(scale):
    assert 1 in made(np.float32(scale) * normal((64, 3)))["ties"][0]


def test_of_integers_few_are_left_and_of_scores_few_are_high():
    tokens = np.random.default_rng(0).integers(3, 50, (4, 12))
    found = made({"tokens": tokens, "scores": normal((4, 12))})
    np.testing.assert_array_equal(np.unique(found["few values"]["tokens"]), np.unique(tokens)[:3])
    scores = found["few peaks"]["scores"]
    assert set(np.argmax(scores, 1)) <= {0, 1, 11}
    assert (scores[:, 2:-1] == normal((4, 12)).min()).all()


def test_of_integers_one_is_left_the_least_and_the_largest():
    tokens = np.random.default_rng(0).integers(3, 50, (4, 12))
    tokens[:, 9:] = 0
    found = made(tokens)
    for kind, value in (("the least integers", tokens[tokens > 0].min()), ("the largest integers", tokens.max())):
        (one,) = found[kind]
        assert set(np.unique(one)) == {0, value}
        np.testing.assert_array_equal(one == 0, tokens == 0)


@pytest.mark.parametrize("padding", [0, 99, -100])
def test_padding_stays_where_it_is(padding):
    tokens = np.random.default_rng(0).integers(3, 50, (4, 12))
    tokens[np.arange(12) >= np.array([[12], [7], [3], [5]])] = padding
    (few,) = made(tokens)["few values"]
    np.testing.assert_array_equal(few == padding, tokens == padding)
    least = np.unique(tokens[tokens != padding])[:3]
    assert set(np.unique(few)) == {*least, padding}


@pytest.mark.parametrize(
    "arranged",
    [
        lambda rng: np.sort(rng.integers(0, 50, (3, 8))),
        lambda rng: -np.sort(rng.integers(0, 50, (3, 8))),
        lambda rng: np.argsort(rng.random((3, 8))),
        lambda rng: np.sort(rng.integers(0, 50, (12, 2))),
    ],
    ids=["offsets", "lengths that fall", "permutations", "starts and ends"],
)
def test_integers_that_are_arranged_stay_so(arranged):
    rng = np.random.default_rng(0)
    assert "few values" not in made(*(arranged(rng) for _ in range(3)))


def test_a_draw_without_elements_tells_nothing():
    tokens = np.random.default_rng(0).integers(3, 50, (4, 12))
    assert "few values" in made(tokens, tokens[:, :0])
    assert "few values" not in made(tokens[:, :0], tokens)


def test_masks_are_booleans_and_matrices_of_zeros_and_ones():
    mask = np.array([[True, True], [True, False]])
    inputs = {"mask": mask, "attention": mask.astype(int), "floating": mask.astype(np.float32), "lengths": mask[1] * 1}
    found = made(inputs)
    for kind, value in (("masks of zeros", 0), ("masks of ones", 1)):
        for name in ("mask", "attention", "floating"):
            assert (found[kind][name] == value).all()
            assert found[kind][name].dtype == inputs[name].dtype
        assert (found[kind]["lengths"] == inputs["lengths"]).all()
    assert found["a batch of one"]["lengths"].shape == (1,)


def test_flags_signs_and_classes_stay_what_they_are():
    rng = np.random.default_rng(0)
    inputs = {
        "x": normal((8, 3)),
        "done": (rng.random(8) < 0.5).astype(np.float32),
        "signs": np.sign(normal((8, 3))),
        "classes": np.eye(3, dtype=np.float32)[rng.integers(0, 3, 8)],
        "mask": rng.choice(np.float32([0, -1e9]), (8, 3)),
    }
    found = made(inputs)
    assert {"zeros", "0.001 as large", "1000 as large", "a large mean", "masks of ones"} <= found.keys()
    others = {"masks of zeros", "masks of ones", "a batch of one"}
    for kind, given in found.items():
        assert set(np.unique(given["done"])) <= {0, 1}
        assert set(np.unique(given["signs"])) <= {-1, 1}
        assert (given["classes"].sum(-1) == 1).all()
        assert set(np.unique(given["mask"])) <= {0, np.float32(-1e9)}
        assert (given["done"] == inputs["done"]).all() == (kind not in others)


def test_numbers_that_the_reference_holds_are_met_where_draws_have_such():
    assert made(normal(), kinds=("values of buffers",)) == {}
    ((_, (met,)),) = adversarial_inputs([(normal(),)], ("values of buffers",), held=(-9, 0.25, 0.5))
    assert {0.25, 0.5} == set(met.flat[::2])
    assert (met.flat[1::2] == normal().flat[1::2]).all()


def test_what_is_the_same_is_not_asked_twice():
    assert made(np.zeros((1, 3), np.float32)) == {}
    assert "a batch of one" not in made({"a": normal((4, 3)), "b": normal((3, 4))})  # no axis that both share


def test_a_mask_of_one_value_is_asked_with_both():
    kept = np.ones((2, 5), bool)
    for mask in (kept, ~kept, kept[0]):
        (found,) = made(mask, kinds=["masks of both values"])["masks of both values"]
        assert (found[..., :2] == mask[..., :2]).all()
        assert (found[..., 2:] != mask[..., 2:]).all()
    assert not made(np.array([[True, False], [True, True]]), kinds=["masks of both values"])
    assert not made(kept[:, :1], kinds=["masks of both values"])


def test_a_mask_that_is_one_stretch_gets_a_hole():
    mask = np.arange(6) < np.array([[4], [6], [2]])
    found = made(mask, kinds=["masks with holes"])["masks with holes"][0]
    np.testing.assert_array_equal(found[0], [True, False, True, True, False, True])
    np.testing.assert_array_equal(found[1:], mask[1:])
    (at_the_end,) = made(mask[:, ::-1].astype(np.int64), kinds=["masks with holes"])["masks with holes"]
    np.testing.assert_array_equal(at_the_end[0], [1, 0, 1, 1, 0, 1])
    assert not made(np.array([[True, False, True], [False, True, False]]), kinds=["masks with holes"])
