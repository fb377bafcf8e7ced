"""Inputs with ties, where the reference sorts: asked where no order of theirs is in the answer, else left out."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from graphmode.compare.parity.adversarial.ties import ORDERS, Reordered, TiesNoted

TIED = torch.tensor([[2.0, 1.0, 2.0, 0.0, 1.0], [3.0, 3.0, 3.0, 0.0, 0.0]])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("ordered", "dim"),
    [
        (lambda x: torch.sort(x), 1),
        (lambda x: x.sort(0, descending=True), 0),
        (lambda x: torch.sort(input=x, dim=0), 0),
        (lambda x: x.topk(2), 1),
        (lambda x: torch.topk(x, 1, 0, largest=False), 0),
        (lambda x: torch.kthvalue(x, 2, 1, keepdim=True), 1),
        (lambda x: x.median(dim=1, keepdim=True), 1),
        (lambda x: torch.mode(x, 0, True), 0),
    ],
)
def test_another_order_is_one_that_the_operation_might_have_given(ordered, dim, order):
    usual = ordered(TIED)
    with Reordered(order):
        other = ordered(TIED)
    assert type(other) is type(usual)
    assert torch.equal(other.values, usual.values)
    assert torch.equal(torch.gather(TIED, dim, other.indices), usual.values)


def test_ties_do_come_otherwise_and_nothing_else_does():
    usual = TIED.argsort()
    with Reordered(ORDERS[0]):
        other, stable = TIED.argsort(), TIED.argsort(stable=True)
        distinct = torch.tensor([3.0, 1.0, 2.0]).argsort()
        whole, values = TIED.median(), torch.msort(TIED)
        number = torch.tensor(1.0).sort().values
    assert not torch.equal(other, usual)
    assert torch.equal(torch.gather(TIED, 1, other), torch.gather(TIED, 1, usual))
    assert torch.equal(stable, TIED.argsort(stable=True))
    assert distinct.tolist() == [1, 2, 0]
    assert whole == TIED.median()
    assert torch.equal(values, torch.msort(TIED))
    assert number == 1


def test_only_ties_are_noted():
    with TiesNoted() as ties:
        torch.tensor([3.0, 1.0, 2.0]).sort()
        TIED.sort(stable=True)
    assert not ties.why
    with ties:
        TIED.topk(1)
    assert ties.why == ["topk promises no order among ties"]


class Sorted(torch.nn.Module):
    """Sorts values, which have no order among equal ones; its gate decides at 1, which ties meet."""

    def forward(self, x):
        return torch.sort(x, dim=1).values, x * (x > 1)


class Ranked(torch.nn.Module):
    def forward(self, x):
        return torch.sort(x, dim=1).indices.float(), x * (x > 1)


class SortedPort(nnx.Module):
    def __init__(self, gate):
        self.gate = gate

    def __call__(self, x):
        return jnp.sort(x, 1), x * self.gate(x, 1)


class RankedPort(nnx.Module):
    def __call__(self, x):
        return jnp.flip(jnp.argsort(-x, axis=1), 1).astype(x.dtype), x * (x > 1)


def case(reference, port):
    return Case(
        name="ties",
        summary="what is sorted, and has ties on some of the check's own inputs",
        reference=reference,
        model=lambda rngs: port(),
        inputs=lambda rng: (rng.standard_normal((4, 6)).astype(np.float32),),
        modes=("inference",),
        adversarial=("ties",),
    )


def test_ties_are_asked_where_no_order_of_theirs_is_in_the_answer():
    right = check(case(Sorted, lambda: SortedPort(jnp.greater)), draws=1)
    assert right.passed, str(right)
    assert "ties" in right.parity[0].inputs
    wrong = check(case(Sorted, lambda: SortedPort(jnp.greater_equal)), draws=1, hasty=True)
    assert not wrong.equal
    assert {tensor.input for parity in wrong.parity for tensor in parity.tensors if not tensor.equal} == {"ties"}


def test_ties_are_left_out_where_their_order_is_the_answer():
    ranked = check(case(Ranked, RankedPort), draws=1)
    assert ranked.passed, str(ranked)
    assert "ties" not in ranked.parity[0].inputs
    assert any("the reference's sort promises no order among ties" in note for note in ranked.parity[0].notes)


def test_what_topk_takes_of_equal_elements_is_another_in_some_order():
    x = torch.tensor([0.0, -0.3, 0.8, -0.1, 0.3, -0.5, 0.0])
    taken = set()
    for order in ORDERS:
        with Reordered(order):
            taken.add(tuple(sorted(x.topk(3, dim=0)[1].tolist())))
    assert taken == {(0, 2, 4), (2, 4, 6)}
