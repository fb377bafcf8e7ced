"""Containers against PyTorch's: names in the state_dict, what lists and dictionaries do, life in a graph."""

from __future__ import annotations

from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from graphmode import nn
from graphmode.weights import load, to_state_dict


def linear(ins: int = 3, outs: int = 3) -> nn.Linear:
    return nn.Linear(ins, outs, rngs=nnx.Rngs(0))


class Port(nn.Layer):
    def __init__(self):
        self.body = nn.Sequential(linear(3, 4), nn.ReLU(), nn.Sequential(OrderedDict(z=linear(4, 5), a=linear(5, 3))))
        self.more = nn.ModuleList([nn.ModuleDict({"left": linear(), "a": linear()}) for _ in range(11)])
        self.scales = nn.ParameterList([jnp.ones(3), jnp.ones((2, 3))])
        self.shifts = nn.ParameterDict({"z": jnp.ones(3), "b": jnp.ones((1, 3))})

    def __call__(self, x):
        x = self.body(x)
        for i, block in enumerate(self.more):
            x = block["a"](block["left"](x)) / (i + 1)
        return x * self.scales[0][...] + self.shifts["z"][...] + self.scales[1][...].sum() * self.shifts["b"][...]


class Original(torch.nn.Module):
    def __init__(self):
        super().__init__()
        of = torch.nn
        inner = of.Sequential(OrderedDict(z=of.Linear(4, 5), a=of.Linear(5, 3)))
        self.body = of.Sequential(of.Linear(3, 4), of.ReLU(), inner)
        self.more = of.ModuleList([of.ModuleDict({"left": of.Linear(3, 3), "a": of.Linear(3, 3)}) for _ in range(11)])
        self.scales = of.ParameterList([torch.randn(3), torch.randn(2, 3)])
        self.shifts = of.ParameterDict({"z": torch.randn(3), "b": torch.randn(1, 3)})

    def forward(self, x):
        x = self.body(x)
        for i, block in enumerate(self.more):
            x = block["a"](block["left"](x)) / (i + 1)
        return x * self.scales[0] + self.shifts["z"] + self.scales[1].sum() * self.shifts["b"]


def test_nested_containers_load_by_name_and_keep_their_order():
    torch.manual_seed(0)
    original, port = Original(), Port()
    load(port, original.state_dict())
    back = to_state_dict(port)
    assert back.keys() == original.state_dict().keys()
    for name, tensor in original.state_dict().items():
        assert torch.equal(back[name], tensor)
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    expected = original(torch.tensor(x)).detach()
    merged = nnx.merge(*nnx.split(port))
    for module in (port, merged, nnx.clone(port), jax.tree.map(lambda a: a, port)):
        np.testing.assert_allclose(module(jnp.asarray(x)), expected, rtol=1e-5, atol=1e-5)
    compiled = jax.jit(lambda module, x: module(x))(port, jnp.asarray(x))
    np.testing.assert_allclose(compiled, expected, rtol=1e-5, atol=1e-5)


def same(ours, theirs) -> None:
    """Names, number and the sizes of the linear layers in their order."""
    assert len(ours) == len(theirs)
    assert [m.out_features for m in ours] == [m.out_features for m in theirs]
    names = {name: tuple(value.shape) for name, value in to_state_dict(ours, framework="numpy").items()}
    assert names == {name: tuple(tensor.shape) for name, tensor in theirs.state_dict().items()}


def changed(change, of: str) -> None:
    """One change of a container of four layers, on both sides."""
    ours = getattr(nn, of)(*_as_given(of, [linear(1, i) for i in range(1, 5)]))
    theirs = getattr(torch.nn, of)(*_as_given(of, [torch.nn.Linear(1, i) for i in range(1, 5)]))
    same(change(ours, linear) or ours, change(theirs, torch.nn.Linear) or theirs)


def _as_given(of: str, layers: list) -> list:
    return layers if of == "Sequential" else [layers]


def _replace(c, make):
    c[-2] = make(1, 9)


def _delete(c, make):
    del c[1]


def _delete_slice(c, make):
    del c[::2]


def _insert(c, make):
    c.insert(1, make(1, 9))


def _insert_from_the_end(c, make):
    c.insert(-1, make(1, 9))


def _pop(c, make):
    assert c.pop(2).out_features == 3


CHANGES = {
    "slice": lambda c, make: c[1:],
    "slice with a step": lambda c, make: c[::-2],
    "replace": _replace,
    "delete": _delete,
    "delete slice": _delete_slice,
    "insert": _insert,
    "pop": _pop,
    "append": lambda c, make: c.append(make(1, 7)),
    "extend": lambda c, make: c.extend([make(1, 7), make(1, 8)]),
    "add": lambda c, make: c + c,
}


@pytest.mark.parametrize("of", ["Sequential", "ModuleList"])
@pytest.mark.parametrize("name", CHANGES)
def test_changes_of_lists(name, of):
    changed(CHANGES[name], of)


SEQUENTIAL_CHANGES = {
    "times": lambda c, make: c * 2,
    "times from the left": lambda c, make: 2 * c,
    "times in place": lambda c, make: c.__imul__(3),
    "add in place": lambda c, make: c.__iadd__(c[:2]),
    "insert from the end": _insert_from_the_end,
}


@pytest.mark.parametrize("name", SEQUENTIAL_CHANGES)
def test_changes_of_a_sequential(name):
    changed(SEQUENTIAL_CHANGES[name], "Sequential")


