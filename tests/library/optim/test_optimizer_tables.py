"""The page lists each configuration of PyTorch's, and tells what differs."""

from pathlib import Path

from .optimizer_cases import REFUSED, configurations
from .optimizer_verdicts import Verdict
from .tables import page

COMMITTED = Path(__file__).parents[3] / "docs" / "optimizers.md"


def rows(text):
    return [
        tuple(cell.strip() for cell in line.split("|")[1:3]) for line in text.splitlines() if line.startswith("| `")
    ]


def test_the_committed_page_lists_each_configuration():
    assert rows(COMMITTED.read_text(encoding="utf-8")) == [
        (f"`{c.optimizer}`", c.description) for c in configurations()
    ]


def test_the_committed_page_has_a_verdict_for_each():
    lines = [line for line in COMMITTED.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    refused = [line for line in lines if "refused: " in line]
    assert len(refused) == sum(c.optimizer in REFUSED for c in configurations())
    assert all(line.endswith("| agrees |") for line in lines if line not in refused)


def test_the_page_tells_what_differs():
    adam = [c for c in configurations() if c.optimizer in ("Adam", "LBFGS")][:4]
    found = {
        adam[0].id: Verdict(adam[0], 1e-16, 2e-12, {"early parameters weight": 1.0}),
        adam[1].id: Verdict(adam[1], 1e-16, 2e-9, {"early parameters weight": 1.0}),
        adam[2].id: Verdict(adam[2], 1e-16, 0.0, {"early parameters weight": 1.0, "late exp_avg weight": 6.0}),
    }
    told = page([*adam[:3], next(c for c in configurations() if c.optimizer == "LBFGS")], found)
    assert "1 of\n3 agree, 1 are refused" in told
    assert "| `Adam` | default | 50 | 1e-16 | 2e-12 | 1.00 | agrees |" in told
    assert "| 2e-09 | 1.00 | differs |" in told
    assert "| 6.00 | is less precise |" in told
    assert "refused: LBFGS calls a closure" in told
