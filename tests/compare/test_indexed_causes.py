"""Tables that are read by several indices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from told_causes import causes

import graphmode as gm
from graphmode import nn

TAGS, TIME = 5, 6


class Path(torch.nn.Module):
    """The score of a path: of each tag and of each after the one before it."""

    def __init__(self):
        super().__init__()
        self.transitions = torch.nn.Parameter(torch.randn(TAGS, TAGS))
        self.own = torch.nn.Parameter(torch.randn(TAGS))

    def forward(self, tags):
        score = self.own[tags[0]]
        for t in range(1, len(tags)):
            score = score + self.transitions[tags[t - 1], tags[t]] + self.own[tags[t]]
        return score


class Port(nnx.Module):
    def __init__(self, rngs):
        self.transitions, self.own = nnx.Param(jnp.zeros((TAGS, TAGS))), nnx.Param(jnp.zeros(TAGS))

    def steps(self, before, after):
        return self.transitions[...][before, after]

    def __call__(self, tags):
        return self.own[...][tags].sum(0) + self.steps(tags[:-1], tags[1:]).sum(0)


class Backwards(Port):
    def steps(self, before, after):
        return self.transitions[...][after, before]


class Transposed(Port):
    def steps(self, before, after):
        return self.transitions[...].T[before, after]


@pytest.mark.parametrize("port", [Backwards, Transposed])
def test_indices_the_other_way_round_are_named(port):
    found = causes(Path, port, lambda rng: (rng.integers(0, TAGS, (TIME, 4)),))
    assert found == [("index-order", "takes the indices of axes 0 and 1 the other way round")]


class Resampled(torch.nn.Module):
    """Weights of which the forward pass has no trace: each is divided by itself."""

    def __init__(self):
        super().__init__()
        self.score = torch.nn.Parameter(torch.randn(TIME))

    def forward(self, x, index):
        weights = torch.softmax(x * self.score, 1)
        picked = weights.gather(1, index)
        return (weights * x).sum(1), torch.log(picked / picked.detach()) - x


class AsTheyLie(nnx.Module):
    def __init__(self, rngs):
        self.score = nnx.Param(jnp.zeros(TIME))

    def __call__(self, x, index):
        weights = jax.nn.softmax(x * self.score[...], axis=1)
        return (weights * x).sum(1), jnp.log(weights / jax.lax.stop_gradient(weights)) - x


def test_a_gather_that_is_left_out_is_named():
    found = causes(Resampled, AsTheyLie, lambda rng: (rng.standard_normal((4, TIME)), rng.integers(0, TIME, (4, TIME))))
    assert found == [("index-missing", "leaves the gather out: takes each where it lies")]


class Normaliser(torch.nn.Module):
    """The sum over all paths, of which each step adds up the tags before."""

    def __init__(self):
        super().__init__()
        self.transitions = torch.nn.Parameter(torch.randn(TAGS, TAGS))

    def forward(self, emissions):
        score = emissions[:, 0]
        for t in range(1, TIME):
            score = torch.logsumexp(score[:, :, None] + self.transitions + emissions[:, t, None], 1)
        return score


class OverTheTagsAfter(nnx.Module):
    def __init__(self, rngs):
        self.transitions = nnx.Param(jnp.zeros((TAGS, TAGS)))

    def __call__(self, emissions):
        score = emissions[:, 0]
        for t in range(1, TIME):
            score = jax.nn.logsumexp(score[:, None] + self.transitions[...] + emissions[:, t, :, None], 2)
        return score


def test_a_table_that_is_taken_transposed_is_named():
    found = causes(Normaliser, OverTheTagsAfter, lambda rng: (rng.standard_normal((3, TIME, TAGS)),))
    assert found == [("weight-transposed", "takes transitions transposed")]


class Means(torch.nn.Module):
    """The mean of what goes to a node, masked edges among those that are counted."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(TIME, TIME)

    def forward(self, x, mask, node):
        mask = mask.to(x.dtype)
        values = self.fc(x) * mask
        index = node[:, None].expand_as(values)
        total, count = (torch.zeros(TAGS, TIME, dtype=x.dtype) for _ in range(2))
        total.scatter_add_(0, index, values)
        count.scatter_add_(0, index, torch.ones_like(values))
        return total / count.clamp(min=1)


