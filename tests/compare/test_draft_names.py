"""`graphmode draft` of a model in several files, and of what packages of layers do: names, calls and layouts."""

from dataclasses import replace

import pytest
from graphmode.compare import check
from graphmode.compare.draft import draft
from graphmode.compare.locate import locate

ENCODER = """
from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F

SCALES = {"a": nn.ReLU, "b": nn.Tanh}


def norm(x):
    return F.layer_norm(x, x.shape[-1:])


def apply_to_all(function, module, depth=0):
    for child in module.children():
        apply_to_all(function=function, module=child, depth=depth + 1)
    function(module)


class Gate(nn.Module):
    def __init__(self, n, bias=True, round_fn=round, device=None, dtype=None):
        dd = {"device": device, "dtype": dtype}
        super().__init__()
        n = round_fn(n)
        self.fc = nn.Linear(n, n, bias, **dd)

    def forward(self, x):
        return x * self.fc(x).sigmoid()


_GATE = partial(Gate, bias=False)


class Block(nn.Module):
    def __init__(self, n, device=None, dtype=None):
        factory_kwargs = {"device": device, "dtype": dtype}
        super().__init__()
        self.fc = nn.Linear(n, n, **factory_kwargs)
        self.act = SCALES["a"]()
        self.gate = _GATE(n, **factory_kwargs)
        self.register_buffer("mean", torch.zeros(n, **factory_kwargs))
        apply_to_all(lambda module: None, self)

    def forward(self, x):
# left of everything
        x = self.gate(norm(self.act(self.fc(x))))
        if self.training:
            self.mean.copy_(
                self.mean * 0.9 +
                x.mean(0).detach() * 0.1)
        return x - self.mean
"""
DECODER = """
import torch.nn as nn

SCALES = {"a": nn.Sigmoid, "b": nn.Tanh}


def norm(x):
    return x / x.norm(dim=-1, keepdim=True)


class Block(nn.Module):
    def __init__(self, n):
        super(Block, self).__init__()
        self.fc = nn.Linear(n, n, bias=False)
        self.act = SCALES["a"]()

    def forward(self, x):
        return norm(self.act(self.fc(x)) + 1)
"""
NETWORK = """
import decoding
import torch.nn as nn
from decoding import Block as DecoderBlock
from encoding import Block


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = Block(6)
        self.b = DecoderBlock(6)
        self.c = decoding.Block(6)

    def forward(self, x):
        return decoding.norm(self.c(self.b(self.a(x))))
"""


@pytest.fixture
def network(tmp_path, monkeypatch):
    for name, text in (("encoding", ENCODER), ("decoding", DECODER), ("network", NETWORK)):
        (tmp_path / f"{name}.py").write_text(text.lstrip())
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / "network.py"


def test_what_has_one_name_in_two_files_has_two_in_a_draft(network):
    made = draft(f"{network}:Net", ("3,6",))
    assert not made.notes, made.text
    assert sorted(made.classes) == ["Block", "DecodingBlock", "Gate", "Net"]
    for line in ("class DecodingBlock(nnx.Module)", "self.b = DecodingBlock(6, rngs=rngs)", "ENCODING_SCALES = {"):
        assert line in made.text, made.text
    path = network.with_name("network_port.py")
    path.write_text(made.text)
    report = check(replace(locate(f"{path}:CASE"), adversarial=("few values",)), draws=1)
    assert report.passed, f"{report}\n{made.text}"
