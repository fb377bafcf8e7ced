"""Our state and PyTorch's `state_dict` of an optimizer, either made from the other in the midst of a training."""

import copy
import functools
import re
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch
from flax import nnx

import graphmode as gm

from .models import assert_same_weights, gradients, many_steps, pair, stacked, step_torch
from .optimizer_cases import Configuration, in_double, of, stepped

BIAS = r"(^|\.)bias"
LAST = "^second|^square"  # of the matrices that Muon gets


def second_group(reference):
    return BIAS if any(p.ndim != 2 for p in reference.parameters()) else LAST


def groups_of(reference, named=True):
    """Our second group is PyTorch's first."""
    where = second_group(reference)
    first = [(n, p) for n, p in reference.named_parameters() if re.search(where, n)]
    second = [(n, p) for n, p in reference.named_parameters() if not re.search(where, n)]
    if not named:
        first, second = [p for _, p in first], [p for _, p in second]
    return [{"params": first, "lr": 0.007}, {"params": second}]


def names_of(reference, optimizer):
    of = {id(p): n for n, p in reference.named_parameters()}
    return [of[id(p)] for group in optimizer.param_groups for p in group["params"]]


def assert_same_state(ours, theirs):
    """Two state_dicts of PyTorch's."""
    assert ours["state"].keys() == theirs["state"].keys()
    for index, kept in theirs["state"].items():
        kept = {key: value for key, value in kept.items() if value is not None}
        assert ours["state"][index].keys() == kept.keys()
        for key, value in kept.items():
            mine = ours["state"][index][key]
            assert (mine.dtype, mine.shape) == (value.dtype, value.shape)
            torch.testing.assert_close(mine, value, rtol=1e-10, atol=1e-10)
    assert len(ours["param_groups"]) == len(theirs["param_groups"])
    for mine, group in zip(ours["param_groups"], theirs["param_groups"], strict=True):
        assert mine.keys() - {"param_names"} == group.keys() - {"param_names"}
        for key, value in group.items():
            if key != "param_names":
                same = mine[key] == pytest.approx(float(value), rel=1e-12) if key == "lr" else mine[key] == value
                assert same, key


@dataclass
class Crossing:
    """Ten steps on either side, the state carried to the other, and ten more there.

    Attributes:
      ours, theirs: the state of ours and PyTorch's state_dict after ten.
      written, read: made from those.
      port, reference: the port from PyTorch's ten on, and the reference that has made all twenty.
      followed: the reference from our ten on.
      last, expected: the state_dicts after twenty, ours written.
    """

    ours: gm.optim.OptimizerState
    theirs: dict[str, Any]
    written: dict[str, Any]
    read: gm.optim.OptimizerState
    port: nnx.Module
    reference: torch.nn.Module
    followed: torch.nn.Module
    last: dict[str, Any]
    expected: dict[str, Any]


@functools.cache
def crossings(configurations: tuple[Configuration, ...], which: str) -> dict[str, Crossing]:
    with in_double():
        return _crossings(configurations, which)


def _crossings(configurations: tuple[Configuration, ...], which: str) -> dict[str, Crossing]:
    start, port = pair(which)
    rules = [c.ours(groups=[gm.optim.Group(second_group(start), lr=0.007)]) for c in configurations]
    run = many_steps(rules)
    params = nnx.state(port, nnx.Param)
    ours = run([(params, tx.init(params)) for tx in rules], stacked(port, start, range(10)))
    begun, half = [], []
    for configuration, tx in zip(configurations, rules, strict=True):
        reference = copy.deepcopy(start)
        optimizer = configuration.theirs(groups_of(reference))
        for number in range(10):
            step_torch(reference, optimizer, gradients(start, number))
        theirs = copy.deepcopy(optimizer.state_dict())
        gm.weights.load(port, reference.state_dict())
        params = jax.tree.map(jnp.copy, nnx.state(port, nnx.Param))  # the variables are written again for the next
        begun.append((params, gm.optim.from_torch(theirs, tx, port)))
        half.append((reference, optimizer, theirs))
    after = run(begun, stacked(port, start, range(10, 20)))
    found = {}
    for number, (configuration, tx) in enumerate(zip(configurations, rules, strict=True)):
        reference, optimizer, theirs = half[number]
        followed = copy.deepcopy(start)
        nnx.update(port, ours[number][0])
        followed.load_state_dict(gm.weights.to_state_dict(port))
        follower = configuration.theirs(groups_of(followed, named=False))
        written = gm.optim.to_torch(ours[number][1], tx, port, names=names_of(followed, follower))
        follower.load_state_dict(copy.deepcopy(written))  # which steps on in the very tensors that it was given
        for step in range(10, 20):
            step_torch(reference, optimizer, gradients(start, step))
            step_torch(followed, follower, gradients(start, step))
        ended = nnx.clone(port)
        nnx.update(ended, after[number][0])
        last = gm.optim.to_torch(after[number][1], tx, port, names=names_of(reference, optimizer))
        found[configuration.id] = Crossing(
            ours[number][1], theirs, written, begun[number][1], ended, reference, followed, last, optimizer.state_dict()
        )
    return found


