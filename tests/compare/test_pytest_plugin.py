"""The pytest plugin: what fails and how it reads, what is recorded, and that it costs other sessions nothing."""

import importlib.metadata
import json
import re
import tomllib
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parent.parent.parent
MODULE = "graphmode.compare.pytest_plugin"
# where it is installed pytest finds it by itself, and would refuse it twice
PLUGIN = [] if importlib.metadata.entry_points(group="pytest11", name="graphmode") else ["-p", MODULE]

CASES = """
import dataclasses

import torch
from flax import nnx
from graphmode.compare import Case


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(6, 16)
        self.norm = torch.nn.LayerNorm(16)

    def forward(self, x):
        return self.norm(self.fc(x))


class Port(nnx.Module):
    epsilon = 1e-5

    def __init__(self, rngs):
        self.fc = nnx.Linear(6, 16, rngs=rngs)
        self.norm = nnx.LayerNorm(16, epsilon=self.epsilon, use_fast_variance=False, rngs=rngs)

    def __call__(self, x):
        return self.norm(self.fc(x))


class Epsilon(Port):
    epsilon = 1e-6


def inputs(rng):
    return (rng.standard_normal((20, 6)),)


CASE = Case(name="good", summary="", reference=Reference, model=Port, inputs=inputs)
WRONG = dataclasses.replace(CASE, name="wrong", model=Epsilon)
BROKEN = dataclasses.replace(CASE, name="broken", inputs=lambda rng: 3)
"""

TESTS = """
import pytest
from graphmode.compare import CaseError, CheckReport, assert_parity

from cases import BROKEN, CASE, WRONG


def test_returns_the_report():
    report = assert_parity(CASE, seed=3, draws=1)
    assert isinstance(report, CheckReport) and report.certificate().cases[0].seed == 3


def test_fails():
    assert_parity(WRONG)


@pytest.mark.parity("cases.py:CASE", draws=1)
def test_marked(parity_report):
    assert parity_report.passed and parity_report.certificate().cases[0].seed == 5


@pytest.mark.parity(WRONG, draws=1)
def test_marked_and_wrong():
    raise RuntimeError("this is not reached")


def test_fixture(parity):
    assert parity("cases.py:CASE", draws=1).case == "good"
    with pytest.raises(AssertionError, match="wrong: FAILED"):
        parity(WRONG, draws=1)


def test_a_case_that_cannot_be_compared(parity):
    with pytest.raises(CaseError, match="inputs gives int"):
        parity(BROKEN)


def test_takes_a_report_and_has_no_marker(parity_report):
    pass


def test_refused():
    assert_parity(BROKEN)


@pytest.mark.parity(BROKEN)
def test_marked_and_refused():
    pass


@pytest.mark.parity(CASE, dtypee="bfloat16")
def test_marked_with_an_unknown_setting(parity_report):
    pass


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"case": 42}, "case is 42, of type int; give a graphmode.compare.Case"),
        ({"case": CASE, "seed": "1"}, "seed is '1', of type str; give an int of at least 0"),
        ({"case": CASE, "draws": 0}, "draws is 0; give at least 1"),
        ({"case": CASE, "device": "cuda"}, "device is 'cuda'; choose 'cpu' or 'gpu'"),
    ],
)
def test_wrong_arguments(arguments, words):
    with pytest.raises((TypeError, ValueError), match=words):
        assert_parity(**arguments)
"""


@pytest.fixture
def session(pytester):
    pytester.makepyfile(cases=CASES, test_ports=TESTS)
    return lambda *arguments: pytester.runpytest_subprocess(*PLUGIN, "-p", "no:cacheprovider", *arguments)


def test_a_session(session, pytester):
    found = session("--strict-markers", "--parity-out", "out", "--parity-seed", "5")
    found.assert_outcomes(passed=8, failed=4, errors=2)
    text = found.stdout.str()
    assert "RuntimeError" not in text
    assert "has no marker" in text
    assert "has the argument 'dtypee' (did you mean 'dtype'?), and takes a case and seed, draws, dtype, device" in text
    assert "graphmode: 9 parity checks are recorded" in text

    records = [json.loads(path.read_text()) for path in sorted((pytester.path / "out").glob("*.parity.json"))]
    by_test: dict[str, list[bool]] = {}
    for record in records:
        by_test.setdefault(record["test"].rpartition("::")[2], []).append(record["passed"])
    assert {name: sorted(passed) for name, passed in by_test.items()} == {
        "test_returns_the_report": [True],
        "test_fails": [False],
        "test_marked": [True],
        "test_marked_and_wrong": [False],
        "test_fixture": [False, True],
        "test_a_case_that_cannot_be_compared": [False],
        "test_refused": [False],
        "test_marked_and_refused": [False],
    }
    refused = [record for record in records if record["problem"]]
    assert [(record["case"], record["parity"]) for record in refused] == [("broken", [])] * 3
    assert all("inputs gives int" in record["problem"] for record in refused)
    records = [record for record in records if not record["problem"]]
    assert all(record["parity"][0]["tensors"] for record in records)
    certificates = [json.loads(path.read_text()) for path in (pytester.path / "out").glob("*.certificate.json")]
    assert {c["digest"] for c in certificates} == {record["certificate"] for record in records}
    (failed,) = [record for record in records if record["test"].endswith("test_fails")]
    assert failed["parity"][0]["divergences"][0]["module"] == "norm"
    told = [line for line in found.outlines if line.startswith("E       ")]
    _fits_one_screen([line for line in told if not re.search("UsageError|CaseError|TypeError", line)])
    assert any(re.match(r">\s+assert_parity\(WRONG\)", line) for line in found.outlines)
    assert not re.search(r"(assertion|pytest_plugin|check|draw)\.py", text)  # the traceback ends at the caller


def _fits_one_screen(shown):
    """What pytest shows of the one failed assertion."""
    assert 3 < len(shown) <= 40
    assert max(map(len, shown)) <= 120
    # the verdict and the place come first, the numbers last
    message = "\n".join(shown)
    order = ["wrong: FAILED", "NOT EQUAL", "error arises in norm", "cause", "tensors failed"]
    places = [message.index(words) for words in order]
    assert places == sorted(places), message


@pytest.mark.slow
def test_workers_of_xdist_record_what_they_check(session, pytester):
    (pytester.path / "out").mkdir()
    earlier = pytester.path / "out" / "test_of_yesterday.parity.json"
    earlier.touch()
    two = "test_marked and not refused and not unknown"
    found = session("-n", "2", "-k", two, "--parity-out", "out", "--parity-seed", "5")
    found.assert_outcomes(passed=1, failed=1)
    records = [json.loads(path.read_text()) for path in (pytester.path / "out").glob("*.parity.json")]
    assert sorted(record["passed"] for record in records) == [False, True]
    found.stdout.fnmatch_lines(["graphmode: 2 parity checks are recorded in *out"])


def test_other_sessions_wait_for_no_framework(pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # others import what they like
    pytester.makepyfile(
        "import sys\n"
        "def test_nothing():\n"
        f"    assert {MODULE!r} in sys.modules\n"
        "    assert not {'torch', 'jax', 'jaxlib', 'flax', 'numpy'} & sys.modules.keys()\n"
    )
    pytester.runpytest_subprocess("-p", MODULE, "-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_wrong_options_are_refused(session):
    found = session("--parity-seed", "-1")
    assert found.ret == pytest.ExitCode.USAGE_ERROR
    assert "--parity-seed is -1" in found.stderr.str()


def test_it_is_registered_as_an_entry_point():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"graphmode": MODULE}
