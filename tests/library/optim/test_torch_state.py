"""Our state and PyTorch's `state_dict` of an optimizer, either made from the other in the midst of a training."""

import copy
import re

import jax
import numpy as np
import pytest
import torch
from flax import nnx

import graphmode as gm

from .models import assert_same_weights, gradients, in_layout, pair, step_torch, stepper
from .optimizer_cases import in_double, stepped

BIAS = r"(^|\.)bias"


def groups_of(configuration, reference, named=True):
    """Biases first, with a learning rate of their own."""
    of = list(reference.named_parameters())
    biases = [(n, p) for n, p in of if re.search(BIAS, n)]
    others = [(n, p) for n, p in of if not re.search(BIAS, n)]
    if configuration.optimizer == "Muon":
        biases, others = others[1:], others[:1]
    both = [{"params": biases, "lr": 0.007}, {"params": others}]
    if named:
        return both
    return [{**group, "params": [p for _, p in group["params"]]} for group in both]


def our_group(configuration):
    return gm.optim.Group("^second|^square" if configuration.optimizer == "Muon" else BIAS, lr=0.007)


def names_of(reference, optimizer):
    of = {id(p): n for n, p in reference.named_parameters()}
    return [of[id(p)] for group in optimizer.param_groups for p in group["params"]]


def run_ours(port, tx, state, reference, steps):
    params, step = nnx.state(port, nnx.Param), stepper(tx)
    for number in steps:
        params, state = step(params, state, in_layout(port, gradients(reference, number)))
    nnx.update(port, params)
    return state


def assert_same_state(ours, theirs, skip=()):
    """Two state_dicts of PyTorch's."""
    assert ours["state"].keys() == theirs["state"].keys()
    for index, kept in theirs["state"].items():
        kept = {key: value for key, value in kept.items() if value is not None}
        assert ours["state"][index].keys() == kept.keys()
        for key, value in kept.items():
            mine = ours["state"][index][key]
            assert mine.dtype == value.dtype
            assert mine.shape == value.shape
            if key not in skip:
                torch.testing.assert_close(mine, value, rtol=1e-10, atol=1e-10)
    assert len(ours["param_groups"]) == len(theirs["param_groups"])
    for mine, group in zip(ours["param_groups"], theirs["param_groups"], strict=True):
        assert (
            mine == pytest.approx({"param_names": mine["param_names"], **group}, abs=0) or mine.keys() >= group.keys()
        )
        assert mine["params"] == group["params"]


# Muon's directions are computed in bfloat16: the same to a rounding of its own, and the momentum exactly the same
def tolerance(configuration):
    return 2e-2 * 20 * 0.01 if configuration.optimizer == "Muon" else 1e-10


@pytest.mark.parametrize("configuration", stepped(), ids=lambda c: c.id)
def test_ten_steps_here_and_ten_there_are_twenty(configuration):
    with in_double():
        reference, port = pair(matrices=configuration.optimizer == "Muon")
        other, other_port = copy.deepcopy(reference), nnx.clone(port)
        optimizer = configuration.theirs(groups_of(configuration, reference))
        tx = configuration.ours(groups=[our_group(configuration)])
        ours = run_ours(other_port, tx, tx.init(nnx.state(other_port, nnx.Param)), reference, range(10))
        for number in range(10):
            step_torch(reference, optimizer, gradients(reference, number))
        carried = gm.optim.from_torch(optimizer.state_dict(), tx, port)
        gm.weights.load(port, reference.state_dict())
        other.load_state_dict(gm.weights.to_state_dict(other_port))
        other_optimizer = configuration.theirs(groups_of(configuration, other, named=False))
        written = gm.optim.to_torch(ours, tx, other_port, names=names_of(other, other_optimizer))
        assert_same_state(written, optimizer.state_dict())
        other_optimizer.load_state_dict(written)
        back = gm.optim.from_torch(written, tx, port)
        assert jax.tree.structure(back) == jax.tree.structure(ours)
        # SGD and Muon keep no numbers of steps in PyTorch
        for mine, kept in zip(jax.tree.leaves(back[1:]), jax.tree.leaves(ours[1:]), strict=True):
            assert mine.dtype == kept.dtype
            if tx.rule.counts:
                np.testing.assert_array_equal(mine, kept)
        for number in range(10, 20):
            step_torch(reference, optimizer, gradients(reference, number))
            step_torch(other, other_optimizer, gradients(reference, number))
        carried = run_ours(port, tx, carried, reference, range(10, 20))
        assert_same_weights(port, reference, tolerance(configuration))
        assert_same_weights(other_port, other, np.inf) or assert_same_weights(port, other, tolerance(configuration))
        last = gm.optim.to_torch(carried, tx, port, names=names_of(reference, optimizer))
        assert_same_state(last, optimizer.state_dict())
