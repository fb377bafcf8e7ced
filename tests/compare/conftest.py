"""A loaded machine is slow at any test: what is found within a time is found here however long it takes."""

from importlib import import_module

import pytest

explaining = import_module("graphmode.compare.parity.causes.explain")


@pytest.fixture(autouse=True)
def _patience(monkeypatch):
    monkeypatch.setattr(explaining, "SUSPECT_S", 10 * explaining.SUSPECT_S)
