"""What a user can write wrongly in a case or its file, and what is said of it."""

import pytest
from graphmode.compare import CaseError
from graphmode.compare.locate import locate
from graphmode.models import zoo
from typer.testing import CliRunner

from graphmode.cli import app

FILES = {
    "leaves": ("import sys\nsys.exit(0)\n", "leaves.py cannot be imported: it calls sys.exit(0) (leaves.py:2); move"),
    "syntax": ("a = 1\ndef f(:\n", "syntax.py, line 2): def f(:"),
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
    with pytest.raises(CaseError, match="is a folder; give"):
        locate(f"{tmp_path}:CASE")


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


def test_a_tag_that_no_case_has_is_refused_by_list():
    finished = CliRunner().invoke(app, ["list", "--tag", "nosuch"])
    assert finished.exit_code == 2
    assert "no case has the tag nosuch" in " ".join(finished.stderr.replace("│", "").split())
