"""What a file keeps under a name, and a port has of its own: containers of code, modules, tensors."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from types import ModuleType

from .model import Model
from .names import Scope
from .spans import Spans
from .translator import Translator


def constants(model: Model) -> tuple[list[str], list[str]]:
    """The statements that make them: of those that name nothing of the port, and of the others."""
    before: list[tuple[int, str]] = []
    behind: list[tuple[int, str]] = []
    done: set[str] = set()
    while left := [name for name in model.constants if name not in done]:
        name, home = left[0], model.constants[left[0]]
        done.add(name)
        module = sys.modules[home]
        source = inspect.getsource(module)
        node = _assignment(name, ast.parse(source))
        if node is None:
            model.imports.add(f"from {home} import {name}")
            continue
        model.home = home
        text = _written(
            name, node, Translator(model, Spans(source, module.__file__ or ""), Scope(vars(module))), module
        )
        drafted = {*model.classes.values(), *model.functions.values()}
        names_some = any(re.search(rf"\b{each}\b", text) for each in drafted)
        (behind if names_some else before).append((node.lineno, text))
    return [text for _, text in sorted(before)], [text for _, text in sorted(behind)]


def _assignment(name: str, tree: ast.Module) -> ast.Assign | ast.AnnAssign | None:
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(target, ast.Name) and target.id == name:
            return node
    return None


def _written(name: str, node: ast.Assign | ast.AnnAssign, translator: Translator, module: ModuleType) -> str:
    assert node.value is not None
    text = translator.written(node.value).replace("rngs=rngs", "rngs=nnx.Rngs(0)")
    notes = list(dict.fromkeys(translator.notes))
    if any(_changes(each, name) for each in ast.parse(inspect.getsource(module)).body if each.lineno != node.lineno):
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
