"""A certificate names all that moves a verdict, comes out the same again, and a second run is held against it."""

import dataclasses
import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, CaseError, check
from graphmode.compare.parity.certificate import digest_of, verify
from graphmode.compare.report import Certificate, ResultsError
from typer.testing import CliRunner

from graphmode.cli import app

CASE_FILE = """
import torch
from flax import nnx
from graphmode.compare import Case


class Port(nnx.Module):
    def __init__(self, rngs):
        self.linear = nnx.Linear(5, 16, rngs=rngs)

    def __call__(self, x):
        return self.linear(x)


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(5, 16)

    def forward(self, x):
        return self.linear(x)


CASE = Case(name="mine", summary="", reference=Reference, model=Port, inputs=lambda rng: (rng.standard_normal((9, 5)),))
"""


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(6, 8)

    def forward(self, x):
        return self.fc(x)


class Port(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(6, 8, rngs=rngs)

    def __call__(self, x):
        return self.fc(x)


class Wrong(Port):
    def __call__(self, x):
        return self.fc(x) + 1e-7


class Other(Reference):
    def __init__(self):
        super().__init__()
        with torch.no_grad():
            self.fc.bias.add_(0.5)


CASE = Case(
    name="small",
    summary="",
    reference=Reference,
    model=Port,
    inputs=lambda rng: (rng.standard_normal((20, 6)),),
    modules={"fc": "fc"},
    expected={"torch.trace": "why"},
)


@pytest.fixture(scope="module")
def certificate():
    return check(CASE, draws=2).certificate()


def test_it_names_what_moves_a_verdict(certificate):
    assert {"python", "graphmode", "jax", "jaxlib", "flax", "torch", "numpy"} <= certificate.versions.keys()
    assert {"jax_enable_x64", "jax_default_matmul_precision", "XLA_FLAGS"} <= certificate.flags.keys()
    assert "torch.backends.cuda.matmul.allow_tf32" in certificate.flags
    (case,) = certificate.cases
    assert (case.case, case.dtype, case.seed, case.draws) == ("small", "float32", 0, 2)
    assert list(case.weights) == ["fc.weight", "fc.bias"]
    assert list(case.inputs) == ["random 0", "random 1"]
    assert case.overrides["modules"] == "fc: 'fc'"
    assert case.overrides["expected"] == "torch.trace: 'why'"
    assert certificate.passed


def test_a_hash_is_that_of_the_bytes():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert digest_of(array) == hashlib.sha256(b"input. float32 (2, 3) " + array.tobytes()).hexdigest()
    changes = array.T, array.astype(np.float64), array.reshape(3, 2), np.nextafter(array, 9)
    assert len({digest_of(a) for a in (array, *changes)}) == 5
    assert digest_of(np.asfortranarray(array)) == digest_of(array)


def test_the_same_seed_gives_the_same_and_another_seed_another(certificate):
    assert check(CASE, draws=2, locate=False).certificate().digest == certificate.digest
    other = check(CASE, draws=2, seed=1).certificate()
    assert other.digest != certificate.digest
    before, after = certificate.cases[0], other.cases[0]
    assert all(before.weights[name] != after.weights[name] for name in before.weights)
    assert all(before.inputs[name] != after.inputs[name] for name in before.inputs)


def test_it_is_read_back_and_refused_where_it_was_changed(certificate, tmp_path):
    path = tmp_path / "certificate.json"
    certificate.save(path)
    assert Certificate.load(path) == certificate
    content = json.loads(path.read_text())
    assert content["digest"] == certificate.digest
    content["cases"][0]["verdicts"][0]["equal"] = False
    path.write_text(json.dumps(content))
    with pytest.raises(ResultsError, match="was changed"):
        Certificate.load(path)
    path.write_text('{"schema": "graphmode.results"}')
    with pytest.raises(ResultsError, match="no certificate"):
        Certificate.load(path)
    with pytest.raises(ResultsError, match="cannot read"):
        Certificate.load(tmp_path / "nowhere.json")


DIFFERS = {
    "nothing": ({}, set()),
    "weights": ({"reference": Other}, {"weights fc.bias"}),
    "inputs": ({"inputs": lambda rng: (2 * rng.standard_normal((20, 6)),)}, {"input random 0", "input random 1"}),
    "verdict": ({"model": Wrong}, {"verdict port default"}),
    "overrides": ({"modules": {}}, {"override modules"}),
}


@pytest.mark.parametrize("what", DIFFERS)
def test_verify_says_what_differs(certificate, what):
    fields, wanted = DIFFERS[what]
    found = verify(certificate, dataclasses.replace(CASE, **fields))
    assert {each.what for each in found} == wanted, found


def test_verify_tells_versions_apart_from_what_was_compared(certificate):
    older = replace(certificate, versions={**certificate.versions, "jax": "0.1"})
    (found,) = verify(older, CASE)
    assert found.what == "version jax"
    assert found.is_of_environment
    assert "0.1 in the certificate" in str(found)
    with pytest.raises(CaseError, match="does not speak of the case 'other'"):
        verify(certificate, dataclasses.replace(CASE, name="other"))


def test_the_command_writes_and_verifies_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(CASE_FILE)
    finished = CliRunner().invoke(app, ["check", "mine.py:CASE", "--out", "out"])
    assert finished.exit_code == 0, finished.output
    certificate = Certificate.load(tmp_path / "out" / "certificate.json")
    for page in ("report.md", "report.html"):
        assert (tmp_path / "out" / page).read_text().count(certificate.digest) == 1
    assert json.loads((tmp_path / "out" / "results.json").read_text())["certificate"]["cases"][0]["case"] == "mine"

    again = CliRunner().invoke(app, ["check", "mine.py:CASE", "--verify", "out/certificate.json"])
    assert again.exit_code == 0, again.output
    assert "mine: as certified" in again.output
    (tmp_path / "mine.py").write_text(
        CASE_FILE.replace("return self.linear(x)\n\n\nCASE", "return -self.linear(x)\n\n\nCASE")
    )
    wrong = CliRunner().invoke(app, ["check", "mine.py:CASE", "--verify", "out/certificate.json"])
    assert wrong.exit_code == 1, wrong.output
    assert "verdict port default" in wrong.output
