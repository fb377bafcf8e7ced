"""docs/graphable.md: every construct has a row, and every name and test that it gives exists."""

import ast
import functools
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TABLE = ROOT / "docs" / "graphable.md"
IDS = [
    f"{letter}{number:02}"
    for letter, last in {"C": 14, "S": 18, "H": 7, "M": 5, "G": 4, "X": 3}.items()
    for number in range(1, last + 1)
]
MODULES = {"gm": "graphmode", "jnp": "jax.numpy", "lax": "jax.lax", "nnx": "flax.nnx"}
ROW = re.compile(r"^\| ([A-Z]\d\d) \|")
NAME = re.compile(r"`((?:gm|jax|jnp|lax|nnx|optax)\.[\w.]+)")
TEST = re.compile(r"`(test_\w+\.py)::(test_\w+)`")


def rows():
    lines = [line for line in TABLE.read_text().splitlines() if ROW.match(line)]
    return {line[2:5]: [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines}


@functools.cache
def known_tests(file):
    (path,) = ROOT.glob(f"tests/library/**/{file}")
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def exists(name):
    root, *parts = name.split(".")
    found = importlib.import_module(MODULES.get(root, root))
    for part in parts:
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


def test_every_construct_has_a_row():
    assert list(rows()) == IDS


@pytest.mark.parametrize("row", IDS)
def test_a_row_names_what_exists_and_a_test_that_shows_it(row):
    _, eager, instead, _, tests = rows()[row]
    assert eager
    names = NAME.findall(instead)
    assert names, instead
    assert all(map(exists, names)), names
    shown = TEST.findall(tests)
    assert shown, tests
    assert all(test in known_tests(file) for file, test in shown), shown


def test_a_name_that_does_not_exist_is_seen():
    assert not exists("gm.no_such_operation")
    assert exists("lax.cond")
