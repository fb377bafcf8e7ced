"""Time for all that tests of this folder look for, and the samples of drafts."""

import shutil
import sys
from importlib import import_module
from pathlib import Path

import pytest

explaining = import_module("graphmode.compare.parity.causes.explain")


@pytest.fixture(autouse=True)
def _patience(monkeypatch):
    """A loaded machine is slow at any test: what is found within a time is found here however long it takes."""
    monkeypatch.setattr(explaining, "SUSPECT_S", 10 * explaining.SUSPECT_S)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The samples of drafts, in a folder whose modules are forgotten at the end, and `zoo` as if it were installed."""
    for file in (Path(__file__).parent / "draft_samples").glob("*.py"):
        shutil.copy(file, tmp_path)
    installed = tmp_path / "site-packages"
    installed.mkdir()
    shutil.move(tmp_path / "zoo.py", installed)
    monkeypatch.syspath_prepend(installed)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", None)):
            del sys.modules[name]