class OfUnmasked(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(TIME, TIME, rngs=rngs)

    def __call__(self, x, mask, node):
        total = jax.ops.segment_sum(self.fc(x) * mask, node, TAGS)
        return total / jnp.maximum(jax.ops.segment_sum(mask, node, TAGS), 1)


def test_that_a_count_leaves_out_what_is_masked_is_named():
    def edges(rng):
        return rng.standard_normal((20, TIME)), rng.integers(0, 2, (20, 1)), rng.integers(0, TAGS, 20)

    says = "gives what Tensor.to gives to scatter_add_ where the reference gives what ones_like gives"
    assert causes(Means, OfUnmasked, edges) == [("wiring", says)]


class Rows(torch.nn.Module):
    """The row that each of some places lies in, counted along rows of four."""

    def forward(self, places):
        return places // 4


class PortOfRows(nnx.Module):
    def __call__(self, places):
        return places


def test_an_operator_is_told_as_it_is_written():
    case = Case(
        name="c",
        summary="s",
        reference=Rows,
        model=lambda rngs: PortOfRows(),
        inputs=lambda rng: (rng.integers(0, 40, 9),),
        adversarial=(),
    )
    (cause,) = check(case, compiled=False, hasty=True).first_divergence.causes
    assert cause.says.endswith("where the reference gives what // gives: // is left out")
    assert cause.fix == "write //, as the reference does"


class Pairs(torch.nn.Module):
    """The products of all pairs of rows."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(TAGS * (TAGS - 1) // 2, 3)

    def forward(self, x):
        z = x @ x.mT
        i, j = torch.tril_indices(TAGS, TAGS, -1)
        return self.fc(z[:, i, j])


class UpperPairs(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(TAGS * (TAGS - 1) // 2, 3, rngs=rngs)

    def __call__(self, x):
        i, j = jnp.triu_indices(TAGS, 1)
        return self.fc((x @ x.mT)[:, i, j])


def test_the_pairs_of_the_other_triangle_are_named():
    ((id, says),) = causes(Pairs, UpperPairs, lambda rng: (rng.standard_normal((2, TAGS, TIME)),))
    assert (id, says) == (
        "index-order",
        "takes the pairs in the order of their indices of axis 2, as those of the other triangle",
    )


class Edges(torch.nn.Module):
    """Weights of edges, of which those that come to one node are 1 in all."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(TIME, TIME)

    def forward(self, x, source, target, weight):
        h = self.fc(x)
        whole = torch.zeros(len(x), dtype=x.dtype).index_add(0, target, weight)
        share = weight / whole[target]
        return torch.zeros_like(h).index_add(0, target, share[:, None] * h[source])


class BySource(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(TIME, TIME, rngs=rngs)

    def __call__(self, x, source, target, weight):
        h = self.fc(x)
        whole = jnp.zeros(len(x)).at[source].add(weight)
        share = weight / whole[source]
        return jnp.zeros_like(h).at[target].add(share[:, None] * h[source])


def test_a_sum_by_other_indices_is_named_with_all_that_takes_them():
    def graph(rng):
        edges = rng.integers(0, TAGS, (2, 30))
        return rng.standard_normal((TAGS, TIME)), *edges, rng.uniform(0.5, 1, 30)

    says = "takes its input 1 (source) for its input 2 (target) in index_add and x[...]"
    assert causes(Edges, BySource, graph) == [("wiring", f"{says}, and what takes it between them")]


class Steps(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = torch.nn.Linear(2 * TIME, TIME)

    def forward(self, x):
        state = torch.zeros_like(x[0])
        for turn in range(len(x) - 1):
            state = torch.tanh(self.cell(torch.cat([x[turn], state], -1)))
        return state


class OneStepAhead(nnx.Module):
    def __init__(self, rngs):
        self.cell = nnx.Linear(2 * TIME, TIME, rngs=rngs)

    def __call__(self, x):
        def step(state, x):
            return jnp.tanh(self.cell(jnp.concatenate([x, state], -1))), None

        return jax.lax.scan(step, jnp.zeros_like(x[0]), x[1:])[0]


def test_steps_that_are_one_ahead_are_named():
    found = causes(Steps, OneStepAhead, lambda rng: (rng.standard_normal((5, 3, TIME)),), modes=("inference",))
    assert found == [("index", "takes the element after the reference's in each call")]


class MeanOfEach(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(TIME, TIME)

    def forward(self, x, group):
        total = torch.zeros(TAGS, TIME, dtype=x.dtype).index_add(0, group, self.fc(x))
        return total / torch.bincount(group, minlength=TAGS).clamp(min=1)[:, None]


class AverageCount(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(TIME, TIME, rngs=rngs)

    def __call__(self, x, group):
        return jax.ops.segment_sum(self.fc(x), group, num_segments=TAGS) / (len(x) / TAGS)


def test_a_count_that_is_the_average_is_named():
    def groups(rng):
        return rng.standard_normal((30, TIME)), np.concatenate([np.arange(TAGS), rng.integers(0, TAGS, 30 - TAGS)])

    found = causes(MeanOfEach, AverageCount, groups, modes=("inference",))
    assert found == [("count", "takes as many for each as there are on average")]


class Largest(torch.nn.Module):
    """The largest of what goes to each node; a node to which nothing goes has none."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 3)

    def forward(self, x, to):
        h, places = self.fc(x), to[:, None].expand(-1, 3)
        return torch.zeros(TAGS, 3, dtype=x.dtype).scatter_reduce(0, places, h, "amax", include_self=False)


class LargestOfNone(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(3, 3, rngs=rngs)

    def __call__(self, x, to):
        return jax.ops.segment_max(self.fc(x), to, num_segments=TAGS)


def test_what_an_empty_group_has_is_named():
    edges = lambda rng: (rng.standard_normal((6, 3)), rng.integers(1, TAGS, 6))  # noqa: E731
    told = "has -inf where nothing goes to a place, and the reference what was there before"
    assert causes(Largest, LargestOfNone, edges) == [("empty-group", told)]


class ByNumpy(torch.nn.Module):
    """Indices that are numpy's, as of what is looked for beside the graph."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(6, 6)

    def forward(self, x):
        h = self.linear(x)
        top = torch.topk(h.abs().mean(0), 2).indices.numpy()
        sparse.append(torch.sparse.check_sparse_tensor_invariants.is_enabled())
        return torch.softmax(h[:, top] / 2, 1)


class PortByNumpy(nnx.Module):
    def __init__(self, rngs):
        self.linear = gm.nn.Linear(6, 6, rngs=rngs)

    def __call__(self, x):
        h = self.linear(x)
        _, top = jax.lax.top_k(jnp.mean(jnp.abs(h), axis=0), 2)
        return jax.nn.softmax(h[:, top] / 2 + 0.1 * x[:, :2] ** 2, axis=1)


sparse = []


def test_causes_are_tried_of_a_reference_that_indexes_by_numpys_arrays():
    case = Case(
        name="c", summary="s", reference=ByNumpy, model=PortByNumpy, inputs=lambda rng: (rng.normal(size=(4, 6)),)
    )
    report = str(check(case, hasty=True))
    assert "not equal" in report.lower()
    assert "were not tried" not in report
    assert any(sparse), "a change of what are indices of a sparse tensor would write outside of its memory"


class Unlike(torch.nn.Module):
    """Each number, and the one before it where its tag is another."""

    def forward(self, x, tags):
        found = [x[0]]
        for t in range(1, TIME):
            terms, before = [x[t]], x[t - 1]
            if tags[t] != tags[t - 1]:
                terms.append(before)
            found.append(torch.stack(terms).sum(0))
        return torch.stack(found)


class Always(nnx.Module):
    def __init__(self, rngs):
        pass

    def __call__(self, x, tags):
        return x + jnp.pad(x, (1, 0))[:-1]


def test_of_what_is_only_not_the_same_no_other_number_is_named():
    apart = {"one tag": lambda rng: (rng.standard_normal(TIME), np.ones(TIME, int))}
    assert not causes(
        Unlike, Always, lambda rng: (rng.standard_normal(TIME), np.arange(0, 3 * TIME, 3)), edge_inputs=apart
    )


class Scaled(torch.nn.Module):
    """Turns, each with a factor of its own."""

    def __init__(self, turns):
        super().__init__()
        self.factors = torch.nn.Parameter(torch.randn(turns))

    def forward(self, x):
        for turn in range(len(self.factors)):
            x = torch.tanh(x * self.factors[turn])
        return x


class ScaledByFirst(nnx.Module):
    def __init__(self, rngs, turns):
        self.factors = nnx.Param(jnp.zeros(turns))

    def __call__(self, x):
        for _ in range(len(self.factors)):
            x = jnp.tanh(x * self.factors[0])
        return x


@pytest.mark.parametrize("turns", [2, 4])
def test_one_element_in_all_turns_is_named(turns):
    found = causes(
        lambda: Scaled(turns), lambda rngs: ScaledByFirst(rngs, turns), lambda rng: (rng.standard_normal(5),)
    )
    assert found == [("index", "takes [0] in every call")]


class Binned(torch.nn.Module):
    """A weight for each stretch between some edges, which the numbers meet."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(TAGS + 1))
        self.register_buffer("edges", torch.arange(1.0, TAGS + 1))

    def forward(self, x):
        return self.weight[torch.bucketize(x, self.edges, right=True)] * x


class BinnedOtherwise(nnx.Module):
    def __init__(self, rngs):
        self.weight, self.edges = nnx.Param(jnp.zeros(TAGS + 1)), nnx.BatchStat(jnp.zeros(TAGS))

    def __call__(self, x):
        return self.weight[...][jnp.digitize(x, self.edges[...], right=True)] * x


def test_the_other_side_of_a_search_is_named():
    found = causes(Binned, BinnedOtherwise, lambda rng: (rng.integers(0, TAGS, (4, TIME)).astype(float),))
    assert found == [("search-side", "searches by side='left', which leaves out what is equal")]


class Sunk(torch.nn.Module):
    """Shares of some scores beside one that takes no part after that."""

    def __init__(self):
        super().__init__()
        self.sink = torch.nn.Parameter(torch.tensor([1.0]))

    def forward(self, x):
        return torch.cat([x, self.sink.expand(len(x), 1)], -1).softmax(-1)[:, :-1]


class SunkTooEarly(nnx.Module):
    def __init__(self, rngs):
        self.sink = nnx.Param(jnp.zeros(1))

    def __call__(self, x):
        return jax.nn.softmax(jnp.concatenate([x, jnp.broadcast_to(self.sink[...], (len(x), 1))], -1)[:, :-1], -1)


def test_a_part_that_is_taken_too_early_is_told_as_it_is_written():
    found = causes(Sunk, SunkTooEarly, lambda rng: (rng.standard_normal((4, TIME)),), modes=("inference",))
    assert ("calls-order", "calls x[...] before softmax, which the reference calls first") in found


class LastOfEach(torch.nn.Module):
    """What the last step of each line gives, of lines that are as long as they are."""

    def __init__(self):
        super().__init__()
        self.cell = torch.nn.Linear(TAGS, TAGS)

    def forward(self, x, lengths):
        steps = torch.tanh(self.cell(x)).cumsum(1)
        return steps[torch.arange(len(x)), lengths - 1]


class OneBeyond(nnx.Module):
    def __init__(self, rngs, gathers):
        self.cell, self.gathers = nn.Linear(TAGS, TAGS, rngs=rngs), gathers

    def __call__(self, x, lengths):
        steps = jnp.cumsum(jnp.tanh(self.cell(x)), axis=1)
        if self.gathers:
            at = jnp.minimum(lengths, TIME - 1)[:, None, None]
            return jnp.take_along_axis(steps, jnp.broadcast_to(at, (len(x), 1, TAGS)), axis=1)[:, 0]
        return steps[jnp.arange(len(x)), lengths]


class LastGathered(LastOfEach):
    def forward(self, x, lengths):
        steps = torch.tanh(self.cell(x)).cumsum(1)
        return steps.gather(1, (lengths - 1)[:, None, None].expand(-1, 1, TAGS))[:, 0]


def lines(rng):
    return rng.standard_normal((6, TIME, TAGS)), np.array([TIME, 1, 3, TIME, 2, 4])


@pytest.mark.parametrize("reference", [LastOfEach, LastGathered])
def test_an_index_one_beyond_which_jax_clips_at_the_end_is_named(reference):
    def port(rngs):
        return OneBeyond(rngs, reference is LastGathered)

    told = causes(reference, port, lines)
    assert {id for id, _ in told} == {"index-offset"}
    assert all(says.startswith("takes the element at i+1 for i, and ") for _, says in told)


class Ranked(torch.nn.Module):
    """Sums of what comes before in the order of size, put back in their places."""

    def put_back(self, sums, order):
        return sums.gather(1, order.argsort(1))

    def forward(self, x):
        order = x.argsort(1)
        return self.put_back(x.gather(1, order).cumsum(1), order) + x


class Scattered(Ranked):
    def put_back(self, sums, order):
        return torch.zeros_like(sums).scatter_(1, order, sums)


class NotPutBack(nnx.Module):
    def __init__(self, rngs):
        del rngs

    def __call__(self, x):
        order = jnp.argsort(x, axis=1)
        sums = jnp.cumsum(jnp.take_along_axis(x, order, axis=1), axis=1)
        return jnp.take_along_axis(sums, order, axis=1) + x


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        (Ranked, "takes by the inverse of the order that the reference takes by"),
        (Scattered, "takes by the order by which the reference puts each back"),
    ],
)
def test_what_is_put_back_by_the_order_itself_is_named(reference, says):
    assert causes(reference, NotPutBack, lambda rng: (rng.standard_normal((4, 6)),)) == [("inverse-order", says)]


class Expected(torch.nn.Module):
    """An expected alignment: by what is left before each."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(6, 6)

    def forward(self, x):
        p = torch.sigmoid(self.fc(x))
        left = torch.cat([torch.ones_like(p[:, :1]), 1 - p[:, :-1]], 1).cumprod(1)
        return p * left * torch.cumsum(x / left, 1)


class DividedAfter(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(6, 6, rngs=rngs)

    def __call__(self, x):
        p = jax.nn.sigmoid(self.fc(x))
        left = jnp.cumprod(jnp.pad(1 - p[:, :-1], ((0, 0), (1, 0)), constant_values=1.0), axis=1)
        return p * left * jnp.cumsum(x, axis=1) / left


def test_a_part_without_elements_is_no_cause():
    """With nothing of it, what it is multiplied by and divided by would be one."""
    ((id, says),) = causes(Expected, DividedAfter, lambda rng: (rng.standard_normal((4, 6)),))
    assert (id, says) == ("calls-order", "calls cumsum before div, which the reference calls first")


class Corrected(torch.nn.Module):
    """Means that start at zero, corrected for it in each turn."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(6, 6)

    def forward(self, x):
        mean = 0.0
        for t in range(3):
            mean = 0.9 * mean + 0.1 * self.fc(x)
            x = x - mean / (1 - 0.9 ** (t + 1))
        return x


class NotCorrected(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(6, 6, rngs=rngs)

    def __call__(self, x):
        mean = 0.0
        for _ in range(3):
            mean = 0.9 * mean + 0.1 * self.fc(x)
            x = x - mean
        return x


def test_a_constant_that_is_another_in_each_turn_is_told_so():
    ((id, says),) = causes(Corrected, NotCorrected, lambda rng: (rng.standard_normal((4, 6)),))
    assert (id, says) == ("scale-missing", "leaves out the constant 0.1, 0.19, 0.271 in turn")
