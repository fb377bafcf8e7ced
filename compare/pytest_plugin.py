"""The pytest plugin: parity checks as tests, and a record of each for a machine to read.

Pytest loads it in every session of an environment that has graphmode: it imports neither framework until a check runs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from . import assertion
from .assertion import assert_parity
from .nearest import nearest

if TYPE_CHECKING:
    from .case import Case
    from .parity.check import CheckReport

__all__ = ["assert_parity", "parity", "parity_report"]

MARKER = (
    "parity(case, *, seed=None, draws=3, dtype='float32', device='cpu'): check this case (or the one at "
    "'path/to/file.py:NAME') first; the test fails where it fails, and may take the fixture parity_report"
)
SETTINGS = ("seed", "draws", "dtype", "device")
RECORD, CERTIFICATE = ".parity.json", ".certificate.json"
_MARKED = pytest.StashKey["CheckReport"]()
_SESSION = pytest.StashKey["_Session"]()


class _Session:
    """Where the records of one pytest session go, and which test is running."""

    def __init__(self, folder: Path | None):
        self.folder, self.test, self.count = folder, "", 0

    def record(self, report: CheckReport | assertion.Refusal) -> None:
        if self.folder is None:
            return
        self.count += 1
        # a name of its own for each check of each test, the same in the next session
        digest = hashlib.sha256(f"{self.test} {self.count}".encode()).hexdigest()[:8]
        name = re.sub(r"[^\w.-]+", "_", f"{self.test.rpartition('::')[2]}-{report.case}")[:80]
        if isinstance(report, assertion.Refusal):
            from .report.checks import CheckRecord, save_check

            why = report.problem
            record = CheckRecord(
                case=report.case, test=self.test, passed=False, certificate="", parity=[], text=why, problem=why
            )
            save_check(record, self.folder / f"{name}-{digest}{RECORD}")
            return
        report.save(self.folder / f"{name}-{digest}{RECORD}", test=self.test)
        report.certificate().save(self.folder / f"{name}-{digest}{CERTIFICATE}")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("graphmode", "parity of PyTorch models and their JAX ports")
    group.addoption("--parity-out", metavar="FOLDER", help="write each parity check and its certificate there, as JSON")
    group.addoption(
        "--parity-seed", metavar="N", type=int, default=None, help="of the checks that name none (0 where not given)"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    seed, out = config.getoption("--parity-seed"), config.getoption("--parity-out")
    if seed is not None and seed < 0:
        raise pytest.UsageError(f"--parity-seed is {seed}; give 0 or more")
    folder = None if out is None else config.invocation_params.dir / out
    if folder is not None:
        config.option.parity_out = str(folder)  # what pytest-xdist hands to its workers
        _prepare(folder, clear=not hasattr(config, "workerinput"))
    session = _Session(folder)
    config.stash[_SESSION] = session
    assertion.recorders.append(session.record)
    assertion.seeds.append(0 if seed is None else seed)


def pytest_unconfigure(config: pytest.Config) -> None:
    session = config.stash.get(_SESSION, None)
    if session is not None:
        assertion.recorders.remove(session.record)
        assertion.seeds.pop()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    session = item.config.stash[_SESSION]
    session.test, session.count = item.nodeid, 0


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """A marked test fails here, where its check does, and not in its setup, which would be an error."""
    try:
        report = _marked(pyfuncitem)
    except Exception as error:
        if isinstance(error, assertion.refusals()):
            pytest.fail(f"{type(error).__name__}: {error}", pytrace=False)
        raise
    if report is not None and not report.passed:
        pytest.fail(assertion.failure(report), pytrace=False)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    folder = config.stash[_SESSION].folder
    if folder is not None:
        count = len(list(folder.glob(f"*{RECORD}")))
        terminalreporter.write_line(f"graphmode: {count} parity checks are recorded in {folder}")


@pytest.fixture
def parity(request: pytest.FixtureRequest) -> Callable[..., CheckReport]:
    """`parity(case, seed=..., draws=..., dtype=..., device=...)`: `assert_parity`, where a location of a case may be
    relative to the test's file or to the root of the tests."""

    def run(case: Case | str, **settings: Any) -> CheckReport:
        __tracebackhide__ = True
        return assert_parity(_located(case, request.node), **settings)

    return run


@pytest.fixture
def parity_report(request: pytest.FixtureRequest) -> CheckReport:
    """The report of the check that the marker `parity` asks for."""
    __tracebackhide__ = True
    report = _marked(request.node)
    if report is None:
        raise pytest.UsageError(
            f"{request.node.name} takes parity_report, and has no marker: write @pytest.mark.parity(CASE) above it"
        )
    return report


def _marked(item: pytest.Item) -> CheckReport | None:
    """The report of a marked test, found once."""
    __tracebackhide__ = True
    marker = item.get_closest_marker("parity")
    if marker is None:
        return None
    if _MARKED not in item.stash:
        if len(marker.args) != 1:
            raise pytest.UsageError(
                f"the marker parity of {item.name} has {len(marker.args)} positional arguments, and one case was "
                "wanted: @pytest.mark.parity(CASE, seed=0)"
            )
        for name in marker.kwargs:
            if name not in SETTINGS:
                near = nearest(name, SETTINGS)
                raise TypeError(
                    f"the marker parity of {item.name} has the argument {name!r}"
                    f"{f' (did you mean {near[0]!r}?)' if near else ''}, and takes a case and {', '.join(SETTINGS)}"
                )
        item.stash[_MARKED] = assertion.recorded_check(_located(marker.args[0], item), **marker.kwargs)
    return item.stash[_MARKED]


def _located(case: Case | str, item: pytest.Item) -> Case | str:
    """A file's location as pytest's users write it: from the test's folder, the root, or where pytest was started."""
    if not isinstance(case, str) or not re.search(r"\.py(:|$)", case):
        return case
    place, colon, name = case.partition(".py")
    folders = (item.path.parent, item.config.rootpath, item.config.invocation_params.dir)
    for path in (folder / f"{place}{colon}" for folder in folders):
        if path.is_file():
            return f"{path}{name}"
    return case


def _prepare(folder: Path, *, clear: bool) -> None:
    """Makes the folder, without the records of an earlier session; workers of pytest-xdist leave them alone."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in _records(folder) if clear else ():
            path.unlink(missing_ok=True)
    except OSError as error:
        raise pytest.UsageError(
            f"--parity-out is {folder}: {error.strerror}; give a folder that can be written to"
        ) from error


def _records(folder: Path) -> Iterator[Path]:
    for suffix in (RECORD, CERTIFICATE):
        yield from folder.glob(f"*{suffix}")