FULL = tuple(c for c in stepped() if c.id in ("NAdam: decoupled_weight_decay", "Adafactor: maximize"))


@pytest.mark.parametrize(
    ("configuration", "which"),
    [(c, "matrices" if c.optimizer == "Muon" else "small") for c in stepped()] + [(c, "all") for c in FULL],
    ids=lambda value: value if isinstance(value, str) else value.id,
)
def test_ten_steps_here_and_ten_there_are_twenty(configuration, which):
    crossing = crossings(FULL if which == "all" else of(configuration.optimizer), which)[configuration.id]
    assert_same_state(crossing.written, crossing.theirs)
    assert_same_state(crossing.last, crossing.expected)
    assert jax.tree.structure(crossing.read) == jax.tree.structure(crossing.ours)
    for read, ours in zip(jax.tree.leaves(crossing.read), jax.tree.leaves(crossing.ours), strict=True):
        assert (read.dtype, read.shape) == (ours.dtype, ours.shape)
    if configuration.optimizer == "Muon":  # its directions are rounded to bfloat16 on the way: the state tells
        return
    assert_same_weights(crossing.port, crossing.reference)
    for ours, theirs in zip(crossing.followed.parameters(), crossing.reference.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def adam_state(**more):
    """After one step: the reference's state_dict, its names, and the port."""
    reference, port = pair(dtype="float32")
    optimizer = torch.optim.Adam(reference.parameters(), **more)
    step_torch(reference, optimizer, gradients(reference, 0))
    return optimizer.state_dict(), [name for name, _ in reference.named_parameters()], port


def test_without_names_the_order_is_asked_for():
    theirs, names, port = adam_state()
    tx = gm.optim.adam()
    with pytest.raises(ValueError, match="names is None: give names="):
        gm.optim.from_torch(theirs, tx, port)
    state = gm.optim.from_torch(theirs, tx, port, names=names, count=7)
    assert state.count == 7
    assert list(state.step) == [1, 1, 1]
    with pytest.raises(ValueError, match="names is None, and PyTorch numbers"):
        gm.optim.to_torch(state, tx, port)


def test_all_that_is_wrong_is_told_at_once():
    theirs, names, port = adam_state(eps=1e-6)
    theirs["state"][0]["exp_avg"] = torch.zeros(3)
    theirs["state"][1].pop("exp_avg_sq")
    with pytest.raises(ValueError, match="the state_dict is not one of this Adam") as raised:
        gm.optim.from_torch(theirs, gm.optim.adam(betas=(0.5, 0.6)), port, names=[*names[:2], "nope"])
    for told in (
        "nope: unknown",
        "head.weight: missing",
        "conv.weight: exp_avg has shape (3,), and (4, 2, 3, 2) was wanted",
        "conv.bias: state_dict keeps exp_avg, step",
        "betas: param_groups[0] has (0.9, 0.999), and ours is (0.5, 0.6)",
        "eps: param_groups[0] has 1e-06",
    ):
        assert told in str(raised.value)


def test_the_state_of_another_optimizer_is_refused():
    theirs, names, port = adam_state()
    with pytest.raises(ValueError, match=r"conv\.weight: state_dict keeps exp_avg, exp_avg_sq, step, and SGD momentum"):
        gm.optim.from_torch(theirs, gm.optim.sgd(momentum=0.9), port, names=names)
    with pytest.raises(TypeError, match="state is a tuple"):
        gm.optim.to_torch((), gm.optim.sgd(), port, names=names)
    for count, told in {-1: "; give the number of updates", 2.5: ", and an integer", "3": ", and an integer"}.items():
        with pytest.raises((ValueError, TypeError), match=f"count is {count!r}{told}"):
            gm.optim.from_torch(theirs, gm.optim.adam(), port, names=names, count=count)
    state = gm.optim.sgd().init(nnx.state(port, nnx.Param))
    with pytest.raises(ValueError, match=r"conv\.weight: state has nothing, and Adam keeps exp_avg"):
        gm.optim.to_torch(state, gm.optim.adam(), port, names=names)


def test_names_back_and_forth_between_groups_are_refused():
    _, names, port = adam_state()
    tx = gm.optim.adam(groups=[gm.optim.Group("bias", lr=0.1)])
    with pytest.raises(ValueError, match="names go back and forth between groups"):
        gm.optim.to_torch(tx.init(nnx.state(port, nnx.Param)), tx, port, names=names)
