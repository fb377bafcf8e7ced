"""Tensors that are tied in PyTorch and apart in the port are told; what only shares a buffer is not."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

import graphmode as gm
from graphmode.weights import Tied, load, read


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(5, 4)
        self.head = torch.nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight


class Apart(nnx.Module):
    def __init__(self):
        self.embed = gm.nn.Embedding(5, 4, rngs=nnx.Rngs(0))
        self.head = gm.nn.Linear(4, 5, bias=False, rngs=nnx.Rngs(0))


def from_file(folder):
    torch.save(Reference().state_dict(), folder / "w.pt")
    return read(folder / "w.pt")


@pytest.mark.parametrize("weights", [lambda _: Reference().state_dict(), from_file], ids=["module", "file"])
def test_a_lost_tie_is_told_with_both_names(tmp_path, weights):
    with pytest.warns(UserWarning, match="head.weight is embed.weight .*give the port one variable") as told:
        load(Apart(), weights(tmp_path))
    assert len(told) == 1
    assert told[0].filename == __file__


def tied() -> nnx.Module:
    module = nnx.Dict(embed=gm.nn.Embedding(5, 4, rngs=nnx.Rngs(0)), head=nnx.Dict())
    module["head"]["weight"] = module["embed"].weight
    return module


def rows(*keys) -> nnx.Dict:
    return nnx.Dict({key: nnx.Param(jnp.zeros((2, 2))) for key in keys})


def flat() -> dict[str, torch.Tensor]:
    buffer = torch.arange(8.0)
    return {"a": buffer[:4].view(2, 2), "b": buffer[4:].view(2, 2), "c": buffer[:4].view(2, 2).T}


def constants() -> nnx.Dict:
    return nnx.Dict({key: nnx.Variable(jnp.zeros(2)) for key in "ab"})


mask = torch.ones(2)
NO_TIES = {
    "tied in the port": (tied, lambda: Reference().state_dict(), []),
    "tied by a rule": (
        lambda: nnx.Dict(embed=gm.nn.Embedding(5, 4, rngs=nnx.Rngs(0))),
        lambda: Reference().state_dict(),
        [Tied("head.weight", "embed.weight")],
    ),
    "equal, and tensors of their own": (lambda: rows("a", "b"), lambda: {k: torch.ones(2, 2) for k in "ab"}, []),
    "parts and views of one buffer": (lambda: rows("a", "b", "c"), flat, []),
    "a buffer that is not trained": (constants, lambda: {"a": mask, "b": mask}, []),
    "empty": (
        lambda: nnx.Dict({key: nnx.Param(jnp.zeros(0)) for key in "ab"}),
        lambda: dict.fromkeys("ab", np.zeros(0, np.float32)),
        [],
    ),
    "a recurrent layer": (
        lambda: gm.nn.LSTM(3, 4, num_layers=2, rngs=nnx.Rngs(0)),
        lambda: torch.nn.LSTM(3, 4, num_layers=2).state_dict(),
        [],
    ),
}


@pytest.mark.parametrize(("port", "state_dict", "rules"), NO_TIES.values(), ids=NO_TIES)
def test_no_tie_is_seen_where_none_is_lost(port, state_dict, rules):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(port(), state_dict(), rules)
