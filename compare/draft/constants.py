"""What a file keeps under a name, and a port has of its own: containers of code, modules, tensors."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from importlib.util import resolve_name
from types import ModuleType

import torch

from .huggingface import gives_activation
from .model import Model
from .names import Scope
from .spans import Spans
from .translator import Translator


def constants(model: Model) -> tuple[list[str], list[str]]:
    """The statements that make them: of those that name nothing of the port, and of the others."""
    made: dict[str, tuple[int, str]] = {}
    while left := [name for name in model.constants if name not in made]:
        made[left[0]] = _made(left[0], model)
    texts = dict(sorted(made.items(), key=lambda each: each[1][0]))
    drafted = {*model.classes.values(), *model.functions.values()}
    behind: set[str] = set()
    while new := {name for name, (_, text) in texts.items() if _names(text, drafted | behind)} - behind:
        behind |= new
    order = _in_order({name: text for name, (_, text) in texts.items()})
    return (
        [texts[name][1] for name in order if name not in behind],
        [texts[name][1] for name in order if name in behind],
    )


def _made(name: str, model: Model) -> tuple[int, str]:
    """The line on which it is made, and the statement that makes it in the port."""
    before = model.origins.get(name, name)
    module, own = _origin(sys.modules[model.constants[name]], before)
    try:
        source = inspect.getsource(module)
    except (OSError, TypeError):
        source = ""
    node = _assignment(own, ast.parse(source))
    if node is None or node.value is None:
        note = f"# TODO {name} runs PyTorch, and is taken from the original: write it anew here"
        return 0, f"{note}\nfrom {model.constants[name]} import {before}{f' as {name}' * (before != name)}"
    model.home = module.__name__
    translator = Translator(model, Spans(source, module.__file__ or ""), Scope(vars(module)))
    found = getattr(module, own)
    if gives_activation(node.value, translator.scope) and isinstance(found, torch.nn.Module):
        return node.lineno, f"{name} = {translator.class_to_call(type(found))}()"
    return node.lineno, _written(name, own, node, translator, module)


def _origin(module: ModuleType, name: str) -> tuple[ModuleType, str]:
    """The file that gives a name its value, from which others import it, and the name there."""
    try:
        statements = ast.parse(inspect.getsource(module)).body
    except (OSError, TypeError):
        statements = []
    for node in (each for each in statements if isinstance(each, ast.ImportFrom)):
        for each in node.names:
            if name == (each.asname or each.name):
                place = resolve_name("." * node.level + (node.module or ""), module.__package__ or "")
                if place in sys.modules and hasattr(sys.modules[place], "__file__"):
                    return _origin(sys.modules[place], each.name)
    return module, name


def _names(text: str, names: set[str]) -> bool:
    return any(re.search(rf"\b{each}\b", text.partition("=")[2]) for each in names)


def _in_order(texts: dict[str, str]) -> list[str]:
    """The names, each behind those that its statement names."""
    order: list[str] = []
    while len(order) < len(texts):
        waiting = [name for name in texts if name not in order]
        ready = [name for name in waiting if not _names(texts[name], {*waiting} - {name})]
        order += ready or waiting
    return order


def _assignment(name: str, tree: ast.Module) -> ast.Assign | ast.AnnAssign | None:
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(target, ast.Name) and target.id == name:
            return node
    return None


def _written(name: str, own: str, node: ast.Assign | ast.AnnAssign, translator: Translator, module: ModuleType) -> str:
    assert node.value is not None
    text = translator.written(node.value).replace("rngs=rngs", "rngs=nnx.Rngs(0)")
    notes = list(dict.fromkeys(translator.notes))
    if any(_changes(each, own) for each in ast.parse(inspect.getsource(module)).body if each.lineno != node.lineno):
        notes.append(f"{name} is changed further down in {module.__name__}")
    return "".join(f"# TODO {note}\n" for note in notes) + f"{name} = {text}"


def _changes(node: ast.stmt, name: str) -> bool:
    """Whether a statement of a file gives it another value, or another part."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return False
    holders = [each for each in ast.walk(node) if isinstance(each, ast.Name | ast.Subscript | ast.Attribute)]
    stored = [ast.unparse(each) for each in holders if isinstance(each.ctx, ast.Store)]
    if any(text.partition("[")[0].partition(".")[0] == name for text in stored):
        return True
    is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    return is_call and ast.unparse(node).startswith(f"{name}.")
