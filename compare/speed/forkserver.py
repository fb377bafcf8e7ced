"""A process that has everything imported and nothing started; each row runs in a fork of it.

A fork takes milliseconds where a new interpreter takes seconds, and what a row breaks, it breaks for itself alone. No
backend, no thread pool and no GPU may be in use before the fork, so the server imports and does nothing else.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import functools
import gc
import importlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, Pipe
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from typing import Protocol

from graphmode.memory import keep_freed_memory
from graphmode.vectors import use_wide_vectors

IMPORTS = (
    *("torch", "torch.fx.experimental.symbolic_shapes", "jax", "flax.nnx", "optax"),
    *("graphmode.compare.ahead", "graphmode.compare.speed.worker", "graphmode.compare.speed.bench"),
)
COMPILERS = ("torch._dynamo", "torch._inductor.compile_fx")  # 7 s of a processor, which every row would spend
IMPORTS_ON_CPU = ("onnxruntime", "onnxscript")
NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"  # with it the compilers' import looks for a GPU and does not touch it
START_S = 120.0
FIRST_TO_BE_KILLED = 1000  # of all processes, where memory runs out


class Died(Exception):
    """The server has ended, or could not be started."""


def can_fork() -> bool:
    """Whether rows can have processes of their own here: Linux alone promises a fork that is safe after imports."""
    return sys.platform == "linux"


def import_path() -> list[str]:
    """The folders that modules are imported from, for a process that works in another one."""
    return [os.getcwd() if entry == "" else entry for entry in sys.path]


@functools.lru_cache(maxsize=1)
def server(device: str) -> ForkServer:
    """The server of this process, started by the first call; it ends with this process."""
    started = ForkServer(device)
    atexit.register(started.close)
    return started


class Errand(Protocol):
    """What a process is started for; it is pickled on its way there."""

    def serve(self, connection: Connection) -> None:
        """Runs there. An end of the connection ends the process."""


class Child:
    """A process that the server starts.

    Attributes:
      connection: to its errand.
    """

    def __init__(self, server: ForkServer, connection: Connection):
        self._server, self.connection = server, connection
        self._pid = 0

    @property
    def pid(self) -> int:
        """Its id; waits until it has started.

        Raises:
          Died: where it never does.
        """
        if not self._pid:
            try:
                if not self.connection.poll(START_S):
                    raise EOFError
                self._pid = self.connection.recv()
            except (EOFError, OSError) as error:
                raise Died(self._server.last_words()) from error
        return self._pid

    @property
    def is_alive(self) -> bool:
        return not self.connection.closed

    def pause(self) -> None:
        """It stands still, with what it started, until `resume`: its threads spin on nobody's processor."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """It goes on where it stood; nothing where it did not stand still."""
        self._signal(signal.SIGCONT)

    def tell(self, number: signal.Signals) -> None:
        """Sends it a signal that it has said it handles, and to none of the processes that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(Died, ProcessLookupError):
            if self.is_alive:
                os.killpg(self.pid, number)

    def end(self) -> int | None:
        """Ends it, and what it started: its exit code as `subprocess` gives it, minus the signal that ended it; None
        where it had not started."""
        if self.connection.closed:
            return None
        try:
            pid = self.pid if self._pid or self.connection.poll() else 0
        except Died:
            pid = 0
        self.connection.close()  # one that starts later finds nobody and ends
        if not pid:
            return None
        _end(pid)
        return self._server.exit_code(pid)


class ForkServer:
    """Starts processes.

    Args:
      device: `"cpu"` or `"gpu"`.
    """

    def __init__(self, device: str):
        self._connection, theirs = Pipe()
        begin = f"from {__name__} import main; main({theirs.fileno()}, {device!r})"
        code = f"import sys; sys.path[:] = {import_path()!r}; {begin}"
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (open as long as the server)
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], pass_fds=[theirs.fileno()], stdout=self._log, stderr=self._log
        )
        theirs.close()

    def start(self, errand: Errand) -> Child:
        """A process for this errand. It is started when the server has imported everything; nobody waits for that.

        Raises:
          Died: where the server has ended.
        """
        ours, theirs = Pipe()
        with theirs:
            try:
                self._connection.send("fork")
                send_handle(self._connection, theirs.fileno(), self._process.pid)
                ours.send(errand)
            except OSError as error:
                ours.close()
                raise Died(self.last_words()) from error
        return Child(self, ours)

    def exit_code(self, pid: int) -> int | None:
        """Of a process that it started and that has ended; waits for the end."""
        with contextlib.suppress(EOFError, OSError):
            self._connection.send(pid)
            return self._connection.recv()
        return None

    def last_words(self) -> str:
        self._log.seek(0)
        said = self._log.read().decode(errors="replace").strip().rpartition("\n")[2]
        return f"the process that starts those of rows has ended; it said: {said or 'nothing'}"

    def close(self) -> None:
        """Ends it and all that it started."""
        self._connection.close()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def main(number: int, device: str, *, is_lean: bool = False) -> None:
    """What the server runs; it ends when nobody is there to ask it. A lean one leaves the compilers to its rows."""
    connection = Connection(number)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks
    if device == "cpu":
        keep_freed_memory()
    use_wide_vectors()
    if device == "gpu":
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # many processes share its memory
    _import(IMPORTS)
    if not is_lean:
        with _variable(NVML, "1"):
            _import(COMPILERS)
        if device == "gpu" and _cuda_is_lost():
            code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import main; "
            os.execv(sys.executable, [sys.executable, "-c", f"{code}main({number}, {device!r}, is_lean=True)"])
    if device == "cpu":
        _import(IMPORTS_ON_CPU)
    importlib.import_module("graphmode.dispatch").dispatch_inline()
    gc.collect()
    gc.freeze()  # what is imported stays, and a collection that walks it would copy its pages
    children: set[int] = set()
    with contextlib.suppress(EOFError, OSError):
        while True:
            request = connection.recv()
            if request == "fork":
                handle = recv_handle(connection)
                pid = os.fork()
                if not pid:
                    connection.close()
                    _child(handle)
                with contextlib.suppress(OSError):
                    os.setpgid(pid, pid)  # here too, since either may come first
                os.close(handle)
                children.add(pid)
            else:
                children.discard(request)
                connection.send(os.waitstatus_to_exitcode(os.waitpid(request, 0)[1]))
    for pid in children:
        _end(pid)


def _import(names: Iterable[str]) -> None:
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


@contextlib.contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    """Set in this block, unless the user has set it."""
    is_set = name in os.environ
    os.environ.setdefault(name, value)
    try:
        yield
    finally:
        if not is_set:
            del os.environ[name]


def _cuda_is_lost() -> bool:
    """Whether PyTorch would refuse a GPU in a process forked from this one, since this one has touched it."""
    pid = os.fork()
    if not pid:
        lost = True
        with contextlib.suppress(Exception):
            import torch

            lost = torch.cuda._is_in_bad_fork()
        os._exit(int(lost))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0


def _end(pid: int) -> None:
    """Of a process of the server's, and of what it started: compilers run beside it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _child(handle: int) -> None:
    code = 1
    os.setpgid(0, 0)  # a group of its own, which `_end` reaches
    try:
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(str(FIRST_TO_BE_KILLED))
        connection = Connection(handle)
        with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # nobody waits
            connection.send(os.getpid())
            connection.recv().serve(connection)
        code = 0
    finally:
        faulthandler.disable()
        os._exit(code)
