"""The zoo is a list and no more: names lead to cases, and nothing is imported before it is asked for."""

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from graphmode.compare import Case, CaseError
from graphmode.models import zoo

MODELS = Path(zoo.__file__).parent
PORTS = sorted(path.parent.name for path in MODELS.glob("*/model.py"))


def imported_by(statement: str) -> set[str]:
    """Modules that a fresh interpreter has after this statement."""
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


def test_importing_the_zoo_imports_no_case_and_no_torch():
    before = imported_by("import graphmode.models")
    after = imported_by("import graphmode.models.zoo")
    assert "torch" not in after
    assert {name for name in after - before if name.startswith("graphmode")} == {"graphmode.models.zoo"}


def test_no_port_imports_torch_or_the_harness():
    statement = "\n".join(f"import graphmode.models.{name}.model" for name in PORTS)
    modules = imported_by(statement)
    assert "torch" not in modules
    assert not [name for name in modules if name.startswith("graphmode.compare") or name.endswith(".reference")]


def test_every_folder_is_in_the_zoo():
    targets = [*zoo.CASES.values(), *zoo.TRAININGS.values()]
    assert {target.split(".")[2] for target in targets} == {p.parent.name for p in MODELS.glob("*/case.py")}


@pytest.mark.parametrize("name", zoo.CASES)
def test_names_lead_to_cases(name):
    case = zoo.load(name)
    assert isinstance(case, Case)
    assert case.name == name
    assert case.summary
    assert "\n" not in case.summary
    assert {f.name for f in fields(case)} >= {"reference", "model", "inputs"}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lsmt", ["'lsmt'", "did you mean", "lstm"]),
        ("double_sin", ["double_sine"]),
        ("???", ["choose from", "conditional_scale", "lstm"]),
        ("", ["choose from", "weighted_product"]),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(name, words):
    with pytest.raises(CaseError) as error:
        zoo.load(name)
    assert all(word in str(error.value) for word in words)
    assert issubclass(CaseError, ValueError)
