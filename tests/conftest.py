"""What all tests share: a `gpu` test is skipped, with the reason, where no CUDA device is seen; no deadlines.

More than half of the tests' time is XLA's, which compiles some 30,000 small graphs. What one test has compiled another
one, of any worker, reads from a cache that lasts as long as the run; and XLA's optimisations are off, but where
XLA_FLAGS is set: with `XLA_FLAGS= make test` graphs are compiled as users compile them. What is lowered shares contexts
of MLIR, of which each takes 7 ms to make. Where several workers share the processors PyTorch has one thread in each,
unless OMP_NUM_THREADS is set: their threads would wait for one another.
"""

import functools
import itertools
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import jax
import pytest
from durations import Recorder, mark_slow
from graphmode.compare.quick_compile import QUICKLY, as_flags
from graphmode.compare.speed.environment import spin_briefly
from jax._src.interpreters import mlir

spin_briefly()

# an example that compiles takes long once, and a loaded machine is slow at any
hypothesis.settings.register_profile("no_deadline", parent=hypothesis.settings(), deadline=None)
hypothesis.settings.load_profile("no_deadline")


CACHE = "JAX_COMPILATION_CACHE_DIR"
CACHE_ALL = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": 0.0, "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": -1}
IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ
# each compiled graph holds several; a process may have 65,530 on Linux, and XLA dies of the next one
MOST_MAPS = 20_000
MAPS = Path("/proc/self/maps")
counted = itertools.count()
USES = 500  # of one context, which keeps every constant that was ever lowered in it


class SharedContexts(threading.local):
    """In the place of what makes JAX a context for each graph: one a thread for many."""

    def __init__(self, make: Callable[[], Any]):
        self.make, self.used = make, USES

    def __call__(self) -> Any:
        if self.used == USES:
            self.context, self.used = self.make(), 0
        self.used += 1
        return self.context


if hasattr(mlir, "make_ir_context"):  # no part of JAX's interface
    mlir.make_ir_context = SharedContexts(mlir.make_ir_context)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-slow", type=float, metavar="SECONDS", help="list the functions whose tests take longer")


def pytest_configure(config: pytest.Config) -> None:
    """Sets what JAX and PyTorch read in this process, in the workers that it starts, and in their children."""
    if not IS_WORKER:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # several processes share a GPU's memory
        if config.getoption("numprocesses", None):
            os.environ.setdefault("OMP_NUM_THREADS", "1")
        os.environ[CACHE] = tempfile.mkdtemp(prefix="graphmode-tests-")
        os.environ.update({name: str(value) for name, value in CACHE_ALL.items()})
        os.environ.setdefault("XLA_FLAGS", as_flags(QUICKLY))
        if limit_s := config.getoption("record_slow"):
            config.pluginmanager.register(Recorder(limit_s))
        config.pluginmanager.register(Failures(config))
    for name, value in {CACHE: os.environ[CACHE], **CACHE_ALL}.items():
        jax.config.update(name.lower(), value)


def pytest_unconfigure() -> None:
    if not IS_WORKER:
        shutil.rmtree(os.environ[CACHE], ignore_errors=True)


class Failures:
    """A plugin that names a test as soon as it fails: a run of half an hour may be broken off before its summary."""

    def __init__(self, config: pytest.Config):
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and reporter is not None:
            reporter.write_line(f" {report.when} failed: {report.nodeid}")


@pytest.fixture(autouse=True)
def _few_graphs() -> Iterator[None]:
    yield
    if next(counted) % 10 == 9 and MAPS.exists() and len(MAPS.read_bytes().splitlines()) > MOST_MAPS:
        jax.clear_caches()


@pytest.fixture
def retraced() -> Iterator[None]:
    """Nothing traced before is used in this test, nor what it traces after it: for patches of compiled functions."""
    jax.clear_caches()
    yield
    jax.clear_caches()


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C works, in children too, where the tests were started with it ignored, as in the background of a shell."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@functools.cache
def why_no_gpu() -> str | None:
    import jax

    try:
        jax.devices("cuda")
    except RuntimeError:
        return "JAX sees no CUDA device"
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed"
    return None if torch.cuda.is_available() else "PyTorch sees no CUDA device"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("record_slow"):
        mark_slow(items)
    # Whole runs of the suite take minutes, and tests of the library seconds: those last, workers end together.
    items.sort(key=lambda item: ("test_suite.py" not in item.nodeid, "tests/library/" in item.nodeid))
    for item in items:
        if item.get_closest_marker("gpu") and (reason := why_no_gpu()):
            item.add_marker(pytest.mark.skip(reason=reason))
