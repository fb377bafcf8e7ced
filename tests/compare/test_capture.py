"""Capturing a CUDA graph: what fails is told as it is."""

import pytest
import torch
from graphmode.compare.speed.capture import recording


class Failing:
    """As `torch.cuda.graph` is after an error: ending the capture fails, too."""

    def __init__(self, graph):
        pass

    def __enter__(self):
        pass

    def __exit__(self, *_):
        raise RuntimeError("operation failed due to a previous error during capture")


def test_what_fails_within_is_told_and_not_that_the_capture_could_not_be_ended(monkeypatch):
    monkeypatch.setattr(torch.cuda, "graph", Failing)
    with pytest.raises(ValueError, match="of the step"), recording(None):
        raise ValueError("of the step")


def test_what_fails_at_the_end_is_told(monkeypatch):
    monkeypatch.setattr(torch.cuda, "graph", Failing)
    with pytest.raises(RuntimeError, match="operation failed"), recording(None):
        pass