def test_named_sequentials_keep_names_in_slices_and_lose_them_on_deletion():
    layers = [("stem", 2), ("head", 3), ("a", 4)]
    ours = nn.Sequential(OrderedDict((name, linear(1, size)) for name, size in layers))
    theirs = torch.nn.Sequential(OrderedDict((name, torch.nn.Linear(1, size)) for name, size in layers))
    same(ours[1:], theirs[1:])
    assert ours[1] is ours.head
    del ours[0], theirs[0]
    same(ours, theirs)
    ours = nn.Sequential(OrderedDict(stem=linear()))
    with pytest.raises(ValueError, match="insert wants them numbered"):
        ours.insert(0, linear())


def test_modules_are_added_under_names_and_called_in_their_order():
    ours, theirs = nn.Sequential(), torch.nn.Sequential()
    for name, ins, outs in (("z", 3, 4), ("a", 4, 2)):
        ours.add_module(name, linear(ins, outs))
        theirs.add_module(name, torch.nn.Linear(ins, outs))
    load(ours, theirs.state_dict())
    x = torch.randn(5, 3)
    np.testing.assert_allclose(ours(x.numpy()), theirs(x).detach(), atol=1e-6)
    with pytest.raises(ValueError, match=r"the name 'a\.b' is empty or has a dot"):
        ours.add_module("a.b", linear())
    with pytest.raises(TypeError, match="member 'f' is"):
        ours.add_module("f", jnp.tanh)


def test_one_value_is_handed_on_as_it_is():
    assert nn.Sequential()(5) == 5
    pair = (jnp.ones(2), jnp.zeros(2))
    assert nn.Sequential(nn.Identity(), nn.Identity())(pair) is pair


def test_a_module_that_is_there_twice_is_one():
    layer = linear()
    twice = nn.Sequential(layer, layer)
    merged = nnx.merge(*nnx.split(twice))
    assert merged[0] is merged[1]
    assert list(to_state_dict(twice, framework="numpy")) == ["0.bias", "0.weight", "1.bias", "1.weight"]


def test_training_mode_reaches_the_members():
    model = nn.Sequential(nn.ModuleList([nn.BatchNorm2d(3)])[0])
    model.eval()
    assert model[0].use_running_average
    model.train()
    assert not model[0].use_running_average


def test_dictionaries_of_modules():
    layers = nn.ModuleDict([("z", linear(1, 2)), ("a", linear(1, 3))])
    assert list(layers) == list(layers.keys()) == ["z", "a"]
    assert [m.out_features for m in layers.values()] == [2, 3]
    assert "z" in layers
    layers["z"] = linear(1, 5)
    layers.update({"b": linear(1, 4)})
    assert [(name, m.out_features) for name, m in layers.items()] == [("z", 5), ("a", 3), ("b", 4)]
    assert layers.pop("a").out_features == 3
    assert len(layers) == 2
    layers.clear()
    assert not len(layers)


def test_lists_and_dictionaries_of_parameters():
    values = nn.ParameterList([jnp.ones(3), 5, nnx.Param(jnp.zeros(2))])
    assert isinstance(values[0], nnx.Param)
    assert values[1] == 5
    values[1] = np.ones(4, np.float32)
    values += [jnp.ones(1)]
    assert list(to_state_dict(values, framework="numpy")) == ["0", "1", "2", "3"]
    assert [len(v) for v in values[1:3]] == [4, 2]
    for mapping in ({"z": 1, "a": 2}, OrderedDict(z=1, a=2), [("z", 1), ("a", 2)]):
        ours, theirs = nn.ParameterDict(mapping), torch.nn.ParameterDict(mapping)
        assert list(ours) == list(theirs)
        assert list(reversed(ours)) == list(reversed(theirs))
        assert ours.popitem() == theirs.popitem()
        assert ours.setdefault("new", 7) == theirs.setdefault("new", 7)
        assert ours.get("gone") is theirs.get("gone")
        assert list((ours | nn.ParameterDict({"b": 0})).items()) == list(
            (theirs | torch.nn.ParameterDict({"b": 0})).items()
        )
        assert list(ours.fromkeys(["x", "y"], 1).items()) == list(theirs.fromkeys(["x", "y"], 1).items())


REFUSED = {
    "relu; give an nnx.Module": (TypeError, lambda: nn.Sequential(jax.nn.relu)),
    "member '0' is int": (TypeError, lambda: nn.ModuleList([3])),
    "an attribute of ModuleDict": (ValueError, lambda: nn.ModuleDict({"train": nn.ReLU()})),
    "has a dot": (ValueError, lambda: nn.ModuleDict({"a.b": nn.ReLU()})),
    "is empty": (ValueError, lambda: nn.Sequential(OrderedDict({"": nn.ReLU()}))),
    "give a string": (TypeError, lambda: nn.ModuleDict([(3, nn.ReLU())])),
    "entry 0 has length 1": (ValueError, lambda: nn.ModuleDict([(nn.ReLU(),)])),
    "members is int": (TypeError, lambda: nn.ModuleDict(3)),
    "members is Param": (TypeError, lambda: nn.ParameterList(nnx.Param(jnp.ones(3)))),
    "index 2 is out of range": (IndexError, lambda: nn.ModuleList([nn.ReLU(), nn.ReLU()])[2]),
    "index 3 is out": (IndexError, lambda: nn.Sequential(nn.ReLU()).insert(3, nn.ReLU())),
    "gone": (KeyError, lambda: nn.ModuleDict()["gone"]),
    "do not add": (ValueError, lambda: nn.Sequential().__add__([nn.ReLU()])),
    "give 1 or more": (ValueError, lambda: nn.Sequential() * 0),
    "give an integer": (TypeError, lambda: nn.Sequential() * 1.5),
    r"1 \(Linear\): input has shape": (ValueError, lambda: nn.Sequential(linear(3, 4), linear())(jnp.ones((2, 3)))),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused_names_the_member(message):
    error, call = REFUSED[message]
    with pytest.raises(error, match=message):
        call()
