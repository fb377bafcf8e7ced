"""What a user can write wrongly in a case or its file, and what is said of it."""

import os
import posix
import subprocess
import sys
from types import FunctionType

import pytest
import torch
from flax import nnx
from graphmode.compare import Case, CaseError, Plan, check, run
from graphmode.compare.early_exit import exits_told
from graphmode.compare.locate import locate
from graphmode.compare.report.headline import headline
from graphmode.models import zoo
from typer.testing import CliRunner

from graphmode.cli import app
from graphmode.weights import Rename, WeightsError

FILES = {
    "leaves": ("import sys\nsys.exit(0)\n", "leaves.py cannot be imported: it calls sys.exit(0) (leaves.py:2); move"),
    "syntax": ("a = 1\ndef f(:\n", "syntax.py, line 2): def f(:"),
    "many": (
        "from graphmode.models.scale_add.case import CASE as first\n"
        + "".join(f"case_{i} = first\n" for i in range(20)),
        ", case_5, case_6, case_7, case_8, case_9, case_10 and 9 more",
    ),
    "nothing": ("x = 1\n", "nothing.py has no attribute 'CASE'; it has no Case"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_without_a_case_says_why(name, tmp_path):
    text, words = FILES[name]
    path = tmp_path / f"{name}.py"
    path.write_text(text)
    with pytest.raises(CaseError) as caught:
        locate(f"{path}:CASE")
    assert words in str(caught.value)


def test_a_folder_is_called_one(tmp_path):
    for text in (f"{tmp_path}:CASE", ".", "..:CASE"):
        with pytest.raises(CaseError, match="is a folder; give"):
            locate(text)


def test_what_names_or_holds_nothing_says_so(tmp_path):
    with pytest.raises(CaseError, match=r"':CASE' names no file and no module; give path/to/file.py:NAME"):
        locate(":CASE")
    (tmp_path / "nothing.py").write_text("x = 1\n")
    with pytest.raises(CaseError, match=r"nothing.py has no case; write one there, or name another file"):
        locate(f"{tmp_path / 'nothing.py'}")


def test_of_models_those_of_the_file_are_named(tmp_path):
    path, kinds = tmp_path / "models.py", (type, FunctionType)
    path.write_text("from fractions import Fraction\nLIMIT = 3.0\nclass One: ...\ndef two(): ...\n")
    with pytest.raises(CaseError, match=r"is float, and a class or function was wanted; its models are One, two$"):
        locate(f"{path}:LIMIT", kinds, "model")
    assert locate(f"{path}", kinds, "model").__name__ == "One"


def test_a_name_in_the_wrong_case_is_near():
    with pytest.raises(CaseError, match="did you mean gpt2"):
        zoo.load("GPT2")


def test_a_file_that_exits_costs_no_other_case(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit(0)\n")
    finished = CliRunner().invoke(app, ["check", "leaves.py", "graphmode.models.scale_add.case:CASE"])
    assert finished.exit_code == 2, finished.stdout
    assert "it calls sys.exit(0)" in finished.stdout
    assert "equal and precise" in finished.stdout


def leaving(how):
    """A reference's file, whose forward pass ends the process."""
    return f"""
import os, threading
import torch
from graphmode.compare import Case
from graphmode.models.scale_add.case import CASE as OTHER

class Leaves(torch.nn.Module):
    def forward(self, x):
        {how}

CASE = Case(name="leaves", summary="", reference=Leaves, model=OTHER.models["default"],
            inputs=lambda rng: (rng.standard_normal((4, 5)),))
"""


LEAVING = {
    "where it is imported": ("import os\nos._exit(0)\n", "os._exit(0) was called (leaves.py:2); move that below"),
    "where it is judged": (leaving("os._exit(0)"), "it cannot be compared: os._exit(0) was called (leaves.py:9)"),
    "in a thread": (
        leaving("t = threading.Thread(target=lambda: os._exit(0)); t.start(); t.join()"),
        "os._exit(0) was called in a thread (leaves.py:9)",
    ),
}


@pytest.mark.parametrize("where", LEAVING)
def test_what_leaves_the_process_at_once_is_told_and_no_success(where, tmp_path):
    text, words = LEAVING[where]
    (tmp_path / "leaves.py").write_text(text)
    others = ["graphmode.models.scale_add.case:CASE"] if where == "where it is judged" else []
    finished = subprocess.run(
        [sys.executable, "-m", "graphmode", "check", "leaves.py:CASE", *others],
        cwd=tmp_path,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    said = finished.stdout + finished.stderr
    assert finished.returncode == 2, said
    assert words in " ".join(said.split())
    assert ("scale_add  equal and precise" in said) is bool(others)


@pytest.mark.filterwarnings("ignore:os.fork")
def test_a_fork_leaves_as_ever():
    with exits_told(sys.stderr):
        if not (child := os.fork()):
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert os._exit is posix._exit


def test_a_tag_that_no_case_has_is_refused_by_list():
    finished = CliRunner().invoke(app, ["list", "--tag", "nosuch"])
    assert finished.exit_code == 2
    assert "no case has the tag nosuch" in " ".join(finished.stderr.replace("│", "").split())


class Gate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(6, 3)

    def forward(self, x):
        return self.fc(x)


class GatePort(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(6, 3, rngs=rngs)

    def __call__(self, x):
        return self.fc(x)


def case(**fields):
    settings = {"name": "gate", "summary": "", "reference": Gate, "model": GatePort}
    return Case(**{**settings, "inputs": lambda rng: (rng.standard_normal((4, 6)),), **fields})


FIELDS = {
    "an instance as reference": ({"reference": Gate()}, "reference is an instance of Gate; give the class"),
    "an instance as model": ({"model": {"a": GatePort(nnx.Rngs(0))}}, "model['a'] is an instance of GatePort; give"),
    "swapped": (
        {"reference": GatePort, "model": Gate},
        "reference is GatePort, an nnx.Module, and a torch.nn.Module was wanted; are reference and model swapped?",
    ),
    "weights as text": ({"weights": "fc->gate"}, "weights is a str, 'fc->gate'; give a list of rules"),
    "weights as pairs": ({"weights": [("fc", "gate"), 42]}, "weights[0] is a tuple, ('fc', 'gate'); give a rule"),
    "one rule": ({"weights": Rename("fc", "gate")}, "give a list of rules: [Rename(key='fc', path='gate')]"),
    "a row misspelt": ({"expected": {"torch.trase": "why"}}, "is no row; did you mean 'torch.trace'?"),
    "tags as text": ({"tags": "vision"}, "tags is a str; give a tuple: ('vision',)"),
    "modes as text": ({"modes": "inference"}, "modes is a str; give a tuple: ('inference',)"),
    "no modes": ({"modes": None}, "modes is a NoneType; give a tuple"),
}


@pytest.mark.parametrize("what", FIELDS)
def test_a_field_that_is_wrong_is_named(what):
    fields, words = FIELDS[what]
    with pytest.raises(CaseError) as caught:
        case(**fields)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"input": abs}, r"Case has no field 'input' \(did you mean 'inputs'\?\); its fields are name, summary"),
        ({"tolerence": 1e-3}, "no field 'tolerence': no tolerance is set by hand"),
    ],
)
def test_an_argument_that_is_no_field_is_named(fields, words):
    with pytest.raises(TypeError, match=words):
        case(**fields)


def broken(*_):
    return 1 / 0


LINE = broken.__code__.co_firstlineno + 1
BUILDERS = {
    "a reference that raises": (
        {"reference": broken},
        f"the reference 'default' fails: ZeroDivisionError: division by zero (test_case_errors.py:{LINE}); it is",
    ),
    "a model that raises": (
        {"model": broken},
        f"the model 'default' fails: ZeroDivisionError: division by zero (test_case_errors.py:{LINE}); it is",
    ),
    "a model without rngs": ({"model": lambda: GatePort(nnx.Rngs(0))}, "it is called as model(rngs)"),
    "a function as model": ({"model": lambda x: 2 * x}, "building the model 'default' fails: TypeError"),
    "a class from the model": ({"model": lambda rngs: GatePort}, "model 'default' gives the class GatePort"),
    "None from the reference": ({"reference": lambda: None}, "reference 'default' gives None, and a torch.nn.Module"),
}


@pytest.mark.parametrize("what", BUILDERS)
def test_what_builds_no_module_is_named(what):
    fields, words = BUILDERS[what]
    with pytest.raises(CaseError) as caught:
        check(case(**fields), draws=1, locate=False)
    assert words in str(caught.value)


def test_a_rule_that_asks_for_a_missing_key_is_named():
    with pytest.raises(
        WeightsError, match=r"missing, and fc.kernel needs it by Rename\(key='fcc', path='fc'\); the nea"
    ):
        check(case(weights=[Rename("fcc", "fc")]), draws=1, locate=False)


def test_every_case_of_a_run_is_counted_and_names_that_are_not_its_own_are_told():
    cases = [case(), case(inputs=lambda rng: 3), case(), case(name="lost", reference=lambda: None)]
    results = run(cases, Plan(speed=False), refused={"leaves.py": "it exits"})
    assert [bool(each.problem) for each in results.cases] == [True, False, True, False, True]
    lines = headline(results).lines
    assert lines[0].endswith("float32: 2 of 2 (2 cases; 3 further cases could not be compared).")
    assert headline(results).remarks == (
        "gate: another case of this run has the same name, and pages show both as one: give each its own",
    )
