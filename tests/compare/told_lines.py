"""The lines that are told of a wrong port that no known cause explains, and those that a test marks."""

import importlib
from pathlib import Path
from unittest import mock

from graphmode.compare import Case, check

explaining = importlib.import_module("graphmode.compare.parity.causes.explain")
SOON_S = 2.0


def divergence_of(reference, port, inputs, **fields):
    """The only divergence of a wrong port, on the case's own inputs."""
    case = Case(name="c", summary="s", reference=reference, model=port, inputs=inputs, adversarial=(), **fields)
    (divergence,) = check(case, hasty=True).divergences
    return divergence


def lines_of(divergence):
    """`file.py:12` of each line of the port that is told."""
    return [each.partition(" ")[0] for each in divergence.astray.port]


def checked(reference, port, inputs, **fields):
    """Where the port leaves the reference's way, of its only divergence, and all that is told."""
    case = Case(name="c", summary="s", reference=reference, model=port, inputs=inputs, adversarial=(), **fields)
    with mock.patch.object(explaining, "SUSPECT_S", SOON_S):  # there is no cause to be found
        report = check(case, hasty=True)
    assert not report.passed
    (divergence,) = report.divergences
    assert not divergence.causes
    return divergence.astray, str(report)


def lines_with(file, text):
    """`file.py:12` of each line that has this comment."""
    return [
        f"{Path(file).name}:{i + 1}"
        for i, line in enumerate(Path(file).read_text().splitlines())
        if f"# {text}" in line
    ]
