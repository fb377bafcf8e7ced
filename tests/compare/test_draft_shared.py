"""Drafts of models whose parameters are tied by what a draft does not read."""

import torch
from graphmode.compare.draft.shared import shares_of, with_shares


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Linear(3, 3)


class Shared(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(5, 3)
        self.blocks = torch.nn.ModuleList([Block(), Block()])
        self.ends = torch.nn.ModuleDict({"in": torch.nn.Embedding(5, 3), "out": torch.nn.Linear(3, 5)})
        self.again = self.table  # one module at two places, which code says
        self.blocks[1].mix.bias = self.blocks[0].mix.bias
        self.ends["in"].weight = self.ends["out"].weight = self.table.weight


WRITTEN = """class Shared(nnx.Module):
    def __init__(self, *, rngs):
        self.table = nn.Embedding(5, 3, rngs=rngs)

    def __call__(self, x):
        return x"""


def test_what_is_one_tensor_is_tied_where_both_are_reached():
    shares = shares_of(Shared(), {Shared, Block})
    assert all(each.holder is Shared for each in shares)
    made = with_shares(WRITTEN, shares).splitlines()
    assert made[:3] + made[-3:] == WRITTEN.splitlines()
    assert made[3:-3] == [
        "        self.ends['in'].weight = self.table.weight",
        (
            "        # TODO the original ties self.ends['out'].weight to self.table.weight, which are laid out "
            "otherwise here: use one of the two in both places"
        ),
        "        self.blocks[1].mix.bias = self.blocks[0].mix.bias",
    ]


def test_what_a_class_ties_by_itself_is_left():
    (share,) = (each for each in shares_of(Shared(), {Shared}) if each.fits and "ends" in each.target)
    text = WRITTEN.replace("\n\n", "\n        table = self.table\n        self.ends['in'].weight = table.weight\n\n")
    assert with_shares(text, [share]) == text
    assert with_shares("class Shared(nnx.Module):\n    size = 3", [share]) == "class Shared(nnx.Module):\n    size = 3"


def test_where_no_module_around_both_is_drafted_nothing_is_said():
    assert shares_of(Shared(), {Block}) == []
