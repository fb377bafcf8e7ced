"""What is slow by what it takes is listed, and what is listed is slow."""

from types import SimpleNamespace

import pytest
from durations import Recorder, mark_slow


def report(nodeid, duration, **keywords):
    return SimpleNamespace(nodeid=nodeid, duration=duration, keywords=keywords)


def test_functions_are_listed_by_the_mean_of_their_tests(tmp_path):
    path = tmp_path / "slow.txt"
    path.write_text("test_a.py::test_gone\ntest_a.py::test_has_become_quick\n")
    recorder = Recorder(1.0, path)
    for told in (
        report("test_a.py::test_has_become_quick", 0.1),
        report("test_a.py::test_slow[x::y[0]]", 0.7),  # its set-up
        report("test_a.py::test_slow[x::y[0]]", 0.6),
        report("test_a.py::test_slow[1]", 0.9),
        report("test_a.py::test_quick[0]", 1.5),
        report("test_a.py::test_quick[1]", 0.2),
        report("test_a.py::test_marked_by_hand", 9.0, slow=1),
    ):
        recorder.pytest_runtest_logreport(told)
    recorder.pytest_sessionfinish()
    assert path.read_text() == "test_a.py::test_gone\ntest_a.py::test_slow\n"


@pytest.mark.parametrize("exists", [True, False])
def test_what_is_listed_is_marked(exists, tmp_path):
    path, marks = tmp_path / "slow.txt", []
    if exists:
        path.write_text("test_a.py::test_slow\n")
    names = ("test_a.py::test_slow", "test_a.py::test_slow[0]", "test_a.py::test_slower", "test_b.py::test_slow")
    for name in names:
        item = SimpleNamespace(nodeid=name, add_marker=lambda mark, name=name: marks.append((name, mark.name)))
        mark_slow([item], path)
    assert marks == [(name, "slow") for name in names[:2] if exists]
