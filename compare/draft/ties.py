"""Layers that are given another's weight, as the heads of language models are given that of the embedding."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

import torch

from .model import is_self


class Tie(NamedTuple):
    """A linear layer without a bias, whose weight is that of an embedding.

    Attributes:
      key: of its weight in the `state_dict`.
      same_as: of the embedding's.
      holder: the class of the module that holds it.
    """

    key: str
    same_as: str
    holder: type

    @property
    def attribute(self) -> str:
        """The name of the layer in the module that holds it."""
        return self.key.split(".")[-2] if "." in self.key else ""

    @property
    def embedding(self) -> str | None:
        """The embedding as the holder reaches it, with dots; None where it does not, or by number."""
        prefix = ".".join(self.key.split(".")[:-2])
        path = self.same_as.removesuffix(".weight").removeprefix(prefix).lstrip(".")
        is_inside = self.same_as.startswith(prefix) and all(map(str.isidentifier, path.split(".")))
        return path if is_inside else None


def ties_of(module: torch.nn.Module) -> list[Tie]:
    """The heads in a model that share the weight of an embedding."""
    holders: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        holders.setdefault(id(parameter), []).append(name)
    found = []
    for names in holders.values():
        kinds = {name: module.get_submodule(name.rpartition(".")[0]) for name in names if name.endswith("weight")}
        embeddings = [name for name, each in kinds.items() if type(each) is torch.nn.Embedding]
        heads = [name for name, each in kinds.items() if type(each) is torch.nn.Linear and each.bias is None]
        for head in heads if embeddings else []:
            found.append(Tie(head, embeddings[0], type(module.get_submodule(".".join(head.split(".")[:-2])))))
    return found


def heads_in(node: ast.ClassDef, owner: type, ties: list[Tie]) -> dict[str, str]:
    """The heads of a class, by their attribute, and the embedding of each; those that it only calls."""
    found = {
        tie.attribute: f"self.{tie.embedding}" for tie in ties if tie.holder is owner and tie.embedding is not None
    }
    for one in ast.walk(node):
        for target, value in _weights_given(one):
            for head, embedding in ((target, value), (value, target)):
                is_own = isinstance(head, ast.Attribute) and is_self(head.value)
                if is_own and any(tie.attribute == head.attr for tie in ties):  # type: ignore[attr-defined]
                    found[head.attr] = ast.unparse(embedding)  # type: ignore[attr-defined]
    return {name: each for name, each in found.items() if _is_only_called(node, name)}


def is_tie(node: ast.stmt, heads: dict[str, str]) -> bool:
    """Whether a statement ties one of these heads."""
    chains = [each for pair in _weights_given(node) for each in pair]
    return any(isinstance(each, ast.Attribute) and is_self(each.value) and each.attr in heads for each in chains)


def _weights_given(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The layers of `layer.weight = other.weight`."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        both = node.targets[0], node.value
        if all(isinstance(each, ast.Attribute) and each.attr == "weight" for each in both):
            yield both[0].value, both[1].value  # type: ignore[attr-defined]


def _is_only_called(node: ast.ClassDef, name: str) -> bool:
    """Whether a layer of one's own is made, tied, and called with one argument, and otherwise not named."""
    allowed = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and len(each.args) == 1 and not each.keywords:
            allowed.add(id(each.func))
        if isinstance(each, ast.Assign):
            allowed |= {id(target) for target in each.targets}
        for pair in _weights_given(each):
            allowed |= set(map(id, pair))
    uses = (each for each in ast.walk(node) if isinstance(each, ast.Attribute) and each.attr == name)
    return all(id(each) in allowed for each in uses if is_self(each.value))
