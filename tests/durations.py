"""Tests that are slow by what they take: `slow.txt` beside this file names their functions.

`make slow-list` runs all tests and writes it: functions whose tests take more than so many seconds on average. They
run in `make test-slow`, as what is marked there by hand does.
"""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

LIST = Path(__file__).with_name("slow.txt")


def function(nodeid: str) -> str:
    return nodeid.partition("[")[0]


def mark_slow(items: Iterable[pytest.Item], path: Path = LIST) -> None:
    listed = set(path.read_text().splitlines()) if path.exists() else set()
    for item in items:
        if function(item.nodeid) in listed:
            item.add_marker(pytest.mark.slow)


class Recorder:
    """A plugin that writes the list at the end of a run; what has not run stays as it was listed."""

    def __init__(self, limit_s: float, path: Path = LIST):
        self.limit_s, self.path = limit_s, path
        self.taken: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if "slow" not in report.keywords:
            self.taken[function(report.nodeid)][report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        listed = set(self.path.read_text().splitlines()) if self.path.exists() else set()
        slow = {name for name, taken in self.taken.items() if sum(taken.values()) > self.limit_s * len(taken)}
        self.path.write_text("".join(f"{name}\n" for name in sorted(listed - self.taken.keys() | slow)))
