"""Shrinking: a planted fault comes down to its module and a small input, and the script shows it until it is mended."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from graphmode.compare import CaseError, shrink
from graphmode.compare.locate import locate

CASES = Path(__file__).with_name("shrink_cases.py")


def shrunk(name, **options):
    return shrink(locate(f"{CASES}:{name}"), **{"budget_s": 20, "location": f"{CASES}:{name}", **options})


# the case, the module, the shape that is left
FAULTS = {
    "ALWAYS": ("block", (1, 1, 1)),
    "TANH": ("block", (1, 1, 1)),
    "LONG": ("block", (1, 5, 1)),
    "NEGATIVE": ("block", (1, 1, 1)),
    "GRADIENT": ("block", (1, 1, 1)),
    "TIES": ("", (1, 2)),
}


def run(path, **variables):
    return subprocess.run(
        [sys.executable, "-P", str(path)], env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_comes_down_to_its_module_and_size(name):
    module, shape = FAULTS[name]
    found = shrunk(name)
    assert (found.module, found.reference) == (module, module)
    assert found.shape == shape, str(found)
    (array,) = found.inputs.values()
    assert (array == np.round(array)).all(), array
    assert found.tries < 200
    if name == "NEGATIVE":
        assert array < -0.5
    if name == "LONG":
        assert not array.any()


@pytest.mark.slow
def test_the_script_fails_until_the_fault_is_mended(tmp_path):
    found = shrunk("IMAGES")
    assert found.module == "norm"
    assert found.shape[:2] == (1, 4)
    assert np.prod(found.shape[2:]) <= 2, str(found)
    script, *others = found.save(tmp_path)
    failing = run(script)
    assert failing.returncode == 1, failing.stdout + failing.stderr
    assert "they differ" in failing.stdout
    mended = run(script, MENDED="1")
    assert mended.returncode == 0, mended.stdout + mended.stderr
    assert "they agree" in mended.stdout
    assert others == []
    assert found.script == script.read_text()


@pytest.mark.slow
def test_large_arrays_are_kept_beside_the_script(tmp_path):
    found = shrunk("ALWAYS", budget_s=1e-9)
    assert found.tries == 0
    assert found.shape == (4, 9, 8)
    script, arrays = found.save(tmp_path)
    assert arrays.suffix == ".npz"
    assert run(script).returncode == 1


def test_what_cannot_be_shrunk_is_refused_by_name():
    with pytest.raises(CaseError, match=r"is equal: there is nothing to shrink"):
        shrunk("CORRECT")
    with pytest.raises(ValueError, match="budget_s is 0"):
        shrunk("ALWAYS", budget_s=0)
    with pytest.raises(ValueError, match="variant is 'other'"):
        shrunk("ALWAYS", variant="other")


def test_a_case_that_no_module_holds_has_no_script(tmp_path):
    import dataclasses

    found = shrink(dataclasses.replace(locate(f"{CASES}:ALWAYS"), name="nowhere"), budget_s=5)
    assert "fails by itself" in str(found)
    with pytest.raises(CaseError, match="location="):
        found.save(tmp_path)


def test_the_command_writes_the_script(tmp_path):
    from typer.testing import CliRunner

    from graphmode.cli import app

    arguments = ["check", f"{CASES}:TIES", "--quick", "--shrink", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1, result.output
    assert "inputs: 0 [3, 7] to [1, 2]" in result.output
    (script,) = tmp_path.glob("*.py")
    assert f"{CASES}:TIES" in script.read_text()
