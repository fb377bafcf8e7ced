"""Which tensors of a call stand for which, and in what layout; masks of other forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from graphmode.compare.parity.inside.layouts import Layouts, pair, says_the_same
from looked_into import look

from graphmode import nn
from graphmode.weights import Rename

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("axes", [(0, 1, 2, 3), (0, 2, 3, 1), (1, 0, 2, 3)])
def test_layouts_are_found_by_shape(axes):
    reference = RNG.standard_normal((2, 3, 4, 5))
    layout = Layouts().fit(reference.transpose(axes), reference)
    assert layout.axes == axes
    assert np.array_equal(layout.to_reference(layout.to_port(reference)), reference)


def test_a_square_transpose_is_no_layout():
    reference = RNG.standard_normal((4, 4))
    assert Layouts().fit(reference.T, reference).axes == (0, 1)
    cube = RNG.standard_normal((3, 3, 3, 3))
    assert Layouts().fit(np.moveaxis(cube, 1, -1), cube).axes == (0, 2, 3, 1)
    assert Layouts().fit(cube.transpose(1, 0, 2, 3), cube).axes == (0, 1, 2, 3)


def test_what_is_wrong_in_every_layout_lies_as_what_the_call_received():
    cube, wrong = RNG.standard_normal((2, 3, 3, 3, 3))
    layouts = Layouts()
    layouts.fit(np.moveaxis(cube, 1, -1), cube)
    assert layouts.fit(wrong, cube).axes == (0, 2, 3, 1)
    received = pair([cube + 1], {"0": cube + 1}, layouts)
    assert layouts.fit(wrong, cube, received).axes == (0, 1, 2, 3)


def test_rows_of_steps_before_examples_are_found_where_the_port_has_examples_first():
    steps = RNG.standard_normal((7, 3, 5))  # of the reference, which makes rows of them
    layouts, port = Layouts(), steps.swapaxes(0, 1)
    received = pair([port], {"0": steps.reshape(21, 5)}, layouts)
    layout = received[0].layout
    assert np.array_equal(layout.to_reference(port), steps.reshape(21, 5))
    assert np.array_equal(layout.to_port(steps.reshape(21, 5)), port)
    wrong = RNG.standard_normal((3, 7, 2))
    found = layouts.fit(wrong, RNG.standard_normal((21, 2)), received)  # as what the call received
    assert np.array_equal(found.to_reference(wrong), wrong.swapaxes(0, 1).reshape(21, 2))
    rows = RNG.standard_normal((21, 5))
    assert Layouts().fit(rows.reshape(3, 7, 5), rows).flat is None


def test_tensors_are_paired_by_value_where_shapes_agree():
    a, b = RNG.standard_normal((2, 3, 4))
    pairs = pair([b, a], {"hidden": a, "cell": b}, Layouts())
    assert [(p.name, p.index) for p in pairs] == [("hidden", 1), ("cell", 0)]


KEPT = np.array([[True, True, False], [True, False, False]])
FAR = np.where(KEPT, 0.0, -1e30)
NOTHING_KEPT = np.array([[True, True, False], [False, False, False]])


@pytest.mark.parametrize(
    ("port", "reference", "same"),
    [
        (FAR[:, None, None], np.broadcast_to(FAR[:, None, None], (2, 1, 4, 3)), True),
        (np.broadcast_to(FAR[:, None, None], (2, 1, 4, 3)), FAR[:, None, None], True),
        (KEPT, FAR, True),
        (~KEPT, FAR, True),
        (KEPT[:, None, None], np.broadcast_to(FAR[:, None, None], (2, 1, 4, 3)), True),
        (KEPT, KEPT.astype(np.int64), True),
        (np.where(KEPT, 0.0, -np.inf), FAR, True),
        (np.where(KEPT[::-1], 0.0, -1e9), FAR, False),
        (np.where(KEPT, -1e9, 0.0), FAR, False),
        (np.where(NOTHING_KEPT, 0.0, -np.inf), np.where(NOTHING_KEPT, 0.0, -1e30), False),
        (np.where(NOTHING_KEPT, 0.0, -1e9), np.where(NOTHING_KEPT, 0.0, -1e30), True),
        (np.ones((2, 3), bool), np.zeros((2, 3)), True),
        (~KEPT, KEPT, False),
        (KEPT[:, ::-1], FAR, False),
        (np.where(KEPT, 0.0, -1.0), FAR, False),
        (np.where(KEPT, 1e30, 0.0), FAR, False),
        (np.where(KEPT, 0.0, 1.0), np.where(KEPT, 0.0, 2.0), False),
        (FAR[:, :2], FAR, False),
        (KEPT, np.arange(6.0).reshape(2, 3), False),
        (np.arange(3.0), np.broadcast_to(np.arange(3.0) + 1, (2, 3)), False),
    ],
)
def test_another_form_of_an_argument_is_no_error_and_another_argument_is(port, reference, same):
    assert says_the_same(port, reference) is same


def test_of_outputs_with_names_each_is_held_against_its_own_beside_a_number_of_pythons():
    reference = {"loss": np.array(2.8), "clipped": np.array(0.56)}
    port = {"clipped": 0.56, "count": 3, "loss": 5.7}
    found = pair([np.array(x) for x in port.values()], reference, Layouts(), list(port))
    assert {each.name: each.index for each in found} == {"loss": 2, "clipped": 0}


def test_a_mask_of_another_form_does_not_make_its_giver_a_suspect():
    class Scores(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(4, 4)

        def forward(self, x, mask):
            return torch.softmax(self.fc(x) + mask, -1)

    class Reference(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scores = Scores()
            self.out = torch.nn.Linear(4, 2)

        def forward(self, x, kept):
            return self.out(self.scores(x, (~kept)[None] * -1e30))

    class ScoresPort(nnx.Module):
        def __init__(self, rngs):
            self.fc = nn.Linear(4, 4, rngs=rngs)

        def __call__(self, x, kept):
            return jax.nn.softmax(jnp.where(kept, 1.01 * self.fc(x), -jnp.inf), -1)

    class Port(nnx.Module):
        def __init__(self, rngs):
            self.scores = ScoresPort(rngs)
            self.out = nn.Linear(4, 2, rngs=rngs)

        def __call__(self, x, kept):
            return self.out(self.scores(x, jnp.broadcast_to(kept, x.shape)))

    wrong = Case(
        name="masked",
        summary="",
        reference=Reference,
        model=Port,
        inputs=lambda rng: (rng.standard_normal((3, 4)), np.array([True, False, True, True])),
    )
    report = check(wrong, draws=1)
    assert [each.module for each in report.divergences] == ["scores"]


class BiasedScores(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.o = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.bias = torch.nn.Embedding(5, 3)

    def forward(self, x, mask):
        bias = self.bias((torch.arange(5)[:, None] - torch.arange(5)).abs()).permute(2, 0, 1)
        q = self.q(x)
        return self.o((torch.softmax(q @ q.mT + bias[:, None] + mask, -1) @ x).mean(0))


class WithBiasedScores(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scores = BiasedScores()

    def forward(self, x):
        mask = torch.zeros(5, 5, dtype=x.dtype).masked_fill(torch.ones(5, 5).triu(1).bool(), torch.finfo(x.dtype).min)
        return 3 * self.scores(x, mask[None, None])


class ScoresOfSum(nnx.Module):
    def __init__(self, rngs, factor):
        self.q, self.o, self.factor = nnx.Linear(4, 4, rngs=rngs), nnx.Linear(4, 4, rngs=rngs), factor

    def __call__(self, x, bias):
        q = self.q(x)
        return self.o((jax.nn.softmax(self.factor * (q @ q.mT) + bias) @ x).mean(0))


class WithScoresOfSum(nnx.Module):
    """Adds the bias to the mask ahead of the module that the reference adds them in."""

    def __init__(self, rngs, factor=1.0, after=3.0):
        self.bias, self.scores, self.after = nnx.Embed(5, 3, rngs=rngs), ScoresOfSum(rngs, factor), after

    def __call__(self, x):
        bias = self.bias(jnp.abs(jnp.arange(5)[:, None] - jnp.arange(5))).transpose(2, 0, 1)[:, None]
        mask = jnp.where(jnp.tril(jnp.ones((5, 5), bool)), 0, jnp.finfo(x.dtype).min)
        return self.after * self.scores(x, bias + mask)


@pytest.mark.parametrize(
    ("wrong", "modules"), [({}, []), ({"after": 2.0}, [""]), ({"factor": 2.0}, ["scores"])], ids=str
)
def test_a_mask_that_more_was_added_to_is_no_mask_of_fewer_heads(wrong, modules):
    case = Case(
        name="biased",
        summary="s",
        reference=WithBiasedScores,
        model=lambda rngs: WithScoresOfSum(rngs, **wrong),
        inputs=lambda rng: (rng.standard_normal((2, 5, 4)),),
        weights=[Rename("scores.bias", "bias")],
    )
    assert [each.module for each in look(case).divergences()] == modules


def test_what_is_some_times_as_large_has_the_layout_in_which_it_goes_with_the_reference():
    reference = np.random.default_rng(0).standard_normal((3, 8, 8, 8))
    layouts = Layouts()
    layouts.seen[0, 1, 2, 3] = 9  # as many as are as they are, of other tensors of this rank
    layouts.seen[0, 2, 3, 1] = 1
    for axes in ((0, 2, 3, 1), (0, 1, 2, 3)):
        assert layouts.fit(0.1 * reference.transpose(axes), reference).axes == axes
    assert layouts.fit(np.zeros_like(reference), reference).axes == (0, 1, 2, 3)
